"""The units of a network in its stored tensors: which of them each element along an axis belongs to."""

from __future__ import annotations

import numpy as np

from growc.algebra.indexmap import Ints
from growc.algebra.space import Space, find
from growc.ir.lowered_statement import Sizes


def unit_numbers(space: Space, atom: Space, sizes: Sizes) -> Ints:
    """For each element of a space, the unit of an atom in it that the element belongs to; -1 where it belongs
    to none. The space may hold the atom as a factor, as a segment, or several times.
    """
    space = find(space)
    if space is find(atom):
        return np.arange(sizes.of(space)[0])
    if space.kind == "atom":
        return np.full(sizes.of(space)[0], -1)
    parts = [unit_numbers(part, atom, sizes) for part in space.parts]
    if space.kind == "sum":
        return np.concatenate(parts)
    numbers = np.full(1, -1)
    for part in parts:
        numbers = np.maximum(numbers[:, None], part).reshape(-1)
    return numbers
