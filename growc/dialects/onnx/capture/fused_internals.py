"""Inner values of fused operators, recomputed by plain nodes beside them.

Needs: an ONNX file; its weights are not read. Gives: the plain nodes that compute each inner value of a fused
node from the node's operands, if onnxruntime has all of them. The key is the name that the value has when the
node is taken apart (growc.dialects.onnx.capture.fused_ops).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx
import onnx_ir as ir

from growc.dialects.onnx.capture.fused_decompositions import LOWERINGS
from growc.dialects.onnx.capture.fused_ops import Lowering, makers


@dataclass(frozen=True)
class Inner:
    """The nodes that compute an inner value, in order, and the index of the fused node in the file."""

    nodes: tuple[onnx.NodeProto, ...]
    place: int


def inner_values(model: onnx.ModelProto) -> dict[str, Inner]:
    """Return every inner value of the fused nodes in a file's main graph."""
    inner: dict[str, Inner] = {}
    if any((n.domain, n.op_type) in LOWERINGS for n in model.graph.node):
        for place, node in enumerate(ir.serde.deserialize_model(model).graph):
            inner |= {name: Inner(nodes, place) for name, nodes in _parts(node)}
    return inner


def _parts(node: ir.Node) -> Iterator[tuple[str, tuple[onnx.NodeProto, ...]]]:
    rule = LOWERINGS.get((node.domain, node.op_type))
    if rule is None:
        return
    lowering = Lowering.of(node)
    if rule(lowering) is None:
        return
    for part in lowering.nodes:
        part.name = ""  # all parts have the fused node's name
    for part in lowering.nodes:
        above = makers(part.outputs, lowering.nodes)
        cone = [n for n in lowering.nodes if n in above]
        if all(n.domain != "growc" for n in cone):
            nodes = tuple(ir.serde.serialize_node(n) for n in cone)
            yield from ((value.name or "", nodes) for value in part.outputs)
