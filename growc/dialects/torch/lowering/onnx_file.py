"""A captured program as an ONNX file: what onnxruntime runs where a model is none itself."""

from __future__ import annotations

import weakref
from functools import cached_property
from pathlib import Path

import onnx_ir as ir

from growc.dialects.onnx.files.save import save
from growc.dialects.onnx.operators.site import COMPLEX
from growc.dialects.torch.capture.export import Captured
from growc.dialects.torch.lowering.lower import OPAQUE, Read, lower
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.workshop import scratch

NAME = "lowered.onnx"


class LoweredFile:
    """The file is written when it is asked for, one weight in memory at a time, and gone with this object."""

    def __init__(self, captured: Captured, read: Read) -> None:
        self.captured, self.read = captured, read

    @cached_property
    def path(self) -> Path:
        """Where it lies. Raises GrowError (G403) for calls that ONNX has no operator for."""
        model = lower(self.captured, self.read)
        require_runnable(model, "onnxruntime cannot run the model")
        folder, remove = scratch()
        weakref.finalize(self, remove)
        return save(model, folder, NAME, True, lambda name, count: None)[-1]


def require_runnable(model: ir.Model, message: str) -> None:
    """Raises GrowError (G403) where there are calls in a model that ONNX has no operator for."""
    foreign = [node for node in model.graph if node.domain == OPAQUE]
    if not foreign:
        return
    values = (value for node in foreign for value in (*node.inputs, *node.outputs) if value is not None)
    complex_ = any(value.dtype in COMPLEX for value in values)
    lacking = "arithmetic on complex numbers" if complex_ else f"`{foreign[0].op_type}`"
    raise GrowError(Diagnostic("G403", message, notes=(f"{lacking} has no operator in ONNX",)))
