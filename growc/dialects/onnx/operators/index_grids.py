"""Index grids, as exporters write them for an assignment to a slice."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from growc.algebra.indexmap import Array
from growc.dialects.onnx.operators.site import unit
from growc.ir.graph import Node, Value


def counted(node: Node, read: Callable[[Value], tuple[Array, ...] | None] | None = None) -> list[int | None]:
    """Return where ScatterND's indices begin along each axis that they count along, None for other axes.

    An assignment to a slice is exported as a grid of indices: for every addressed axis, numbers that are
    expanded over all others, side by side. For one axis it may be the list of its indices. `read` returns the
    value of the expanded numbers (default: the source's).
    """
    read = read or (lambda value: value.known)
    grid = node.inputs[1]
    assert grid is not None
    columns = _producer(grid, "Concat")
    if is_list(node):
        return [_begin(read(grid))]
    if columns is None or columns.attributes.get("axis") not in (-1, grid.rank - 1):
        return []
    begins: list[int | None] = []
    for axis, column in enumerate(columns.inputs):
        stretched = None if column is None else _producer(column, "Unsqueeze", "Reshape")
        expanded = None if stretched is None else _producer(stretched.inputs[0], "Expand")
        numbers = None if expanded is None else expanded.inputs[0]
        known = None if numbers is None else read(numbers)
        if numbers is None or known is None or numbers.sizes is None:
            begins.append(None)
            continue
        along = axis - (grid.rank - 1) + numbers.rank  # behind the last axis if several axes go in pairs
        alone = along < numbers.rank and all(unit(s) for i, s in enumerate(numbers.sizes) if i != along)
        begins.append(_begin(known) if alone else None)
    return begins


def is_list(node: Node) -> bool:
    """Whether ScatterND addresses one axis by a list of indices."""
    grid = node.inputs[1]
    return grid is not None and grid.rank == 2 and unit((grid.sizes or ())[1])


def _begin(known: tuple[Array, ...] | None) -> int | None:
    """Return the first of numbers that count up by one, if equal at every sample point; else None."""
    rows = [k.reshape(-1) for k in known or ()]
    counts = all((r == r[:1] + np.arange(r.size)).all() for r in rows)
    begins = {int(r[0]) for r in rows if r.size}
    return begins.pop() if counts and len(begins) == 1 else None


def _producer(value: Value | None, *ops: str) -> Node | None:
    node = None if value is None else value.producer
    return node if node is not None and node.op in ops else None
