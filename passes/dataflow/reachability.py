"""Three kinds of value: static, shape, and data.

Static: no input of the model reaches it (weights, and values made of weights). Shape: inputs reach it only
through their shapes (position numbers, causal masks, rotary tables, targets of Reshape). Data: the rest, if
its elements, not only its shape, reach an output; and tensors that a model learns in place of an input.

Needs: a simulated graph. Gives: the data values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from growc.ir.graph import Graph, Node, Value, used_by
from growc.ir.traits import SIZES
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes


def data_values(graph: Graph, learned: Iterable[Value] = ()) -> frozenset[Value]:
    """The data values of a graph. `learned`: values that a model has learned in place of inputs."""
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
    """The length in nodes of the longest path of data to each value."""
    depth_of_value: dict[Value, int] = {}
    for node in graph.nodes:
        depth_of_value.update((v, 0) for v in node.operands if v in data and v not in depth_of_value)
        depth = max((depth_of_value[v] for v in node.operands if v in depth_of_value), default=-1) + 1
        depth_of_value.update((v, depth) for v in node.outputs if v in data)
    return depth_of_value


def users(value: Value, data: frozenset[Value]) -> list[Node]:
    """The nodes that use the elements of a value and have a result in `data`."""
    nodes = dict.fromkeys(node for node, _ in value.users)
    return [n for n in nodes if not n.has(SIZES) and any(o in data for o in n.outputs)]


def made_from(values: Iterable[Value]) -> set[Value]:
    """These values, and all values that their elements reach."""

    def behind(value: Value) -> Iterator[Value]:
        yield from (out for node in used_by([value]) if not node.has(SIZES) for out in node.outputs)

    return set(walk(values, behind))


def learned_activations(axes: Axes) -> set[Value]:
    """The values that a model learns in place of an input, and multiplies with matrices.

    They are stored, or made of a size alone. Queries of a decoder, latents and embeddings of distances start
    streams as inputs do.
    """
    data, static = data_values(axes.graph), axes.graph.static
    activations: list[Value] = []
    for instance in axes.instances:
        if instance.line.treatment == "contract":
            pair = [v for v in instance.node.inputs[:2] if v is not None and is_table(v)]
            weights = [v for v in reversed(pair) if v in static]
            if len(pair) == 2 and weights and not any(v in data for v in pair):
                activations += [v for v in pair if v is not weights[0]]

    def made_of(value: Value) -> list[Value]:
        return [] if value.producer is None else [v for v in value.producer.operands if is_table(v)]

    return {value for value in walk(activations, made_of) if not made_of(value)}


def is_table(value: Value) -> bool:
    """Whether a value holds real numbers along more than one axis."""
    return value.floating and sum(size[0] > 1 for size in value.sizes or ()) > 1
