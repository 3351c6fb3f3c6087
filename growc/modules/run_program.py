"""Runs of torch.export programs on inputs by name, with outputs by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
from torch import Tensor, nn
from torch.export.graph_signature import InputKind

from growc.dialects.onnx.files.signature import Input, signature_of
from growc.dialects.torch.capture.export import ExportedModule, is_tensor, run_flat
from growc.dialects.torch.capture.tracing import placeholder_values
from growc.dialects.torch.emit.grown_module import Tensors
from growc.dialects.torch.lowering.lower import lower
from growc.dialects.torch.operators.arrays import to_torch
from growc.dialects.torch.programs.load import load
from growc.dialects.torch.run.run_module import Inputs, outputs
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.modules.compare import named
from growc.verification.ort_session import Feeds


class Program:
    """A program with its weights. `module` holds these by name."""

    def __init__(self, captured: ExportedModule) -> None:
        self.captured = captured
        self.module = _Weights(captured)

    @staticmethod
    def at(path: Path) -> Program:
        """Return the program of a `.pt2` file. Raises GrowError (G310) if it cannot be read."""
        return Program(load(path))

    @cached_property
    def model(self) -> ir.Model:
        """The program in the vocabulary of the passes."""
        return lower(self.captured, self.captured.program.state_dict.__getitem__)

    @cached_property
    def signature(self) -> tuple[Input, ...]:
        """The inputs of the program, with their purpose. Raises GrowError (G403)."""
        return signature_of(self.model.graph)

    @cached_property
    def output_names(self) -> tuple[str, ...]:
        """The names of the program's outputs."""
        return tuple(value.name or "" for value in self.model.graph.outputs)

    def run(self, feeds: Feeds) -> Feeds:
        """Return all outputs by name. Raises GrowError (G403) for inputs that the program does not accept."""
        try:
            return named(outputs(self.module, arguments(feeds)), self.output_names)
        except (RuntimeError, ValueError, IndexError, KeyError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise GrowError(Diagnostic("G403", "torch cannot run the program", notes=(reason,))) from error


class _Weights(nn.Module):
    """A module with the tensors of a program. Its forward takes the program's inputs by name.

    A copy can have other tensors.
    """

    def __init__(self, captured: ExportedModule) -> None:
        super().__init__()
        self._captured = captured
        self.training = False
        tensors, stored = Tensors(), captured.program.state_dict
        for spec in captured.program.graph_signature.input_specs:
            name = str(spec.target)
            if spec.kind is InputKind.PARAMETER:
                first = captured.names[name]
                existing = tensors.parameters.get(first)
                tensors.parameters[name] = _parameter(stored[first]) if existing is None else existing
            elif spec.kind is InputKind.BUFFER and name in stored:
                tensors.buffers[name] = stored[captured.names[name]]
        tensors.place(self)

    def forward(self, **inputs: Tensor) -> Sequence[object]:
        """Return the output tensors of the program, in order."""
        captured = self._captured
        tensors: dict[str, Tensor] = dict(self.named_parameters(remove_duplicate=False))
        tensors |= dict(self.named_buffers(remove_duplicate=False))
        values, specs = placeholder_values(captured.program), captured.program.graph_signature.input_specs
        names = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
        leaves = (inputs[n].to(v.dtype) if isinstance(v := values[n], Tensor) else v for n in names)
        results = run_flat(captured, tensors.__getitem__, leaves)
        return [
            value for value, argument in zip(results, captured.returned, strict=True) if is_tensor(argument)
        ]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Weights:
        """Return another module with the same tensors. Only `_apply` changes it."""
        return _Weights(self._captured)


def arguments(feeds: Feeds) -> Inputs:
    """Return arrays by name as arguments of a program."""
    return (), {name: to_torch(array) for name, array in feeds.items()}


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=False)
