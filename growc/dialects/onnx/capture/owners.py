"""Owners: the one layer that a node or constant belongs to, if there is one.

Needs: a model, the nodes of each layer. Gives: `Owners`. Values used by several layers, or outside of all
layers, have no owner: copies of a layer share them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import onnx_ir as ir

from growc.dialects.onnx.capture.stored_values import constant_of
from growc.dialects.onnx.operators.table import has
from growc.ir.traits import SIZES
from growc.passes.layers.layer_runs import LayerPlace

SIZE: LayerPlace = (-1, -1)
"""Takes the place of a layer for nodes that read only sizes: they work for no layer."""
NOBODY: frozenset[LayerPlace | None] = frozenset([None])
"""The users of a value that is used outside of all layers, or by no one layer."""


class Owners:
    """The layers that values and nodes belong to.

    `home`: the layer of each of the layers' own nodes. `data`: values that depend on the model's inputs.
    """

    def __init__(
        self, graph: ir.Graph, home: Mapping[ir.Node, LayerPlace], data: Collection[ir.Value]
    ) -> None:
        self.home, self.data = home, data
        self.several = {run for run, layer in home.values() if layer}
        self.outer = enclosing(graph)
        self.static: set[ir.Node] = set()
        for node in graph:
            if node not in home and all(v is None or self.is_static(v) for v in node.inputs):
                self.static.add(node)
        self.working: dict[ir.Value, frozenset[LayerPlace | None]] = {}
        for value in [*graph.initializers.values(), *(v for n in self.static for v in n.outputs)]:
            self.users(value)  # cached now, because copies of bodies will read the value too

    def is_static(self, value: ir.Value) -> bool:
        """Whether a value is computed from stored tensors alone."""
        return constant_of(value) is not None or value.producer() in self.static

    def of(self, value: ir.Value) -> LayerPlace | None:
        """Return the one layer that a constant, or an input of the model, belongs to.

        Users that read only its size do not count.
        """
        users = self.users(value)
        return next(iter(users)) if len(users) == 1 else None

    def users(self, value: ir.Value) -> frozenset[LayerPlace | None]:
        """Return the layers that use a value, directly or through values computed from stored tensors alone.

        None stands for a user outside of all layers, and for an output of the model.
        """
        if value not in self.working:
            layers = set(NOBODY) if value.is_graph_output() else set()
            for node in {self.outer.get(use.node, use.node) for use in value.uses()}:
                if node in self.static and node.outputs:
                    layers |= {user for output in node.outputs for user in self.users(output) or NOBODY}
                elif (user := self.user(node)) != SIZE:
                    layers.add(user)
            self.working[value] = frozenset(layers)
        return self.working[value]

    def common(self, value: ir.Value) -> frozenset[LayerPlace]:
        """Return the layers that share a stored tensor as one: those of the same number in several runs.

        This is the case if a model runs its layers more than once. The result is empty if the tensor belongs
        to one layer, or to none.
        """
        users = self.users(value)
        places = frozenset(user for user in users if user is not None)
        alike = len(places) == len(users) > 1 and len({layer for _, layer in places}) == 1
        return places if alike else frozenset()

    def user(self, node: ir.Node) -> LayerPlace | None:
        """Return the layer that a node works for; SIZE if the node reads only sizes.

        The node lies in no body and reads more than stored tensors.
        """
        if node in self.home:
            return self.home[node]
        if has(node, SIZES):
            return SIZE
        beside = self.alone(node) if node.outputs and not any(v in self.data for v in node.outputs) else None
        return beside if beside is not None and beside[0] in self.several else None

    def alone(self, node: ir.Node) -> LayerPlace | None:
        """Return the one layer that all results of a node belong to."""
        owners = {self.of(v) for v in node.outputs}
        return owners.pop() if len(owners) == 1 else None


def enclosing(graph: ir.Graph) -> dict[ir.Node, ir.Node]:
    """Return, for every node in a body, the node of the outermost graph that contains it."""
    return {inner: node for node in graph for inner in around(node)}


def around(node: ir.Node) -> Iterator[ir.Node]:
    """Yield the nodes in the bodies of a node."""
    for body in bodies(node):
        yield from body.all_nodes()


def read_around(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values of outer scopes that the bodies of a node read or give out."""
    for body in bodies(node):
        inner = list(body.all_nodes())
        own = {v for n in inner for v in n.outputs}
        for scope in (body, *(b for n in inner for b in bodies(n))):
            own.update(scope.inputs, scope.initializers.values())
        operands = [v for n in inner for v in n.inputs] + list(body.outputs)
        yield from (v for v in operands if v is not None and v not in own)


def bodies(node: ir.Node) -> Iterator[ir.Graph]:
    """Yield the bodies of a node."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH:
            yield attribute.as_graph()
        elif attribute.type == ir.AttributeType.GRAPHS:
            yield from attribute.as_graphs()
