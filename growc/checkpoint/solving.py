"""Which config holds a plan: solved on the module that the plan makes, without values."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch

from growc.axes import Space, factors, find
from growc.checkpoint.growth import GrownWeights
from growc.checkpoint.opened import Opened
from growc.checkpoint.silence import quiet
from growc.checkpoint.torchtensors import to_numpy, to_torch
from growc.diagnostic import Diagnostic, GrowError
from growc.dialects.torch.classes import build
from growc.dialects.torch.compensation import Factor, compensate
from growc.dialects.torch.config import Unsolved, solve
from growc.dialects.torch.emit import planned_graph
from growc.dialects.torch.gate import check
from growc.dialects.torch.inputs import example_inputs
from growc.dialects.torch.oplog import operator_log
from growc.dialects.torch.refusal import refusal
from growc.dialects.torch.shapes import layer_counts, shapes_of, ties_of
from growc.dialects.torch.trials import Target
from growc.plans import WeightPlan
from growc.weights import execute

if TYPE_CHECKING:
    from growc.compilation import Compilation

SHOWN = 4
"""So many differences are named in a refusal."""

Roles = dict[tuple[str, int], tuple[str, int]]
"""By tensor and axis: a name and a size."""


def solved(c: Compilation) -> GrownWeights:
    """The class of the result and what becomes of its weights. The compilation can be used no further.

    Raises GrowError (G309, G318, G319) where no config of the class is the plan.
    """
    opened: Opened = c.model.opened
    planned = {w.name: w for w in c.plan.weights if (w.copy_of or w.source) in opened.stored}
    roles = _roles(c)
    program = planned_graph(c)
    _give_constants(program, c)
    _stay_on_cpu(program)
    inputs = example_inputs(opened.module)
    tensors = {name: value for name, value in inputs.items() if isinstance(value, torch.Tensor)}
    log = operator_log(program, tensors)
    target = Target(shapes_of(program), ties_of(program), log, inputs, _layers(planned))
    with quiet():
        answer = solve(opened.checkpoint.config, target, build)
    if isinstance(answer, Unsolved):
        kind = type(opened.module).__name__
        before = shapes_of(opened.module)
        raise GrowError(refusal(kind, answer, lambda *at: _role(opened, roles, *at), before))
    module = build(answer.config, constants=True)
    factors = _factors(module, target)
    return GrownWeights(opened, module, planned, answer.config, factors)


def _factors(module: Any, target: Target) -> dict[str, Factor]:
    """What makes up in weights for what the class computes from its config. Raises GrowError (G309, G319)."""
    log = operator_log(module, target.inputs)
    if log.structure != target.log.structure or log == target.log:
        check(module, target)
        return {}
    made_up = compensate(target.log, log)
    if made_up.gaps:
        kind = type(module).__name__
        message = f"`{kind}` computes numbers from its config that no weight can make up for"
        raise GrowError(Diagnostic("G309", message, notes=made_up.gaps[:SHOWN]))
    return made_up.factors


def _give_constants(program: Any, c: Compilation) -> None:
    """What no checkpoint holds has values, which logs compare: the source's, as the plan makes them."""
    plans = {plan.name: plan for plan in c.plan.weights}
    for name, tensor in c.model.captured.constants.items():
        path, _, last = name.rpartition(".")
        if tensor is None or last not in program.get_submodule(path)._buffers:
            continue
        values = to_numpy(tensor)
        made = execute(plans[name], values) if name in plans else values
        program.get_submodule(path)._buffers[last] = to_torch(made)


def _stay_on_cpu(program: Any) -> None:
    """What the program makes itself stands where the class has it when logs are taken."""
    for node in program.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cpu"))
    program.recompile()


def _layers(planned: dict[str, WeightPlan]) -> dict[str, tuple[int, ...]]:
    """For each container of layers, which of the source each one of the result is."""
    found: dict[str, dict[int, int]] = {}
    for name, plan in planned.items():
        new, old = name.split("."), (plan.copy_of or plan.source).split(".")
        for at, (a, b) in enumerate(zip(new, old, strict=False)):
            if at and a.isdigit() and b.isdigit():
                found.setdefault(".".join(new[:at]), {})[int(a)] = int(b)
    counts = layer_counts(planned)
    return {
        container: tuple(layers[k] for k in sorted(layers))
        for container, layers in found.items()
        if len(layers) == counts[container]
    }


def _role(opened: Opened, roles: Roles, name: str, axis: int) -> tuple[str, int] | None:
    return roles.get((opened.first.get(name, name), axis))


def _identity(spaces: Sequence[Space]) -> tuple[int, ...]:
    return tuple(id(find(s)) for s in spaces)


def _roles(c: Compilation) -> Roles:
    """What a recipe calls axes of stored tensors, or their outermost factors, with planned sizes."""
    named = {_identity(a.spaces): role for role, axes in c.roles.axes.items() for a in axes}
    found: Roles = {}
    for use in c.graph.uses():
        for axis, space in enumerate(c.axes.of(use) if use.weight is not None else ()):
            parts = factors(space)
            starts = [[space], *(parts[:n] for n in range(len(parts), 0, -1))]
            outer = next((start for start in starts if _identity(start) in named), None)
            if use.weight is not None and outer is not None:
                found[use.weight.name, axis] = named[_identity(outer)], c.lowered.sizes.product(outer)
    return found
