"""The part of a program between two values: its nodes, its stored tensors, and its evaluation on numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from growc.algebra.indexmap import Array
from growc.ir.graph import Graph, Node, Value
from growc.ir.walk import walk


@dataclass(frozen=True)
class Region:
    """A part of a graph.

    nodes: in order. input, output: the value it reads and the value it makes. whole: whether it reads no
    other value.
    """

    graph: Graph
    input: Value
    output: Value
    nodes: tuple[Node, ...]
    whole: bool

    @staticmethod
    def of(graph: Graph, source: Value, output: Value) -> Region:
        """The region between two values."""

        def above(value: Value) -> list[Value]:
            node = value.producer
            return [] if value is source or value.known is not None or node is None else list(node.operands)

        reached = list(walk([output], above))
        inside = {v.producer for v in reached if v is not source and v.known is None and v.producer}
        fed = [v for v in reached if v.producer is None and v.weight is None and v.known is None]
        nodes = tuple(node for node in graph.nodes if node in inside)
        return Region(graph, source, output, nodes, fed in ([], [source]))

    @property
    def uses(self) -> list[Value]:
        """The uses of stored tensors in the region, each once, in order."""
        weights = (v for node in self.nodes for v in node.operands if v.weight is not None)
        return list(dict.fromkeys(weights))

    def computed(self, numbers: Array, tensors: Mapping[str, Array]) -> Array | None:
        """The value that the region makes of numbers, with these tensors in place of its stored ones.

        None if it cannot be evaluated.
        """
        values: dict[Value, Array] = {self.input: numbers}
        for node in self.nodes:
            operands = [None if v is None else _numbers(v, values, tensors) for v in node.inputs]
            results = self.graph.dialect.evaluate(node, operands)
            if results is None:
                return None
            values.update(zip(node.outputs, results, strict=True))
        return values.get(self.output)


def _numbers(value: Value, known: Mapping[Value, Array], tensors: Mapping[str, Array]) -> Array | None:
    if value in known:
        return known[value]
    if value.weight is not None:
        return tensors[value.weight.name] if value.weight.name in tensors else value.weight.read()
    return None if value.known is None else value.known[0]
