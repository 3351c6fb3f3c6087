"""The values, nodes and stored tensors in the file behind those of the neutral graph."""

from __future__ import annotations

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import InlinedNode
from growc.dialects.onnx.capture.quantised_weights import QuantisedWeight
from growc.ir.graph import Node, Value, Weight


def value_of(known: Value | Weight) -> ir.Value:
    """Return the onnx-ir value behind a neutral value or weight."""
    assert isinstance(known.origin, ir.Value), known
    return known.origin


def maker_of(value: ir.Value) -> tuple[ir.Node, ir.Graph | ir.Function]:
    """Return the node that computes a value, and the graph around it."""
    node = value.producer()
    assert node is not None, value
    assert node.graph is not None, value
    return node, node.graph


def node_of(node: Node) -> ir.Node:
    """Return the onnx-ir node behind a neutral node; for a step around a body, the node that has the body."""
    own = node.origin.node if isinstance(node.origin, InlinedNode) else node.origin
    assert isinstance(own, ir.Node), node
    return own


def stored_of(weight: Weight) -> QuantisedWeight | None:
    """Return the stored form of a quantised weight; None if the weight is not quantised."""
    assert weight.stored is None or isinstance(weight.stored, QuantisedWeight), weight
    return weight.stored
