"""onnx's checker, extended by the norms that onnxruntime keeps in the default domain."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx.defs import OpSchema, SchemaError, deregister_schema, get_schema, register_schema

from growc.dialects.onnx.files.load import outline
from growc.errors.diagnostic import Attempt
from growc.errors.regular_files import first_line

_REAL = ["tensor(float16)", "tensor(bfloat16)", "tensor(float)", "tensor(double)"]
_OPERANDS = {"SimplifiedLayerNormalization": ("X", "scale"), "LayerNormalization": ("X", "scale", "B")}
"""The norms' operands.

onnxruntime writes both norms at every opset; onnx has the second one since opset 17.
"""


def check_model(path: Path) -> None:
    """Check a file without reading its weights. Raises onnx.checker.ValidationError."""
    if fault := fault_of(path):
        raise onnx.checker.ValidationError(fault)


def fault_of(path: Path) -> str:
    """Return the checker's complaint about a model, whatever its large weights hold; empty if it is valid."""
    proto = outline(path)
    for tensor in proto.graph.initializer:
        if tensor.data_location == onnx.TensorProto.EXTERNAL:
            tensor.CopyFrom(
                onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=[0], raw_data=b"")
            )
    with Attempt() as attempt, _norms_of_onnxruntime():  # it raises foreign errors on invalid UTF-8
        onnx.checker.check_model(proto)
    return "" if attempt.error is None else first_line(attempt.error)


@contextlib.contextmanager
def _norms_of_onnxruntime() -> Iterator[None]:
    """Let onnx know the norms since opset 1 inside the context."""
    registered = []
    for name, operands in _OPERANDS.items():
        try:
            get_schema(name, 1, "")
        except SchemaError:
            register_schema(_schema(name, operands))
            registered.append(name)
    try:
        yield
    finally:
        for name in registered:
            deregister_schema(name, 1, "")


def _schema(name: str, operands: tuple[str, ...]) -> OpSchema:
    optional = OpSchema.FormalParameterOption.Optional

    def parameter(label: str, kind: str, required: bool) -> OpSchema.FormalParameter:
        option = OpSchema.FormalParameterOption.Single if required else optional
        return OpSchema.FormalParameter(label, kind, "", param_option=option)

    kinds = {"axis": OpSchema.AttrType.INT, "epsilon": OpSchema.AttrType.FLOAT}
    kinds["stash_type"] = OpSchema.AttrType.INT
    return OpSchema(
        name,
        "",
        1,
        inputs=[parameter(o, "T", o != "B") for o in operands],
        outputs=[parameter(o, k, o == "Y") for o, k in (("Y", "T"), ("Mean", "U"), ("InvStdDev", "U"))],
        type_constraints=[("T", _REAL, ""), ("U", _REAL, "")],
        attributes=[OpSchema.Attribute(key, kind, "", required=False) for key, kind in kinds.items()],
    )
