"""Operands that hold numbers of units, and the axes of these units (growc.ir.graph.Laws.addresses).

There is one rule for each kind of operator. A rule yields nothing if ranks, or the axes that a Slice names,
are not known.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.ir.graph import Address, Node

KEPT = ("none", "add", b"none", b"add")
"""Reductions under which written elements stay as they are, or are added."""


def _axis(node: Node, default: int, rank: int) -> int:
    return node.integer("axis", default) % rank


def along(node: Node) -> Iterator[Address]:
    """Elements of operand 1 number units along one axis of operand 0."""
    table, index = node.inputs[0], node.inputs[1]
    if table is not None and table.rank and index is not None and index.sizes is not None:
        yield Address(1, _axis(node, 0, table.rank))


def vectors(node: Node) -> Iterator[Address]:
    """The last axis of operand 1 has a number for each leading axis of operand 0 behind the batch axes."""
    index, batch = node.inputs[1], node.integer("batch_dims", 0)
    if index is not None and index.rank and len(set((index.sizes or ())[-1])) == 1:
        yield from (Address(1, batch + k, column=k) for k in range((index.sizes or ())[-1][0]))


def written_along(node: Node) -> Iterator[Address]:
    """Elements of operand 1 number units of operand 0 and of the result, to write elements there."""
    for one in along(node) if node.attributes.get("reduction", "none") in KEPT else ():
        yield from (one, one._replace(result=True))


def written_vectors(node: Node) -> Iterator[Address]:
    """Vectors of operand 1 number units of operand 0 and of the result, to write elements there."""
    for one in vectors(node) if node.attributes.get("reduction", "none") in KEPT else ():
        yield from (one, one._replace(result=True))


def one_hot(node: Node) -> Iterator[Address]:
    """Operand 0 numbers units of the axis that the result has in addition."""
    yield Address(0, _axis(node, -1, max(node.outputs[0].rank, 1)), result=True)


def bounds(node: Node) -> Iterator[Address]:
    """Operands 1 and 2 hold the start and the end of a run of units, axis by axis."""
    data, starts, axes = node.inputs[0], node.input(1), node.input(3)
    count = starts.sizes[0] if starts is not None and starts.sizes else ()
    if data is None or not data.rank or len(set(count)) != 1 or (axes is not None and axes.known is None):
        return
    named = range(count[0]) if axes is None or axes.known is None else axes.known[0].reshape(-1).tolist()
    for k, axis in enumerate(named):
        yield from (Address(i, int(axis) % data.rank, column=k, end=True) for i in (1, 2))
