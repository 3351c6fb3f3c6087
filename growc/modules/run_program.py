"""Programs of torch.export that are run: they take tensors by name, and give theirs by name."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import onnx_ir as ir
from torch import Tensor, nn
from torch.export.graph_signature import InputKind

from growc.dialects.onnx.files.signature import Input, signature_of
from growc.dialects.torch.capture.export import Captured, is_tensor, run_flat
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
    """A program with its weights, which `module` has by their names."""

    def __init__(self, captured: Captured) -> None:
        self.captured = captured
        self.module = _Weights(captured)

    @staticmethod
    def at(path: Path) -> Program:
        """The program of a `.pt2` file. Raises GrowError (G310) where it cannot be read."""
        return Program(load(path))

    @cached_property
    def model(self) -> ir.Model:
        """It in the vocabulary of the passes."""
        return lower(self.captured, self.captured.program.state_dict.__getitem__)

    @cached_property
    def signature(self) -> tuple[Input, ...]:
        """What its inputs are for. Raises GrowError (G403)."""
        return signature_of(self.model.graph)

    @cached_property
    def gives(self) -> tuple[str, ...]:
        """The names of its outputs."""
        return tuple(value.name or "" for value in self.model.graph.outputs)

    def run(self, feeds: Feeds) -> Feeds:
        """All outputs by name. Raises GrowError (G403) for what it does not take."""
        try:
            return named(outputs(self.module, arguments(feeds)), self.gives)
        except (RuntimeError, ValueError, IndexError, KeyError) as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            raise GrowError(Diagnostic("G403", "torch cannot run the program", notes=(reason,))) from error


class _Weights(nn.Module):
    """The tensors of a program, of which a copy has others. Its forward takes the program's by name."""

    def __init__(self, captured: Captured) -> None:
        super().__init__()
        self._captured = captured
        self.training = False
        tensors, stored = Tensors(), captured.program.state_dict
        for spec in captured.program.graph_signature.input_specs:
            name = str(spec.target)
            if spec.kind is InputKind.PARAMETER:
                first = captured.names[name]
                own = tensors.parameters.get(first)
                tensors.parameters[name] = _parameter(stored[first]) if own is None else own
            elif spec.kind is InputKind.BUFFER and name in stored:
                tensors.buffers[name] = stored[captured.names[name]]
        tensors.place(self)

    def forward(self, **given: Tensor) -> Sequence[object]:
        """The tensors that the program gives out, in order."""
        captured = self._captured
        held: dict[str, Tensor] = dict(self.named_parameters(remove_duplicate=False))
        held |= dict(self.named_buffers(remove_duplicate=False))
        values, specs = placeholder_values(captured.program), captured.program.graph_signature.input_specs
        names = [spec.arg.name for spec in specs if spec.kind is InputKind.USER_INPUT]
        leaves = (given[n].to(v.dtype) if isinstance(v := values[n], Tensor) else v for n in names)
        found = run_flat(captured, held.__getitem__, leaves)
        return [value for value, one in zip(found, captured.returned, strict=True) if is_tensor(one)]

    def __deepcopy__(self, memo: dict[int, Any]) -> _Weights:
        """Another one with the same tensors; it is changed by `_apply` alone."""
        return _Weights(self._captured)


def arguments(feeds: Feeds) -> Inputs:
    """Arrays by name, as arguments of a program."""
    return (), {name: to_torch(array) for name, array in feeds.items()}


def _parameter(tensor: Tensor) -> nn.Parameter:
    return nn.Parameter(tensor.detach(), requires_grad=False)
