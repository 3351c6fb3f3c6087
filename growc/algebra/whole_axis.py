"""States of whole axes, assembled from those of factors or segments and distributed over them."""

from __future__ import annotations

from functools import reduce

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap
from growc.algebra.space import Space, find, leaves


def unscaled(state: IndexMap, requested: IndexMap) -> Bools:
    """The rows in which a state has, with factor one, the unit that the requested map copies."""
    same = requested.copies & state.copies & (state.index == requested.index)
    return np.asarray(same & np.isclose(state.weight, 1.0, 1e-9))


def shows(state: IndexMap, requested: IndexMap) -> bool:
    """Whether every source unit is in the output, unscaled, at a place where the requested map has it."""
    same = unscaled(state, requested)
    return bool((np.bincount(state.index[same], minlength=state.source) > 0).all())


def distribute(space: Space, pending: list[IndexMap], factor: float) -> list[IndexMap]:
    """The states of the leaves behind a norm over the whole axis, which scales it and removes means.

    Every segment of a sum takes the factor. Of a product, one factor takes it: the first that changes.
    """
    space = find(space)
    if space.kind == "atom":
        if space.unit:
            return []
        state = pending.pop(0)
        return [IndexMap.of(state.source, state.index, state.weight).scaled(factor)]
    parts = space.parts
    if space.kind == "sum":
        return [s for p in parts for s in distribute(p, pending, factor)]
    counts = [sum(1 for _ in leaves(p)) for p in parts]
    starts = [sum(counts[:k]) for k in range(len(parts))]
    usable = [k for k, p in enumerate(parts) if scalable(p)]
    changed = [
        k for k in usable if any(not s.is_identity for s in pending[starts[k] : starts[k] + counts[k]])
    ]
    chosen = (changed or usable or [0])[0]
    return [s for k, p in enumerate(parts) for s in distribute(p, pending, factor if k == chosen else 1.0)]


def scalable(space: Space) -> bool:
    """Whether states of leaves can scale a whole axis: a segment of a single unit has no state."""
    space = find(space)
    if space.kind == "atom":
        return not space.unit
    return (all if space.kind == "sum" else any)(scalable(p) for p in space.parts)


def assemble(space: Space, pending: list[IndexMap]) -> IndexMap:
    """The map of a space from those of its leaves. Takes these from the front of `pending`."""
    space = find(space)
    if space.kind == "atom":
        return IndexMap.identity(space.size[0]) if space.unit else pending.pop(0)
    parts = [assemble(p, pending) for p in space.parts]
    return IndexMap.concat(parts) if space.kind == "sum" else reduce(IndexMap.kron, parts)
