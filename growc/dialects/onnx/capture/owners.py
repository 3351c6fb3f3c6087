"""Whose a node or constant is: one layer's, or nobody's in particular.

Needs: a model, the nodes of each layer. Gives: `Owners`. What several layers use, and what anything outside
of the layers uses, has no owner: copies of a layer share it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from growc.dialects.onnx.capture.stored_tensors import constant_of
from growc.dialects.onnx.operators.table import has
from growc.ir.traits import SIZES

Place = tuple[int, int]
"""(run, layer)"""
SIZE: Place = (-1, -1)
"""In the place of a layer: what asks for sizes alone works for none."""
NOBODY: frozenset[Place | None] = frozenset([None])
"""Whose that is which layers only share."""


class Owners:
    """`home`: the layer of each of the layers' own nodes. `data`: what depends on what is fed."""

    def __init__(self, graph: ir.Graph, home: Mapping[ir.Node, Place], data: Collection[ir.Value]) -> None:
        self.home, self.data = home, data
        self.several = {run for run, layer in home.values() if layer}
        self.outer = enclosing(graph)
        self.static: set[ir.Node] = set()
        for node in graph:
            if node not in home and all(v is None or self.is_static(v) for v in node.inputs):
                self.static.add(node)
        self.working: dict[ir.Value, frozenset[Place | None]] = {}
        for value in [*graph.initializers.values(), *(v for n in self.static for v in n.outputs)]:
            self.users(value)  # now: copies of bodies will read it too

    def is_static(self, value: ir.Value) -> bool:
        """Whether a value is made of stored tensors alone."""
        return constant_of(value) is not None or value.producer() in self.static

    def of(self, value: ir.Value) -> Place | None:
        """The one layer that a constant, or an input of the model, belongs to. Who asks for its size does
        not count.
        """
        users = self.users(value)
        return next(iter(users)) if len(users) == 1 else None

    def users(self, value: ir.Value) -> frozenset[Place | None]:
        """The layers that a value works for, through what is made of stored tensors alone; None for what is
        in none, and for an output of the model.
        """
        if value not in self.working:
            found = set(NOBODY) if value.is_graph_output() else set()
            for node in {self.outer.get(use.node, use.node) for use in value.uses()}:
                if node in self.static and node.outputs:
                    found |= {user for made in node.outputs for user in self.users(made) or NOBODY}
                elif (user := self.user(node)) != SIZE:
                    found.add(user)
            self.working[value] = frozenset(found)
        return self.working[value]

    def common(self, value: ir.Value) -> frozenset[Place]:
        """The layers that a stored tensor belongs to together: of several runs the one of the same number, as
        where a model runs its layers more than once. Nothing where it belongs to one, or to none.
        """
        users = self.users(value)
        places = frozenset(user for user in users if user is not None)
        alike = len(places) == len(users) > 1 and len({layer for _, layer in places}) == 1
        return places if alike else frozenset()

    def user(self, node: ir.Node) -> Place | None:
        """The layer that a node works for, which is in no body and reads more than stored tensors; SIZE where
        it asks for nothing else.
        """
        if node in self.home:
            return self.home[node]
        if has(node, SIZES):
            return SIZE
        beside = self.alone(node) if node.outputs and not any(v in self.data for v in node.outputs) else None
        return beside if beside is not None and beside[0] in self.several else None

    def alone(self, node: ir.Node) -> Place | None:
        """The one layer that all results of a node belong to."""
        owners = {self.of(v) for v in node.outputs}
        return owners.pop() if len(owners) == 1 else None


def enclosing(graph: ir.Graph) -> dict[ir.Node, ir.Node]:
    """For every node of a body the node of the outermost graph that it lies in."""
    return {inner: node for node in graph for inner in around(node)}


def around(node: ir.Node) -> Iterator[ir.Node]:
    """The nodes in the bodies of a node."""
    for body in bodies(node):
        yield from body.all_nodes()


def read_around(node: ir.Node) -> Iterator[ir.Value]:
    """What the bodies of a node read from the scopes around it, and give out of these."""
    for body in bodies(node):
        inner = list(body.all_nodes())
        own = {v for n in inner for v in n.outputs}
        for scope in (body, *(b for n in inner for b in bodies(n))):
            own.update(scope.inputs, scope.initializers.values())
        operands = [v for n in inner for v in n.inputs] + list(body.outputs)
        yield from (v for v in operands if v is not None and v not in own)


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """The bodies of a node."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
