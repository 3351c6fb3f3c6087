"""Optimizer state of the source, carried to the result of a plan by the maps of gradients.

If a weight becomes W' = M·W·L, its gradient becomes G' = L'ᵀ·G·M'ᵀ. On an axis that the weight makes, that is
the left inverse by which others read the axis. On an axis that it reads, it is the state that arrives there.
Both are the dual of the plan's step. The result is the gradient itself if every reader of an axis uses one
left inverse, and copies of a unit count alike: equal splits without noise, isometries. Elsewhere only MᵀG' =
G holds, and the mapped state is an approximation. Adam's first moment follows the gradient's map, and its
second moment the squares of that map.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from growc.algebra.indexmap import Ints
from growc.checkpoint.files.torch_tensors import is_mappable
from growc.dialects.torch.operators.arrays import to_numpy
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import parsing_foreign_file
from growc.plans.execute import leaf_steps, planned
from growc.plans.lineage import drawn_anew
from growc.plans.plan import ZERO, Layout, LeafStep, Plan, WeightPlan, attribute_of
from growc.recipe.fills import new_units

if TYPE_CHECKING:
    import torch
    from torch import nn

OptimizerState = dict[str, Any]
"""The state_dict of a torch optimizer: `state` by the number of a parameter, and `param_groups`."""

Empty = Callable[[tuple[int, ...], "torch.dtype"], "torch.Tensor"]
"""Function that returns an uninitialised tensor of a shape and dtype."""

Make = Callable[[WeightPlan, Any], Any]
"""Function that makes a tensor of the result's state from one of the source's."""

New = Literal["mapped", "zero"]
"""Initial state of new units: the gradient's map, or zero. Old entries keep their state."""

NEW: tuple[New, ...] = get_args(New)

POWERS = {"exp_avg": 1, "exp_avg_sq": 2, "max_exp_avg_sq": 2, "momentum_buffer": 1}
"""The power of the gradient in each tensor of a parameter's state."""

KEPT = {"step"}
"""Names of state that is not a tensor of the parameter's shape, and stays unchanged."""


@dataclass(frozen=True)
class Carried:
    """The state of the result's optimizer, and the parameters for which it is exact.

    names: the result's parameters by group, in the optimizer's order.
    exact: parameters whose gradients are mapped exactly, so that the state is that of training.
    approximate: parameters whose gradients are not mapped exactly.
    fresh: parameters without state, among them weights that the source computes and the result stores.
    absent: parameters that come from none of the source's optimizer.
    """

    state: OptimizerState
    names: tuple[tuple[str, ...], ...]
    exact: tuple[str, ...]
    approximate: tuple[str, ...]
    fresh: tuple[str, ...]
    absent: tuple[str, ...]


def read_optimizer(path: str | Path) -> OptimizerState:
    """Read an `optimizer.pt` of torch or of a Trainer, memory-mapped if possible. Nothing in it is executed.

    Raises GrowError (G316).
    """
    import torch

    with parsing_foreign_file(Path(path), "an optimizer's state", "G316"):
        state = torch.load(path, map_location="cpu", weights_only=True, mmap=is_mappable(Path(path)))
    if not isinstance(state, dict) or not {"state", "param_groups"} <= state.keys():
        raise _misfit(f"`{path}` is no state of a torch optimizer")
    return state


def carry(
    state: OptimizerState,
    plan: Plan,
    before: Sequence[Sequence[str]],
    after: Sequence[str],
    *,
    new: New = "mapped",
    make: Make | None = None,
) -> Carried:
    """Return the state for the result of a plan. The source's state is not changed.

    before: the source's parameters by group, in the optimizer's order (`parameter_groups`).
    after: the result's parameters, in the order of its `named_parameters`. Both use the names of the plan.
    new: the initial state of new units, which are those that the lineage calls copied or new.
    make: makes the tensors (None: in memory).

    A new parameter joins the group of the one that it comes from. If that is in no group (Muon has matrices
    only), neither is the new one. Raises GrowError (G316) if the state does not fit the plan, or is of an
    unknown kind.
    """
    return _Carrier(state, plan, before, new, make or mapped).carry(after)


