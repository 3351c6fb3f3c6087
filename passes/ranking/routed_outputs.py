"""Tensors that show each expert's share of the output: gate times output, in front of the sum over experts.

Needs: the axis graph, the spaces of experts. Gives: a `Routed` for each such space, or for each network of
one (REAP, Lasby et al. 2025, equation 9). Experts that a ranking chooses stand in slots, over which a sum or
a product contracts. Experts that all work stand along an axis of their own. Experts stored as separate
networks end in a term of a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from growc.algebra.space import Space, find
from growc.ir.graph import Value
from growc.ir.traits import SUM, WRITE
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.unstacked_experts import UnstackedExperts

SUMS = ("sum", "mean")
"""Treatments that add up over an axis."""


@dataclass(frozen=True, eq=False)
class Routed:
    """The outputs of experts.

    experts: the space of the experts.
    value: their outputs, times their shares unless `shares` is given.
    units: the axes of `value` over which the norm is taken.
    shares: the shares, if they are a tensor of their own.
    numbers: the expert of each slot, for experts in slots.
    along: the axis of experts, for experts along an axis.
    unit: the number of the expert, for a separate network.
    """

    experts: Space
    value: Value
    units: tuple[int, ...]
    shares: Value | None = None
    numbers: Value | None = None
    along: int | None = None
    unit: int | None = None


def routed_outputs(axes: Axes, spaces: Collection[Space]) -> list[Routed]:
    """The outputs of the experts of these spaces; for a space without a tensor that shows them, none.

    Outputs that are shown in the same way are consecutive.
    """
    expert_spaces = [find(space) for space in spaces]
    outputs: list[Routed] = []
    for ranking, ranked in axes.ranked.items():
        if find(ranked) in expert_spaces:
            outputs += _in_slots(axes, find(ranked), ranking.outputs[-1])
    for experts in axes.experts:
        space = find(axes.of(experts.whole)[experts.axis])
        covered = {routed.experts for routed in outputs}
        terms = (
            list(_one_by_one(axes, experts, space)) if space in expert_spaces and space not in covered else []
        )
        if len(terms) == experts.count == len({term.unit for term in terms}):
            outputs += terms
    covered = {routed.experts for routed in outputs}
    for space in expert_spaces:
        if space not in covered:
            every = (routed for instance in axes.instances for routed in _along(axes, instance, space))
            outputs += islice(every, 1)
    return outputs


def _in_slots(axes: Axes, experts: Space, numbers: Value) -> Iterator[Routed]:
    """The operand of the sum over the slots of a ranking."""
    slot_spaces = [find(s) for s in axes.of(numbers)]
    for instance in axes.instances:
        for value, shares in _summands(axes, instance, slot_spaces[-1]):
            places = _places(axes, value, slot_spaces)
            if places is not None and (units := _units(axes, value, places)):
                yield Routed(experts, value, units, shares, numbers)
                return


def _along(axes: Axes, instance: LineInstance, experts: Space) -> Iterator[Routed]:
    """The operand of a sum over an axis of experts that all work."""
    for value, shares in _summands(axes, instance, experts):
        places = _places(axes, value, [experts])
        if places is not None and (units := _units(axes, value, places)):
            yield Routed(experts, value, units, shares, along=places[0])


def _summands(axes: Axes, instance: LineInstance, gone: Space) -> Iterator[tuple[Value, Value | None]]:
    """The operand that a node adds up over a space, with None; for a product of two operands, each with the
    other as its share.
    """
    node, output_spaces = instance.node, [find(s) for s in axes.of(instance.node.outputs[0])]
    operands = [v for v in node.inputs[:2] if v is not None]
    if gone in output_spaces or not operands:
        return
    if instance.line.treatment in SUMS:
        yield operands[0], None
    elif instance.line.treatment == "contract" and len(operands) == 2 and not any(v.weight for v in operands):
        bearing = [v for v in operands if gone in [find(s) for s in axes.of(v)]]
        if len(bearing) == 2:
            yield from ((bearing[0], bearing[1]), (bearing[1], bearing[0]))


def _places(axes: Axes, value: Value, bearers: Sequence[Space]) -> list[int] | None:
    """The axes of spaces in a tensor; None unless all occur once, in this order."""
    spaces = [find(s) for s in axes.of(value)]
    if any(spaces.count(space) != 1 for space in bearers):
        return None
    places = [spaces.index(space) for space in bearers]
    return places if places == sorted(places) else None


def _units(axes: Axes, value: Value, places: Sequence[int]) -> tuple[int, ...]:
    """The axes of an expert's output: those of known size that are not among `places`."""
    spaces = [find(s) for s in axes.of(value)]
    static_axes = [k for k, s in enumerate(spaces) if k not in places and s.static]
    return tuple(static_axes) if any(spaces[k].size[0] > 1 for k in static_axes) else ()


def _one_by_one(axes: Axes, experts: UnstackedExperts, space: Space) -> Iterator[Routed]:
    """The terms by which separate networks enter a sum."""
    for node in axes.graph.nodes:
        if node.has(SUM, WRITE):
            for value in dict.fromkeys(node.operands):
                term_experts = experts.values.get(value, frozenset())
                sum_experts = experts.values.get(node.outputs[0], frozenset())
                if (
                    len(term_experts) == 1
                    and term_experts != sum_experts
                    and value.floating
                    and (units := _units(axes, value, ()))
                ):
                    yield Routed(space, value, units, unit=min(term_experts))
