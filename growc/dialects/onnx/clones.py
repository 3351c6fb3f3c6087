"""A model with a structure of its own: nodes and values are copied, stored tensors are shared.

What an edit names are values and nodes of a graph that was captured from the source; `Clone` says what stands
for them in the copy, which may change while the source stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from growc.dialects.onnx.capture.fused_ops import in_order
from growc.dialects.onnx.capture.inline_control_flow import Step
from growc.dialects.onnx.capture.owners import bodies
from growc.dialects.onnx.origins import node_of, value_of
from growc.ir.graph import Node, Value, Weight


@dataclass(frozen=True)
class Clone:
    """`model`: the copy; `graphs`, `nodes`, `values`: what stands in it for those of the source."""

    model: ir.Model
    graphs: dict[ir.Graph, ir.Graph]
    nodes: dict[ir.Node, ir.Node]
    values: dict[ir.Value, ir.Value]

    @staticmethod
    def of(source: ir.Model) -> Clone:
        """A copy of a model."""
        for scope in source.graphs():
            if isinstance(scope, ir.Graph) and not in_order(scope):
                scope.sort()  # only what stands in order can be copied
        made = Clone(source.clone(), {}, {}, {})
        made.model.meta.update(source.meta)
        made.model.graph.meta.update(source.graph.meta)
        made.pair(source.graph, made.model.graph)
        return made

    def pair(self, source: ir.Graph, copy: ir.Graph) -> None:
        """Note what stands for what in a graph and the bodies in it."""
        self.graphs[source] = copy
        self.values.update(zip(source.inputs, copy.inputs, strict=True))
        self.values.update(zip(source.initializers.values(), copy.initializers.values(), strict=True))
        for old, new in zip(source, copy, strict=True):
            self.nodes[old] = new
            self.values.update(zip(old.outputs, new.outputs, strict=True))
            for outer, inner in zip(bodies(old), bodies(new), strict=True):
                self.pair(outer, inner)

    def value(self, value: ir.Value) -> ir.Value:
        """What stands for a value; itself for what is in no graph any more."""
        return self.values.get(value, value)

    def node(self, node: ir.Node) -> ir.Node:
        """What stands for a node; itself for what is in no graph any more."""
        return self.nodes.get(node, node)

    def value_of(self, known: Value | Weight) -> ir.Value:
        """What stands for a value, or a stored tensor, of a graph of the source."""
        return self.values[value_of(known)]

    def node_of(self, node: Node) -> ir.Node:
        """What stands for a node of a graph of the source."""
        return self.nodes[node_of(node)]

    def place(self, end: Step, operand: int) -> tuple[ir.Graph, int]:
        """Which result of which body of the copy an operand of a step around bodies is."""
        body, result = end.place(operand)
        return self.graphs[body], result
