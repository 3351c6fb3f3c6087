"""Computed weights that change, put back into the stored tensors that they are computed from.

Needs: the tensors of the plan, among them initializers that stand for computed weights
(growc.dialects.onnx.capture.computed_weights). Gives: the same with plans for what a weight norm is made of
in place of plans for what it makes, so that the computation stays, as classes and trainers want it. A weight
that is computed otherwise, that wants to be several, or whose tensors are read elsewhere too, is stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from growc.dialects.onnx.capture.capture import ORDER, stored_weight
from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.stored_tensors import stored_tensor
from growc.dialects.onnx.capture.weight_norm import WeightNorm, weight_norm
from growc.dialects.onnx.origins import value_of
from growc.dialects.torch.lowering.lower import OWNER
from growc.ir.graph import Value, Weight
from growc.passes.finish.assembled import Assembled
from growc.plans.execute import read_for
from growc.plans.plan import AxisStep, Normed, WeightPlan

Entry = tuple[WeightPlan, list[Value], Weight]
"""A stored tensor of the plan, the uses that it serves, and the tensor of the source."""


def put_back(made: Assembled, folded: Sequence[Folded]) -> Assembled:
    """The tensors of a plan with weight norms put back."""
    entries: list[Entry] = list(zip(made.weights, made.uses, made.sources, strict=True))
    beside = {name for plan in made.weights for name in read_for(plan)}
    found: dict[ir.Value, list[Entry]] = {}
    for norm, members in _norms(folded):
        stand_ins = {one.stand_in for one in members}
        own = [entry for entry in entries if value_of(entry[2]) in stand_ins]
        if _agree(norm, own, stand_ins, beside):
            found |= {one: [] for one in stand_ins}
            found[value_of(own[0][2])] = _parts(norm, own)
    kept = [one for entry in entries for one in found.get(value_of(entry[2]), [entry])]
    return Assembled(*(list(column) for column in zip(*kept, strict=True))) if kept else made


def _norms(folded: Sequence[Folded]) -> Iterator[tuple[WeightNorm, list[Folded]]]:
    """Weight norms of tensors that belong to them alone, with all computed weights that they are."""
    found: dict[WeightNorm, list[Folded]] = defaultdict(list)
    for one in folded:
        norm = weight_norm(one)
        if norm is not None:
            found[norm].append(one)
    for norm, members in found.items():
        cone = {node for one in members for node in one.cone}
        own = (v.meta.get(OWNER) == "state" and ORDER not in v.meta for v in norm.leaves)
        if all(own) and all(use.node in cone for v in norm.leaves for use in v.uses()):
            yield norm, members


def _agree(
    norm: WeightNorm, entries: Sequence[Entry], stand_ins: set[ir.Value], beside: Collection[str]
) -> bool:
    """Whether each computed weight is one tensor in the plan, and all are one that both parts can make."""
    plans = [plan for plan, _, _ in entries]
    wanted = {(tuple(step.signature for step in plan.steps), plan.scale, plan.after) for plan in plans}
    plain = all(plan.literal is None and plan.name not in beside for plan in plans)
    steps = [step for plan in plans for step in plan.steps]
    made = all(step.next is None and step.axis in (*norm.axes, *norm.places) for step in steps)
    once = len(entries) == len(stand_ins) and {value_of(source) for *_, source in entries} == stand_ins
    return once and len(wanted) == 1 and plain and made


def _parts(norm: WeightNorm, entries: Sequence[Entry]) -> list[Entry]:
    """Direction and length, for all uses of what they make."""
    whole, uses = entries[0][0], [use for _, own, _ in entries for use in own]
    direction, length = (stored_weight(value, stored_tensor(value)) for value in norm.leaves)
    shape = tuple(1 if axis in norm.axes else whole.after[axis] for axis in norm.places)
    along = {axis: place for place, axis in enumerate(norm.places) if axis not in norm.axes}
    steps = tuple(replace(step, axis=along[step.axis]) for step in whole.steps if step.axis in along)
    both = _plan(direction, whole.after, whole.steps, 1.0), _plan(length, shape, steps, whole.scale)
    if whole.steps:
        made = Normed("direction", direction.name, length.name, norm.axes, whole.steps, length.zero)
        both = replace(both[0], normed=made), replace(both[1], normed=replace(made, part="length"))
    return [(both[0], uses, direction), (both[1], [], length)]


def _plan(source: Weight, after: tuple[int, ...], steps: tuple[AxisStep, ...], scale: float) -> WeightPlan:
    sizes = source.shape, after
    past = source.copy_of, source.zero
    return WeightPlan(source.name, source.name, source.dtype, *sizes, steps, scale, None, *past)
