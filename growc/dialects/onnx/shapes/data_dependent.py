"""Axes whose length depends on data: the number of elements that are not zero, differ, or are kept.

Needs: a graph. Gives: for the first result of every node with such an axis, its length. The length is a
symbol, with sizes at the sample points like those of inputs, or the number that a Split tells. Nodes that
count in one tensor have one symbol.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from growc.algebra.space import Size
from growc.ir.graph import Graph, Node, Value, backward
from growc.ir.traits import SAME
from growc.ir.walk import walk

COUNTING = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})
"""Operators whose results have one length that depends on data, along all axes of unknown length.

This is a list rather than a trait, because only Compress has a row.
"""

FIRST = 101
"""The least length at the sample points. No input has an axis as long as that there."""


def counted(graph: Graph) -> dict[Value, tuple[int | str]]:
    """Return the length of each counting node, by its first result."""
    lengths: dict[Value, tuple[int | str]] = {}
    symbols: dict[object, str] = {}
    for node in graph.nodes:
        if node.op in COUNTING:
            name = symbols.setdefault(_counts_in(node), f"count {len(symbols)}")
            lengths[node.outputs[0]] = (_said(node) or name,)
    return lengths


def sizes_of(names: list[str], points: int) -> dict[str, Size]:
    """Return sizes for symbols of lengths, all different."""
    return {n: tuple(FIRST + 2 * (points * k + p) for p in range(points)) for k, n in enumerate(names)}


def _counts_in(node: Node) -> object:
    """Return the object that decides the length: for NonZero the tensor before casts, else the node."""
    value = node.input(0)
    return backward(value, _same) if node.op == "NonZero" and value is not None else node


def _same(node: Node) -> bool:
    return node.has(SAME)


def _said(node: Node) -> int | None:
    """Return the length of a NonZero that is split into parts of known sizes, as by an unrolled loop."""

    def behind(place: tuple[Value, int]) -> Iterator[tuple[Value, int]]:
        value, axis = place
        for user, operand in value.users:
            if operand == 0 and user.has(SAME):
                yield user.outputs[0], axis
            elif user.op == "Transpose":
                yield user.outputs[0], (user.integers("perm") or [1, 0]).index(axis)

    for value, axis in walk([(node.outputs[0], 1)] if node.op == "NonZero" else (), behind):
        for user, operand in value.users:
            if user.op == "Split" and operand == 0 and user.integer("axis") % 2 == axis:
                parts = _parts(user)
                if parts is not None:
                    return parts
    return None


def _parts(split: Node) -> int | None:
    sizes, lengths = split.input(1), split.integers("split")
    if sizes is not None and sizes.weight is not None:
        lengths = np.asarray(sizes.weight.read()).tolist()
    return None if lengths is None else sum(lengths)
