"""Three kinds of value: static, shape, and data.

Static: no input of the model reaches it (weights, and what is made of them). Shape: inputs reach it only
through their shapes (position numbers, causal masks, rotary tables, targets of Reshape). Data: the rest,
where its values, not only its shape, reach an output; and what a model learns in place of an input.

Needs: a simulated graph. Gives: the data values.
"""

from __future__ import annotations

from collections.abc import Iterable

from growc.ir.graph import Graph, Node, Value
from growc.ir.traits import SIZES


def data_values(graph: Graph, learned: Iterable[Value] = ()) -> frozenset[Value]:
    """The data values of a graph; `learned`: those that a model has learned in place of inputs."""
    reached = {*graph.inputs, *learned}
    for node in graph.nodes:
        if not node.has(SIZES) and any(v in reached for v in node.operands):
            reached.update(v for v in node.outputs if v.known is None)
    used = {v for v in graph.outputs if v in reached}
    for node in reversed(graph.nodes):
        if not node.has(SIZES) and any(v in used for v in node.outputs):
            used.update(v for v in node.operands if v in reached)
    return frozenset(used)


def depths(graph: Graph, data: frozenset[Value]) -> dict[Value, int]:
    """The length of the longest way of data to each value."""
    found: dict[Value, int] = {}
    for node in graph.nodes:
        found.update((v, 0) for v in node.operands if v in data and v not in found)
        depth = max((found[v] for v in node.operands if v in found), default=-1) + 1
        found.update((v, depth) for v in node.outputs if v in data)
    return found


def users(value: Value, data: frozenset[Value]) -> list[Node]:
    """The nodes that use the elements of a value for something that is used."""
    nodes = dict.fromkeys(node for node, _ in value.users)
    return [n for n in nodes if not n.has(SIZES) and any(o in data for o in n.outputs)]
