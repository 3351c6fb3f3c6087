"""Growing a module: plan, emit, verify, judge every `expect`."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.utils._pytree import tree_leaves

from growc import api
from growc.diagnostic import GrowError
from growc.dialects.torch.dialect import arguments
from growc.dialects.torch.emit import grown_module
from growc.dialects.torch.export import Captured, export
from growc.dialects.torch.inputs import real_inputs
from growc.dialects.torch.measuring import Inputs, verify_modules
from growc.dialects.torch.module import GrownModule
from growc.expectations import judge_measured, judge_plan
from growc.lineage import lineage_of
from growc.ports import ports_of
from growc.recipe import Expect, Preserved
from growc.resolve import Resolved
from growc.verification import Verification


def grow(
    resolved: Resolved, module: nn.Module, example_inputs: Any = None, *, check: bool = True
) -> GrownModule:
    """The module that a recipe makes of another one, which is left as it was.

    `check=False` leaves verification out, but for `expect preserved`. Raises GrowError.
    """
    inputs = real_arguments(module, example_inputs)
    c = api.compile(resolved, module, example_inputs=inputs[1] or inputs[0])
    judge_plan(resolved.statements, c)
    names = [value.name for value in c.graph.outputs]
    maps, plan = ports_of(c).output_maps(), c.plan
    result = grown_module(c, _in_training(module, inputs))
    result.plan, result.lineage = plan, lineage_of(plan)
    preserved = any(
        isinstance(b.statement, Expect) and isinstance(b.statement.condition, Preserved)
        for b in resolved.statements
    )
    if check or preserved:
        result.verification = verify_modules(module, result, inputs, names, maps)
        judge_measured(resolved.statements, plan, result.verification, refute=check)
    return result.train() if module.training and not result.missing else result


def verify(source: nn.Module, result: nn.Module, example_inputs: Any = None) -> Verification:
    """Run two modules on the same inputs, and compare what they give."""
    return verify_modules(source, result, real_arguments(source, example_inputs))


def real_arguments(module: nn.Module, example_inputs: Any) -> Inputs:
    """Arguments of forward that have values: those given, or growc's for a module of transformers."""
    if example_inputs is None or any(getattr(leaf, "is_meta", False) for leaf in tree_leaves(example_inputs)):
        return (), real_inputs(module)
    return arguments(example_inputs)


def _in_training(module: nn.Module, inputs: Inputs) -> Captured | GrowError:
    try:
        return export(module, inputs[0], inputs[1], train=True)
    except GrowError as error:
        return error
