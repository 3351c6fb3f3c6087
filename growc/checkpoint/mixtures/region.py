"""The part of a program between two values: its nodes, its stored tensors, and what it makes of numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from growc.algebra.indexmap import Array
from growc.ir.graph import Graph, Node, Value
from growc.ir.walk import walk


@dataclass(frozen=True)
class Region:
    """nodes: in order. given, gives: what it reads and makes. whole: whether nothing else comes in."""

    graph: Graph
    given: Value
    gives: Value
    nodes: tuple[Node, ...]
    whole: bool

    @staticmethod
    def of(graph: Graph, given: Value, gives: Value) -> Region:
        """What lies between two values."""

        def above(value: Value) -> list[Value]:
            node = value.producer
            return [] if value is given or value.known is not None or node is None else list(node.operands)

        found = list(walk([gives], above))
        inside = {v.producer for v in found if v is not given and v.known is None and v.producer}
        fed = [v for v in found if v.producer is None and v.weight is None and v.known is None]
        nodes = tuple(node for node in graph.nodes if node in inside)
        return Region(graph, given, gives, nodes, fed in ([], [given]))

    @property
    def uses(self) -> list[Value]:
        """The uses of stored tensors in it, each once, in order."""
        found = (v for node in self.nodes for v in node.operands if v.weight is not None)
        return list(dict.fromkeys(found))

    def computed(self, given: Array, tensors: Mapping[str, Array]) -> Array | None:
        """What it makes of numbers, with these stored tensors in place of its own; None if that cannot be
        told.
        """
        there: dict[Value, Array] = {self.given: given}
        for node in self.nodes:
            operands = [None if v is None else _numbers(v, there, tensors) for v in node.inputs]
            made = self.graph.dialect.evaluate(node, operands)
            if made is None:
                return None
            there.update(zip(node.outputs, made, strict=True))
        return there.get(self.gives)


def _numbers(value: Value, there: Mapping[Value, Array], tensors: Mapping[str, Array]) -> Array | None:
    if value in there:
        return there[value]
    if value.weight is not None:
        return tensors[value.weight.name] if value.weight.name in tensors else value.weight.read()
    return None if value.known is None else value.known[0]
