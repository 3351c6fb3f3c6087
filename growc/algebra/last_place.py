"""Real numbers moved by units of their own last place: what storing a number costs it."""

from __future__ import annotations

from functools import cache

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array

_BLOCK = 1_000_003
"""Numbers that are moved at a time; a prime, so that no two rows of a matrix move alike."""


def nudged(array: Array, units: int = 1, seed: int = 0) -> Array:
    """A copy in which a quarter of the numbers is moved up by `units` of their last place, a quarter down.

    That is half of `units` on average. Whole numbers stay (masks, counts, gains of one), since storing them
    rounds nothing; so do infinities, NaN, numbers without a whole mantissa, and a single number: it is a
    constant of the computation, and no weight. `seed` says which move.
    """
    made = np.array(array, order="C")
    if made.size < 2:
        return made
    flat = made.reshape(-1)
    bits = flat.view(f"i{made.dtype.itemsize}")
    smallest = float(ml_dtypes.finfo(made.dtype).smallest_normal)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        with np.errstate(invalid="ignore"):
            real = np.isfinite(part) & (part != np.rint(part)) & (np.abs(part) >= smallest)
        moved = _directions(seed)[: part.size] * real
        bits[start : start + _BLOCK] += moved.astype(bits.dtype) * bits.dtype.type(units)
    return made


@cache
def _directions(seed: int) -> NDArray[np.int8]:
    """Up, down, or not at all, for every number of a block."""
    drawn = np.random.Generator(np.random.Philox(seed)).integers(0, 4, _BLOCK)
    return np.array([-1, 0, 0, 1], dtype=np.int8)[drawn]
