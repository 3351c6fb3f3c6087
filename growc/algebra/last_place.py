"""Real numbers moved by units in their last place: the error that storing a number makes."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array

_BLOCK = 1_000_003
"""The count of numbers that are moved at a time. A prime, so that no two rows of a matrix move alike."""


def nudged(array: Array, units: int = 1, seed: int = 0) -> Array:
    """A copy in which a quarter of the numbers is moved up by `units` in the last place, and a quarter down.

    That is half of `units` on average. Integers stay (masks, counts, gains of one), since storing them rounds
    nothing. Infinities, NaN and subnormal numbers stay, too. So does a single number: it is a constant of the
    computation, and no weight. `seed` determines which numbers move.
    """
    copy = np.array(array, order="C")
    if copy.size < 2:
        return copy
    flat = copy.reshape(-1)
    bits = flat.view(f"i{copy.dtype.itemsize}")
    smallest = float(ml_dtypes.finfo(copy.dtype).smallest_normal)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        with np.errstate(invalid="ignore"):
            real = np.isfinite(part) & (part != np.rint(part)) & (np.abs(part) >= smallest)
        directions = _directions(seed)[: part.size] * real
        bits[start : start + _BLOCK] += directions.astype(bits.dtype) * bits.dtype.type(units)
    return copy


@cache
def _directions(seed: int) -> NDArray[np.int8]:
    """The direction of every number of a block: up (1), down (-1), or none (0)."""
    drawn = np.random.Generator(np.random.Philox(seed)).integers(0, 4, _BLOCK)
    return np.array([-1, 0, 0, 1], dtype=np.int8)[drawn]
