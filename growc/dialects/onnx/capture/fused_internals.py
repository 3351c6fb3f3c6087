"""What fused operators compute and do not give out, made once more beside them.

Needs: an ONNX file, its weights left where they are. Gives: for each inner value of a fused node (by the name
that it has when the node is taken apart, growc.dialects.onnx.capture.fused_ops) the plain nodes that make it
from what the node is given, if onnxruntime has all of them.
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
    """The nodes that make a value, in order, and the place of the fused node in the file."""

    nodes: tuple[onnx.NodeProto, ...]
    place: int


def inner_values(model: onnx.ModelProto) -> dict[str, Inner]:
    """Every inner value of the fused nodes of a file's own graph."""
    found: dict[str, Inner] = {}
    if any((n.domain, n.op_type) in LOWERINGS for n in model.graph.node):
        for place, node in enumerate(ir.serde.deserialize_model(model).graph):
            found |= {name: Inner(nodes, place) for name, nodes in _parts(node)}
    return found


def _parts(node: ir.Node) -> Iterator[tuple[str, tuple[onnx.NodeProto, ...]]]:
    rule = LOWERINGS.get((node.domain, node.op_type))
    if rule is None:
        return
    lowering = Lowering.of(node)
    if rule(lowering) is None:
        return
    for part in lowering.made:
        part.name = ""  # all of them bear the fused node's
    for part in lowering.made:
        above = makers(part.outputs, lowering.made)
        cone = [n for n in lowering.made if n in above]
        if all(n.domain != "growc" for n in cone):
            nodes = tuple(ir.serde.serialize_node(n) for n in cone)
            yield from ((value.name or "", nodes) for value in part.outputs)
