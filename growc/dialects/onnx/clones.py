"""Copies of a model with their own structure: nodes and values are copied, stored tensors are shared.

An edit names values and nodes of a graph that was captured from the source. `Clone` maps them to those of the
copy, which may change while the source stays as it is.
"""

from __future__ import annotations

from dataclasses import dataclass

import onnx_ir as ir

from growc.dialects.onnx.capture.fused_ops import in_order
from growc.dialects.onnx.capture.inline_control_flow import InlinedNode
from growc.dialects.onnx.capture.owners import bodies
from growc.dialects.onnx.origins import node_of, value_of
from growc.ir.graph import Node, Origin, Value, Weight


@dataclass(frozen=True)
class Clone:
    """A copy of a model, with its counterparts of the source's graphs, nodes and values.

    `model`: the copy. `graphs`, `nodes`, `values`: the counterpart in the copy of each one of the source.
    """

    model: ir.Model
    graphs: dict[ir.Graph, ir.Graph]
    nodes: dict[ir.Node, ir.Node]
    values: dict[ir.Value, ir.Value]

    @staticmethod
    def of(source: ir.Model) -> Clone:
        """Return a copy of a model."""
        for scope in source.graphs():
            if isinstance(scope, ir.Graph) and not in_order(scope):
                scope.sort()  # onnx-ir copies only graphs in topological order
        clone = Clone(source.clone(), {}, {}, {})
        clone.model.meta.update(source.meta)
        clone.model.graph.meta.update(source.graph.meta)
        clone.pair(source.graph, clone.model.graph)
        return clone

    def pair(self, source: ir.Graph, copy: ir.Graph) -> None:
        """Record the counterparts of a graph and of the bodies in it."""
        self.graphs[source] = copy
        self.values.update(zip(source.inputs, copy.inputs, strict=True))
        self.values.update(zip(source.initializers.values(), copy.initializers.values(), strict=True))
        for old, new in zip(source, copy, strict=True):
            self.nodes[old] = new
            self.values.update(zip(old.outputs, new.outputs, strict=True))
            for outer, inner in zip(bodies(old), bodies(new), strict=True):
                self.pair(outer, inner)

    def value(self, value: ir.Value) -> ir.Value:
        """Return the counterpart of a value; the value itself if it is in no graph any more."""
        return self.values.get(value, value)

    def counterpart(self, origin: Origin | None) -> Origin | None:
        """Return the counterpart of the origin of a neutral value."""
        return self.value(origin) if isinstance(origin, ir.Value) else origin

    def node(self, node: ir.Node) -> ir.Node:
        """Return the counterpart of a node; the node itself if it is in no graph any more."""
        return self.nodes.get(node, node)

    def value_of(self, known: Value | Weight) -> ir.Value:
        """Return the counterpart of a neutral value or weight of the source's graph."""
        return self.values[value_of(known)]

    def node_of(self, node: Node) -> ir.Node:
        """Return the counterpart of a neutral node of the source's graph."""
        return self.nodes[node_of(node)]

    def place(self, end: InlinedNode, operand: int) -> tuple[ir.Graph, int]:
        """Return the body in the copy, and the index of its result, that an operand of a step is."""
        body, result = end.place(operand)
        return self.graphs[body], result
