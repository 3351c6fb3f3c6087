"""Plans for weight-normalised weights, moved to the stored tensors that they are computed from.

The tensors of a plan include initializers that stand for computed weights
(growc.dialects.onnx.capture.computed_weights). For a weight norm, the plan of its result is replaced by plans
for its direction and length. So the computation stays, as classes and trainers need it. A weight is stored
instead if it is computed in another way, becomes several weights, or shares its tensors with other readers.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

import onnx_ir as ir

from growc.dialects.onnx.capture.capture import ORDER, stored_weight
from growc.dialects.onnx.capture.computed_weights import Folded
from growc.dialects.onnx.capture.stored_values import stored_tensor
from growc.dialects.onnx.capture.weight_norm import WeightNorm, weight_norm
from growc.dialects.onnx.origins import value_of
from growc.dialects.torch.lowering.lower import OWNER
from growc.ir.graph import Value, Weight
from growc.passes.finish.assembled import Assembled
from growc.plans.execute import read_for
from growc.plans.plan import AxisStep, WeightNormRole, WeightPlan

PlannedUse = tuple[WeightPlan, list[Value], Weight]
"""A stored tensor of the plan, its uses, and the tensor of the source."""


def put_back(assembled: Assembled, folded: Sequence[Folded]) -> Assembled:
    """Return the tensors of a plan with weight norms put back."""
    entries: list[PlannedUse] = list(zip(assembled.weights, assembled.uses, assembled.sources, strict=True))
    read_names = {name for plan in assembled.weights for name in read_for(plan)}
    replaced: dict[ir.Value, list[PlannedUse]] = {}
    for norm, members in _norms(folded):
        stand_ins = {one.stand_in for one in members}
        norm_entries = [entry for entry in entries if value_of(entry[2]) in stand_ins]
        if _agree(norm, norm_entries, stand_ins, read_names):
            replaced |= {one: [] for one in stand_ins}
            replaced[value_of(norm_entries[0][2])] = _parts(norm, norm_entries)
    new_entries = [one for entry in entries for one in replaced.get(value_of(entry[2]), [entry])]
    return (
        Assembled(*(list(column) for column in zip(*new_entries, strict=True))) if new_entries else assembled
    )


def _norms(folded: Sequence[Folded]) -> Iterator[tuple[WeightNorm, list[Folded]]]:
    """Yield weight norms whose tensors have no other reader, each with the computed weights that it gives."""
    members_of: dict[WeightNorm, list[Folded]] = defaultdict(list)
    for weight in folded:
        norm = weight_norm(weight)
        if norm is not None:
            members_of[norm].append(weight)
    for norm, members in members_of.items():
        cone = {node for weight in members for node in weight.cone}
        exclusive = (v.meta.get(OWNER) == "state" and ORDER not in v.meta for v in norm.leaves)
        if all(exclusive) and all(use.node in cone for v in norm.leaves for use in v.uses()):
            yield norm, members


def _agree(
    norm: WeightNorm, entries: Sequence[PlannedUse], stand_ins: set[ir.Value], beside: Collection[str]
) -> bool:
    """Whether a weight norm can be put back.

    Each computed weight must be one tensor in the plan. All must have the same change, and both parts must be
    able to express it.
    """
    plans = [plan for plan, _, _ in entries]
    changes = {(tuple(step.signature for step in plan.steps), plan.scale, plan.after) for plan in plans}
    plain = all(plan.literal is None and plan.name not in beside for plan in plans)
    steps = [step for plan in plans for step in plan.steps]
    expressible = all(step.next is None and step.axis in (*norm.axes, *norm.places) for step in steps)
    one_each = len(entries) == len(stand_ins) and {value_of(source) for *_, source in entries} == stand_ins
    return one_each and len(changes) == 1 and plain and expressible


def _parts(norm: WeightNorm, entries: Sequence[PlannedUse]) -> list[PlannedUse]:
    """Return entries for direction and length, with all uses of their weight."""
    whole, uses = entries[0][0], [use for _, own, _ in entries for use in own]
    direction, length = (stored_weight(value, stored_tensor(value)) for value in norm.leaves)
    shape = tuple(1 if axis in norm.axes else whole.after[axis] for axis in norm.places)
    along = {axis: place for place, axis in enumerate(norm.places) if axis not in norm.axes}
    steps = tuple(replace(step, axis=along[step.axis]) for step in whole.steps if step.axis in along)
    plans = _plan(direction, whole.after, whole.steps, 1.0), _plan(length, shape, steps, whole.scale)
    if whole.steps:
        normed = WeightNormRole("direction", direction.name, length.name, norm.axes, whole.steps, length.zero)
        plans = replace(plans[0], normed=normed), replace(plans[1], normed=replace(normed, part="length"))
    return [(plans[0], uses, direction), (plans[1], [], length)]


def _plan(source: Weight, after: tuple[int, ...], steps: tuple[AxisStep, ...], scale: float) -> WeightPlan:
    sizes = source.shape, after
    past = source.copy_of, source.zero
    return WeightPlan(source.name, source.name, source.dtype, *sizes, steps, scale, None, *past)
