"""Check of a module against its plan, which onnxruntime runs.

The two computations have little in common but the plan. A result that is not exact differs from its source,
so a comparison with the source shows nothing.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx_ir as ir
import torch
from torch import Tensor, nn

from growc.dialects.onnx.capture.capture import ZERO
from growc.dialects.onnx.files.save import EXTERNAL_ABOVE, save
from growc.dialects.torch.emit.parameters import SourceTensors
from growc.dialects.torch.lowering.onnx_copy import require_runnable
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.torch.run.cases import Case, PortMapping
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.modules.compare import CaseOutputs, WithWiderRun, compared
from growc.system.workshop import scratch_folder
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Session
from growc.verification.verify import Verification

WAY = "The plan, in onnxruntime"


def require_planned(
    model: ir.Model, result: nn.Module, cases: Sequence[Case], descent: PortMapping
) -> Verification:
    """Measure the difference of a module from its plan.

    Raises GrowError: G406 if they differ by more than rounding, G403 if onnxruntime cannot run the plan.
    """
    with _written(model) as path, runnable(path) as ready, Session(ready) as session:
        twice = WithWiderRun(result, descent.returns)

        def run(case: Case) -> CaseOutputs:
            expected, wider = twice(case.result)
            return CaseOutputs(expected, session.run(descent.feeds(case)), [wider])

        measured = compared(cases, run)
    if measured.refutes_exact():
        message = f"the module and its plan differ by {measured.relative:.1e}"
        notes = (f"the module's own rounding is {measured.rounding:.1e}", *measured.notes)
        raise GrowError(
            Diagnostic("G406", message, notes=notes, help="this is a bug in growc: please report it")
        )
    return measured


def inconclusive_reason(path: Path, module: nn.Module, cases: Sequence[Case], descent: PortMapping) -> str:
    """Return why a comparison with the plan shows nothing, or an empty string.

    The reason is that onnxruntime and torch differ on the source too, for example because they choose
    differently among equal scores.
    """
    with runnable(path) as ready, Session(ready) as session:
        twice = WithWiderRun(module, descent.output_names)

        def run(case: Case) -> CaseOutputs:
            expected, wider = twice(case.source)
            return CaseOutputs(expected, session.run(descent.feeds_of_source(case)), [wider])

        measured = compared(cases, run)
    if not measured.refutes_exact():
        return ""
    return f"onnxruntime and torch differ on the source, too (by {measured.relative:.1e})"


@contextlib.contextmanager
def _written(model: ir.Model) -> Iterator[Path]:
    """Write a model to a temporary file, which exists inside the context."""
    require_runnable(model, "onnxruntime cannot run the plan")
    stored = (value.const_value for value in model.graph.initializers.values())
    external = sum(tensor.nbytes for tensor in stored if tensor is not None) > EXTERNAL_ABOVE
    with scratch_folder() as folder:
        yield save(model, folder, "planned.onnx", external, lambda name, count: None)[-1]


@contextlib.contextmanager
def nonzero_branches(model: ir.Model, module: nn.Module, source: SourceTensors) -> Iterator[None]:
    """Give random values to zero tensors of a model and its module, inside the context.

    A zero tensor hides everything in front of it, so that a comparison would not see it.
    """
    parameters: Mapping[str, Tensor] = dict(module.named_parameters(remove_duplicate=False))
    random = torch.Generator().manual_seed(0)
    originals: list[tuple[ir.Value, Any, Tensor]] = []
    try:
        for value in model.graph.initializers.values():
            if value.meta.get(ZERO) and (parameter := parameters.get(source.name(value))) is not None:
                drawn = (
                    torch.randn(parameter.shape, generator=random) / max((1, *parameter.shape[-1:])) ** 0.5
                )
                originals.append((value, value.const_value, parameter))
                parameter.data.copy_(drawn)
                value.const_value = ir.tensor(
                    to_numpy(parameter.data).copy(), dtype=value.dtype, name=value.name
                )
        yield
    finally:
        for value, tensor, parameter in originals:
            value.const_value = tensor
            parameter.data.zero_()
