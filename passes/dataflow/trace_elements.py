"""The effect of operators that only move elements, computed on element numbers."""

from __future__ import annotations

from collections.abc import Sequence

from growc.algebra.indexmap import Ints
from growc.ir.graph import Graph, Node
from growc.ir.traits import SAME, TAKE, TURN, VIEW


def moved(graph: Graph, node: Node, numbers: Ints, point: int) -> Sequence[Ints]:
    """The results of a node on `numbers` as its first operand, at a sample point.

    Empty where the node does more than move elements.
    """
    sizes = node.outputs[0].sizes
    if node.has(VIEW, SAME):
        return [] if sizes is None else [numbers.reshape([s[point] for s in sizes])]
    other_operands = node.inputs[1:]
    if not node.has(TURN, TAKE) or any(v is not None and v.known is None for v in other_operands):
        return []
    known = [None if v is None or v.known is None else v.known[point] for v in other_operands]
    return graph.dialect.evaluate(node, [numbers, *known]) or []