class _Carrier:
    def __init__(
        self, state: OptimizerState, plan: Plan, before: Sequence[Sequence[str]], new: New, make: Make
    ) -> None:
        _check_sizes(state, before)
        self.state, self.plan, self.new, self.make = state, plan, new, make
        self.weights = {w.name: w for w in plan.weights}
        self.weights |= {attribute_of(w.name): w for w in plan.weights if w.made_of}
        self.copies = plan.later_copies
        self.uneven = uneven_axes(plan)
        self.entries: dict[str, Mapping[str, Any]] = {}
        self.groups: dict[str, int] = {}
        for k, (group, names) in enumerate(zip(state["param_groups"], before, strict=True)):
            for number, name in zip(group["params"], names, strict=True):
                self.groups[name] = k
                if number in state["state"]:
                    self.entries[name] = state["state"][number]

    def carry(self, after: Sequence[str]) -> Carried:
        members: list[list[str]] = [[] for _ in self.state["param_groups"]]
        absent = [name for name in after if self.source(name) not in self.groups]
        for name in (name for name in after if self.source(name) in self.groups):
            members[self.groups[self.source(name)]].append(name)
        numbered = [name for names in members for name in names]
        entries = {i: entry for i, name in enumerate(numbered) if (entry := self.entry(name)) is not None}
        groups, position = [], 0
        for group, names in zip(self.state["param_groups"], members, strict=True):
            numbers = list(range(position, position + len(names)))
            names_entry = {"param_names": names} if "param_names" in group else {}
            groups.append({**group, **names_entry, "params": numbers})
            position += len(names)
        with_state = [name for i, name in enumerate(numbered) if i in entries]
        return Carried(
            {**self.state, "state": entries, "param_groups": groups},
            tuple(map(tuple, members)),
            tuple(name for name in with_state if self.is_exact(name)),
            tuple(name for name in with_state if not self.is_exact(name)),
            tuple(name for i, name in enumerate(numbered) if i not in entries),
            tuple(absent),
        )

    def source(self, name: str) -> str:
        """Return the source's parameter that a parameter of the result comes from.

        It is the parameter itself if the program does not use it. Of several that a weight was computed from,
        it is the first. Raises GrowError (G316) if the plan does not know it.
        """
        if name in self.weights:
            weight = self.weights[name]
            origin = weight.copy_of or weight.source
            return next((one for one in weight.made_of if one in self.groups), origin)
        if name not in self.groups:
            raise _misfit(f"the plan knows no weight `{name}`")
        return name

    def entry(self, name: str) -> dict[str, Any] | None:
        weight, entry = self.weights.get(name), self.entries.get(self.source(name))
        if weight is None or entry is None:
            return None if entry is None else dict(entry)
        if weight.made_of or (self.new == "zero" and name in self.copies) or drawn_anew(weight):
            return None
        return {key: self.value(key, value, weight) for key, value in entry.items()}

    def value(self, key: str, value: Any, weight: WeightPlan) -> Any:
        if key in KEPT or value is None:
            return value
        if not (weight.changed or key in POWERS):
            return value
        if key not in POWERS:
            have = ", ".join(f"`{name}`" for name in POWERS)
            message = (
                f"the optimizer keeps `{key}` of `{weight.source}`, and nothing is known of how it grows"
            )
            raise _misfit(message, (f"known are {have}",))
        if tuple(value.shape) != weight.before:
            sizes = f"{list(value.shape)}, and the parameter {list(weight.before)}"
            raise _misfit(f"the optimizer's `{key}` of `{weight.source}` has shape {sizes}")
        return self.make(gradient_plan(weight, POWERS[key], self.new), value)

    def is_exact(self, name: str) -> bool:
        """Whether the state consists of gradients alone, and the mapped gradient is that of the result."""
        if name not in self.weights:
            return True
        weight = self.weights[name]
        uneven = any(step.name in self.uneven or step.next is not None for step in weight.steps)
        decays = _decays_by_gradient(self.state["param_groups"][self.groups[self.source(name)]])
        changed = bool(weight.steps) and (self.new == "zero" or decays)
        proved = self.plan.certificate.exact and not changed
        return proved and not uneven and weight.name not in self.copies and weight.normed is None


def all_names(module: nn.Module) -> dict[nn.Parameter, list[str]]:
    """Return every name of each parameter, first the one that `named_parameters` gives."""
    names_of: dict[nn.Parameter, list[str]] = {}
    for name, parameter in module.named_parameters(remove_duplicate=False):
        names_of.setdefault(parameter, []).append(name)
    return names_of


def parameter_groups(module: nn.Module, state: OptimizerState) -> list[list[str]]:
    """Return the names of a module's parameters by group, in the optimizer's order.

    They are the names in the state if it has any. Otherwise a single group has all parameters, and two groups
    are those of a Trainer: parameters with decay, and the rest. Raises GrowError (G316) if the numbers do not
    fit.
    """
    groups = state["param_groups"]
    if all("param_names" in group for group in groups):
        return [list(group["param_names"]) for group in groups]
    names = [name for name, parameter in module.named_parameters() if parameter.requires_grad]
    if len(groups) == 1:
        by_group = [names]
    elif len(groups) == 2:
        from transformers import Trainer

        decay = set(Trainer.get_decay_parameter_names(None, module))  # type: ignore[arg-type]
        by_group = [[n for n in names if n in decay], [n for n in names if n not in decay]]
    else:
        raise _misfit(f"the optimizer has {len(groups)} groups of parameters, and none says their names")
    _check_sizes(state, by_group)
    shapes = {name: tuple(parameter.shape) for name, parameter in module.named_parameters()}
    for group, members in zip(groups, by_group, strict=True):
        for number, name in zip(group["params"], members, strict=True):
            _check_shape(state["state"].get(number, {}), name, shapes[name])
    return by_group


