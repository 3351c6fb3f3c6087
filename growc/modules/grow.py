"""Growth of a module: plan, emit, verify, judge every `expect`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves

from growc.dialects.onnx.emit import emitted
from growc.dialects.torch.capture.example_inputs import capturable, real_inputs, without_cache
from growc.dialects.torch.capture.export import ExportedModule, export
from growc.dialects.torch.emit.emit import grown_module, reason_of
from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.emit.parameters import SourceTensors
from growc.dialects.torch.model import arguments, torch_model
from growc.dialects.torch.run.cases import Case, PortMapping
from growc.dialects.torch.run.run_module import Inputs
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import compiled
from growc.modules.check_against_plan import WAY, inconclusive_reason, nonzero_branches, require_planned
from growc.modules.check_training import IN_TRAINING, in_training
from growc.modules.compare import verify_modules
from growc.passes.compilation import Result
from growc.plans.lineage import lineage_of
from growc.resolve.bound import Resolved
from growc.verification.judge import judge_measured, judge_plan, preserved_conditions
from growc.verification.verify import Verification


def grow(
    resolved: Resolved, module: nn.Module, example_inputs: object = None, *, check: bool = True
) -> GrownModule:
    """Return the module that a recipe makes from another one, which is left as it was.

    `check=False` skips verification, except for `expect preserved`. Raises GrowError.
    """
    args, kwargs = real_arguments(module, example_inputs)
    inputs = args, without_cache(module, args, kwargs) | dict(kwargs)
    c = compiled(resolved, module, example_inputs=args or inputs[1])
    judge_plan(resolved.statements, c)
    result = grown_module(c, _in_training(module, inputs, deciding=example_inputs is not None))
    cases = result.descent.cases(module, inputs, torch_model(c).captured if check else None)
    finish(resolved, c, module, result, cases, result.descent, check=check)
    if check:
        measured = beside_plan(result.verification, c, (module, result), cases, result.descent)
        training = in_training(module, result, cases)
        result.verification = _with_ways(measured, {IN_TRAINING: training})
    return result.train() if module.training and not result.missing else result


def beside_plan(
    measured: Verification,
    c: Result,
    modules: tuple[nn.Module, nn.Module],
    cases: Sequence[Case],
    descent: PortMapping,
) -> Verification:
    """Return a verification with the result's difference from its plan added, or why that was not measured.

    Raises GrowError (G406).
    """
    return _with_ways(measured, {WAY: _of_plan(c, modules, cases, descent)})


def _with_ways(measured: Verification, beside: Mapping[str, Verification | str]) -> Verification:
    """Return a verification with further ones, or the reasons why there are none."""
    notes = (f"{way}: {outcome}" for way, outcome in beside.items() if isinstance(outcome, str))
    further = {way: outcome for way, outcome in beside.items() if not isinstance(outcome, str)}
    return replace(measured, beside={**measured.beside, **further}, notes=(*measured.notes, *notes))


def _of_plan(
    c: Result, modules: tuple[nn.Module, nn.Module], cases: Sequence[Case], descent: PortMapping
) -> Verification | str:
    source, result = modules
    try:
        planned = emitted(c)
        with nonzero_branches(planned, result, SourceTensors.of(c)):
            return require_planned(planned, result, cases, descent)
    except GrowError as error:
        codes = {diagnostic.code for diagnostic in error.diagnostics}
        if codes == {"G406"} and (why := inconclusive_reason(c.model.file(c.path), source, cases, descent)):
            return why
        if codes != {"G403"}:
            raise
        return reason_of(error)


def finish(
    resolved: Resolved,
    c: Result,
    module: nn.Module,
    result: Any,
    cases: Sequence[Case],
    descent: PortMapping,
    *,
    check: bool,
) -> None:
    """Record plan and lineage in a result, and judge its measurements. Raises GrowError (G401, G402)."""
    result.plan, result.lineage, result.verification = c.plan, lineage_of(c.plan), None
    if check or preserved_conditions(resolved.statements):
        result.verification = verify_modules(module, result, cases, descent)
        judge_measured(resolved.statements, c.plan, result.verification, refute=check)


def verify(source: nn.Module, result: nn.Module, example_inputs: object = None) -> Verification:
    """Run two modules on the same inputs, and compare their outputs."""
    descent = result.descent if isinstance(result, GrownModule) else PortMapping()
    cases = descent.cases(source, real_arguments(source, example_inputs))
    return verify_modules(source, result, cases, descent)


def real_arguments(module: nn.Module, example_inputs: object) -> Inputs:
    """Return arguments of forward with values: the given ones, or growc's for a module of transformers."""
    if example_inputs is None or is_on_meta(example_inputs):
        return (), real_inputs(module)
    return arguments(example_inputs)


def is_on_meta(example_inputs: object) -> bool:
    """Whether some of the inputs are on meta, without values."""
    return any(getattr(leaf, "is_meta", False) for leaf in tree_leaves(example_inputs))


def _in_training(module: nn.Module, inputs: Inputs, *, deciding: bool) -> ExportedModule | GrowError:
    try:
        with capturable(module):
            return export(module, inputs[0], inputs[1], train=True, deciding=deciding)
    except GrowError as error:
        return error
