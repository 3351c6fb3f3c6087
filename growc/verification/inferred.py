"""Models with the types of all their values, those of sequences included."""

from __future__ import annotations

from pathlib import Path

import onnx.defs
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from growc.dialects.onnx.files.load import load_model


def inferred(model: Path) -> ir.Model:
    """The ONNX file `model` with the types and shapes that follow. Raises GrowError (G310)."""
    find = ShapeInferencePass(check_type=False, strict_mode=False)  # of an odd operator, what can be known
    loaded = find(load_model(model)).model
    for node in loaded.graph.all_nodes():  # the pass takes sequences for their elements
        given = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
        for formal, value in zip(_formals(loaded, node), node.outputs, strict=False):
            may = [kind.startswith("seq(") for kind in formal.types]
            if value.dtype is not None and (all(may) or (any(may) and isinstance(given, ir.SequenceType))):
                value.type = ir.SequenceType(ir.TensorType(value.dtype))
                value.shape = None
    return loaded


def _formals(model: ir.Model, node: ir.Node) -> list[onnx.defs.OpSchema.FormalParameter]:
    """What ONNX says of the outputs of a node; nothing of operators that it does not have."""
    version = model.opset_imports.get(node.domain, 1)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return []
    return list(onnx.defs.get_schema(node.op_type, version, node.domain).outputs)
