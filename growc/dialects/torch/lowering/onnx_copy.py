"""ONNX file of a captured program, by which onnxruntime runs models that are no ONNX files."""

from __future__ import annotations

import weakref
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

import onnx_ir as ir
from torch import Tensor

from growc.dialects.onnx.capture.stored_values import read_tensor
from growc.dialects.onnx.files.load import load_model
from growc.dialects.onnx.files.save import save
from growc.dialects.onnx.operators.site import COMPLEX
from growc.dialects.torch.capture.export import ExportedModule
from growc.dialects.torch.lowering.lower import OPAQUE, ReadParameter, lower
from growc.dialects.torch.operators.arrays import to_torch
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.workshop import scratch

NAME = "lowered.onnx"


class LoweredFile:
    """A temporary ONNX file, removed with this object.

    It is written on first use, with one weight in memory at a time.
    """

    def __init__(self, captured: ExportedModule, read: ReadParameter) -> None:
        self.captured, self.read = captured, read

    @cached_property
    def path(self) -> Path:
        """The path of the file. Raises GrowError (G403) for calls without an ONNX operator."""
        model = lower(self.captured, self.read)
        require_runnable(model, "onnxruntime cannot run the model")
        folder, remove = scratch()
        weakref.finalize(self, remove)
        return save(model, folder, NAME, True, lambda name, count: None)[-1]

    @cached_property
    def _weights(self) -> Mapping[str, ir.Value]:
        return load_model(self.path).graph.initializers

    def weight(self, name: str) -> Tensor:
        """Return a weight of the file by the name of its use. Its elements stay in the file until they are
        changed.

        Raises GrowError (G403) as `path` does.
        """
        stored = self._weights[name].const_value
        assert stored is not None, name
        return to_torch(read_tensor(stored, own=True))


def require_runnable(model: ir.Model, message: str) -> None:
    """Check that every call of a model has an ONNX operator. Raises GrowError (G403) otherwise."""
    foreign = [node for node in model.graph if node.domain == OPAQUE]
    if not foreign:
        return
    values = (value for node in foreign for value in (*node.inputs, *node.outputs) if value is not None)
    complex_ = any(value.dtype in COMPLEX for value in values)
    lacking = "arithmetic on complex numbers" if complex_ else f"`{foreign[0].op_type}`"
    raise GrowError(Diagnostic("G403", message, notes=(f"{lacking} has no operator in ONNX",)))
