"""States of whole axes that are made of several factors or segments, and back to these."""

from __future__ import annotations

import numpy as np

from growc.axes import Space, find
from growc.indexmap import IndexMap


def shows(state: IndexMap, wanted: IndexMap) -> bool:
    """Whether every source unit stands in the output, unscaled, where the requested map has it."""
    rows = wanted.copies
    same = rows & state.copies & (state.index == wanted.index) & np.isclose(state.weight, 1.0, 1e-9)
    return bool((np.bincount(state.index[same], minlength=state.source) > 0).all())


def distribute(before: list[IndexMap], after: IndexMap, space: Space) -> list[IndexMap]:
    """The states of the leaves behind a norm over the whole axis."""
    if len(before) == 1:
        return [after]
    rows = after.copies
    total = 1.0
    for state in before:
        total *= float(state.weight[state.copies][0])
    factor = float(after.weight[rows][0]) / total if space.kind == "product" else float(after.weight[rows][0])
    found = [IndexMap.of(s.source, s.index, s.weight) for s in before]
    if space.kind == "product":
        return [found[0].scaled(factor), *found[1:]]
    return [s.scaled(factor / float(s.weight[s.copies][0])) for s in found]


def assemble(space: Space, pending: list[IndexMap]) -> IndexMap:
    """The map of a space from those of its leaves, which are taken from the front of `pending`."""
    space = find(space)
    if space.kind == "atom":
        return IndexMap.identity(space.size[0]) if space.unit else pending.pop(0)
    parts = [assemble(p, pending) for p in space.parts]
    if space.kind == "sum":
        return IndexMap.concat(parts)
    made = parts[0]
    for part in parts[1:]:
        made = made.kron(part)
    return made
