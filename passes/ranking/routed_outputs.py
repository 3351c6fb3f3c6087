"""Where each expert's share of its output can be seen: gate times output, in front of the sum over experts.

Needs: the axis graph, the spaces of experts. Gives: a `Routed` for every one of these, or for every network
of one (REAP, Lasby et al. 2025, equation 9). Experts that a ranking chooses stand in slots, which a sum or a
product takes away; experts that all work stand along an axis of their own; networks of their own end in a
term of a sum.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from growc.algebra.space import Space, find
from growc.ir.graph import Value
from growc.ir.traits import SUM, WRITE
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.unstacked_experts import Experts

SUMS = ("sum", "mean")


@dataclass(frozen=True, eq=False)
class Routed:
    """What experts give. value: their outputs, times shares but for those that stand apart; units: its axes
    of which the norm is taken. numbers: which expert each place belongs to; along: else, the axis of experts;
    unit: else, the one that it is.
    """

    experts: Space
    value: Value
    units: tuple[int, ...]
    shares: Value | None = None
    numbers: Value | None = None
    along: int | None = None
    unit: int | None = None


def routed_outputs(axes: Axes, spaces: Collection[Space]) -> list[Routed]:
    """All of a model, those that are seen the same way one behind the other; none of a space of which nothing
    shows what its experts give.
    """
    left = [find(space) for space in spaces]
    found: list[Routed] = []
    for ranking, ranked in axes.ranked.items():
        if find(ranked) in left:
            found += _in_slots(axes, find(ranked), ranking.outputs[-1])
    for experts in axes.experts:
        space = find(axes.of(experts.whole)[experts.axis])
        known = {routed.experts for routed in found}
        terms = list(_one_by_one(axes, experts, space)) if space in left and space not in known else []
        if len(terms) == experts.count == len({term.unit for term in terms}):
            found += terms
    known = {routed.experts for routed in found}
    for space in left:
        if space not in known:
            every = (routed for instance in axes.instances for routed in _along(axes, instance, space))
            found += islice(every, 1)
    return found


def _in_slots(axes: Axes, experts: Space, numbers: Value) -> Iterator[Routed]:
    """The sum that takes away the slots of a ranking."""
    wanted = [find(s) for s in axes.of(numbers)]
    for instance in axes.instances:
        for value, shares in _summands(axes, instance, wanted[-1]):
            places = _places(axes, value, wanted)
            if places is not None and (units := _units(axes, value, places)):
                yield Routed(experts, value, units, shares, numbers)
                return


def _along(axes: Axes, instance: Instance, experts: Space) -> Iterator[Routed]:
    """A sum that takes away an axis of experts which all work."""
    for value, shares in _summands(axes, instance, experts):
        places = _places(axes, value, [experts])
        if places is not None and (units := _units(axes, value, places)):
            yield Routed(experts, value, units, shares, along=places[0])


def _summands(axes: Axes, instance: Instance, gone: Space) -> Iterator[tuple[Value, Value | None]]:
    """What a node adds up over a space: one operand, or of two that it multiplies first the larger one, and
    the other.
    """
    node, made = instance.node, [find(s) for s in axes.of(instance.node.outputs[0])]
    given = [v for v in node.inputs[:2] if v is not None]
    if gone in made or not given:
        return
    if instance.line.treatment in SUMS:
        yield given[0], None
    elif instance.line.treatment == "contract" and len(given) == 2 and not any(v.weight for v in given):
        bearing = [v for v in given if gone in [find(s) for s in axes.of(v)]]
        if len(bearing) == 2:
            yield from ((bearing[0], bearing[1]), (bearing[1], bearing[0]))


def _places(axes: Axes, value: Value, wanted: Sequence[Space]) -> list[int] | None:
    """Where spaces stand in a tensor, in their order; None where not all do."""
    spaces = [find(s) for s in axes.of(value)]
    if any(spaces.count(space) != 1 for space in wanted):
        return None
    places = [spaces.index(space) for space in wanted]
    return places if places == sorted(places) else None


def _units(axes: Axes, value: Value, places: Sequence[int]) -> tuple[int, ...]:
    """The axes that hold what an expert gives: those of known size that are none of the places."""
    spaces = [find(s) for s in axes.of(value)]
    known = [k for k, s in enumerate(spaces) if k not in places and s.static]
    return tuple(known) if any(spaces[k].size[0] > 1 for k in known) else ()


def _one_by_one(axes: Axes, experts: Experts, space: Space) -> Iterator[Routed]:
    """The terms by which networks of their own enter a sum."""
    for node in axes.graph.nodes:
        if node.has(SUM, WRITE):
            for value in dict.fromkeys(node.operands):
                own = experts.values.get(value, frozenset())
                grown = experts.values.get(node.outputs[0], frozenset())
                if len(own) == 1 and own != grown and value.floating and (units := _units(axes, value, ())):
                    yield Routed(space, value, units, unit=min(own))