def _check_shape(entry: Mapping[str, Any], name: str, shape: tuple[int, ...]) -> None:
    for key in entry.keys() & POWERS.keys():
        if tuple(entry[key].shape) != shape:
            sizes = f"{list(entry[key].shape)}, and the parameter {list(shape)}"
            message = f"the optimizer's `{key}` in the place of `{name}` has shape {sizes}"
            raise _misfit(message, ("its order of parameters is not that of the module",))


def _decays_by_gradient(group: Mapping[str, object]) -> bool:
    """Whether an optimizer adds weight decay to gradients, so that weights enter its state.

    Of the known optimizers, only AdamW and Muon decay weights apart from the gradient.
    """
    decoupled = group.get("decoupled_weight_decay", False) or "ns_steps" in group
    return bool(group.get("weight_decay", 0)) and not decoupled


def _check_sizes(state: OptimizerState, names: Sequence[Sequence[str]]) -> None:
    have = [len(group["params"]) for group in state["param_groups"]]
    expected = [len(group) for group in names]
    if have != expected:
        raise _misfit(f"the optimizer has groups of {have} parameters, and the model of {expected}")


def _misfit(message: str, notes: tuple[str, ...] = ()) -> GrowError:
    return GrowError(Diagnostic("G316", message, notes=notes))


# ---------------------------------------------------------------------------------------- maps of gradients


def gradient_plan(weight: WeightPlan, power: int = 1, new: New = "mapped") -> WeightPlan:
    """Return the map of a weight's gradient as a plan, or that of its squares for a power of two."""
    steps = tuple(
        replace(step, layout=_dual_layout(step.layout, step.verb, power, new), next=None)
        for step in weight.steps
    )
    return replace(weight, steps=steps, scale=weight.scale**-power, literal=None, shift=0.0, normed=None)


def _dual_layout(layout: Layout, verb: str, power: int, new: New) -> Layout:
    if layout.step is not None:
        return Layout("leaf", (), _dual(layout.step, verb, power, new))
    return Layout(layout.kind, tuple(_dual_layout(p, verb, power, new) for p in layout.parts))


def _dual(step: LeafStep, verb: str, power: int, new: New) -> LeafStep:
    """Return the step of the gradient along an axis.

    Units made with weights w are read with w/Σw² by readers that use the smallest left inverse. Units read
    with shares l arrive as 1/Σl. Rows that are no copies get zero. With `new` zero, so do all copies but the
    first.
    """
    index = _copied(step)
    rows = index >= 0
    total = np.bincount(
        index[rows], weights=step.weight[rows] ** (1 if verb == "reads" else 2), minlength=step.before
    )
    divisor = np.where(rows, total[index], 1.0)
    dual = (1.0 if verb == "reads" else step.weight) / np.where(divisor == 0, 1.0, divisor)
    index = np.where(rows & (divisor != 0), index, -1)
    if new == "zero":
        index = np.where(new_units(step.as_map()), -1, index)
    return LeafStep(step.before, index, dual**power, np.full(len(index), ZERO))


def _copied(step: LeafStep) -> Ints:
    """Return the unit that each row is a multiple of, or -1 if there is none."""
    return np.where(step.weight != 0, step.index, -1)


def uneven_axes(plan: Plan) -> set[str]:
    """Return the names of axes on which copies of a unit do not count alike everywhere.

    They count alike if every weight copies every unit with one factor, without noise, and each pattern of
    copies that is made is also the pattern that is read.
    """
    uneven: set[str] = set()
    patterns_made: dict[str, set[object]] = {}
    patterns_read: dict[str, set[object]] = {}
    for step in (step for weight in plan.weights for step in weight.steps):
        for leaf in leaf_steps(step.layout):
            if leaf.is_identity:
                continue
            if not _is_even(leaf):
                uneven.add(step.name)
            kind = patterns_read if step.verb == "reads" else patterns_made
            kind.setdefault(step.name, set()).add((leaf.before, leaf.index.tobytes()))
    return uneven | {
        name for name, patterns in patterns_made.items() if patterns - patterns_read.get(name, set())
    }


def _is_even(leaf: LeafStep) -> bool:
    index = _copied(leaf)
    if not leaf.even or (index < 0).any():
        return False
    unit_weights = np.zeros(leaf.before)
    unit_weights[index] = leaf.weight
    return bool(np.allclose(unit_weights[index], leaf.weight, rtol=1e-9, atol=0))


def mapped(plan: WeightPlan, tensor: torch.Tensor, empty: Empty | None = None) -> torch.Tensor:
    """Return a tensor of state mapped to the result, in its own dtype.

    16-bit numbers are computed in float32. empty: makes the tensor to fill (None: in memory).
    """
    result = tensor.new_empty(plan.after) if empty is None else empty(plan.after, tensor.dtype)
    rows = planned(plan, to_numpy(tensor))
    rows.into(to_numpy(result).reshape(rows.count, *rows.rest))
    return result
