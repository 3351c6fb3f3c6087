"""Operators that only move elements, done to numbers: which element stands where."""

from __future__ import annotations

from collections.abc import Sequence

from growc.algebra.indexmap import Ints
from growc.ir.graph import Graph, Node
from growc.ir.traits import SAME, TAKE, TURN, VIEW


def moved(graph: Graph, node: Node, numbers: Ints, point: int) -> Sequence[Ints]:
    """The results of a node whose first operand is `numbers`, at a sample point; none where it does more."""
    sizes = node.outputs[0].sizes
    if node.has(VIEW, SAME):
        return [] if sizes is None else [numbers.reshape([s[point] for s in sizes])]
    beside = node.inputs[1:]
    if not node.has(TURN, TAKE) or any(v is not None and v.known is None for v in beside):
        return []
    known = [None if v is None or v.known is None else v.known[point] for v in beside]
    return graph.dialect.evaluate(node, [numbers, *known]) or []
