"""Experts stored as separate networks rather than one stacked tensor, and what becomes of them.

`growc.passes.raising.experts` finds them. The units of such an axis may change places, or become fewer. The
nodes that take single units then take other numbers. Sums lose the terms of dropped units, and nothing uses
the networks behind these terms.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from growc.algebra.indexmap import IndexMap
from growc.algebra.space import Reason
from growc.ir.graph import Node, Value
from growc.ir.notation import Line, Term, labels
from growc.ir.traits import SUM, WRITE
from growc.passes.axes.routing import ROUTED

UnitNumbers = frozenset[int]
"""The numbers of units."""


@dataclass(frozen=True, eq=False)
class UnstackedExperts:
    """An axis whose units are taken one by one.

    whole, axis: the value and its axis.
    cuts: for each node that takes single units or compares their numbers, the unit of each of its results.
    values: values that vanish with units, each with these units.
    owners: nodes that serve one unit alone, the last ones first.
    refusal: why units cannot go.
    """

    whole: Value
    axis: int
    cuts: Mapping[Node, Sequence[int]]
    values: dict[Value, UnitNumbers] = field(default_factory=dict, repr=False)
    owners: dict[Node, int] = field(default_factory=dict, repr=False)
    refusal: Reason | None = None

    @property
    def count(self) -> int:
        """The number of units of the axis."""
        return (self.whole.sizes or ())[self.axis][0]

    @cached_property
    def networks(self) -> Mapping[int, Sequence[Value]]:
        """The uses of stored tensors that serve one unit alone, in canonical order."""
        uses_by_unit: dict[int, list[Value]] = defaultdict(list)
        for node, unit in reversed(self.owners.items()):
            uses_by_unit[unit] += [v for v in node.operands if v.weight is not None]
        return uses_by_unit

    def dead(self, gone: UnitNumbers) -> Iterator[Node]:
        """The nodes that nothing needs without these units."""
        yield from (node for node, unit in self.owners.items() if unit in gone)
        yield from (v.producer for v, units in self.values.items() if v.producer and units <= gone)

    def left(self, gone: UnitNumbers) -> Iterator[tuple[Node, tuple[int, ...]]]:
        """The operands that sums and writes keep without these units, for those that lose some."""

        def vanishes(value: Value | None) -> bool:
            return value in self.values and self.values[value] <= gone

        for node in dict.fromkeys(node for value in self.values for node, _ in value.users):
            remaining = tuple(i for i, value in enumerate(node.inputs) if not vanishes(value))
            if node.has(SUM, WRITE) and len(remaining) < len(node.inputs) and not vanishes(node.outputs[0]):
                yield node, remaining if node.has(SUM) else (0,)


@dataclass(frozen=True)
class ExpertRemoval:
    """The effect of statements on axes whose units are taken one by one.

    numbers: for each cut whose numbers change, the new number of each of its results; None for dropped units.
    dead: nodes that nothing needs any more.
    gone: the stored tensors of these nodes.
    left: the operands that sums keep.
    constants: the new unit numbers of look-ups by constants, if some change.
    """

    numbers: Mapping[Node, Sequence[int | None]] = field(default_factory=dict)
    dead: frozenset[Node] = frozenset()
    gone: frozenset[Value] = frozenset()
    left: Mapping[Node, Sequence[int]] = field(default_factory=dict)
    constants: Mapping[Node, tuple[int, ...]] = field(default_factory=dict)


def taken(changes: Sequence[tuple[UnstackedExperts, IndexMap | None]]) -> ExpertRemoval:
    """The changes of all axes of experts, each with the map of its axis."""
    numbers: dict[Node, list[int | None]] = {}
    dead: set[Node] = set()
    remaining: dict[Node, Sequence[int]] = {}
    for experts, index_map in changes:
        if index_map is None:
            continue
        place = {int(unit): k for k, unit in enumerate(index_map.index)}
        dropped = frozenset(range(index_map.source)) - place.keys()
        new = {node: [place.get(unit) for unit in units] for node, units in experts.cuts.items()}
        numbers |= {node: cut for node, cut in new.items() if cut != list(experts.cuts[node])}
        dead |= set(experts.dead(dropped))
        remaining |= dict(experts.left(dropped))
    uses = (v for node in dead for v in node.operands if v.weight is not None)
    return ExpertRemoval(numbers, frozenset(dead), frozenset(uses), remaining)


def one_by_one(line: Line, axis: int) -> Line:
    """The line of a node that takes single units out of an axis."""
    terms = line.inputs[0]
    if terms is None or line.treatment == "opaque":
        return line
    taken = set(labels(terms[axis]))
    single: list[tuple[Term, ...] | None] = [
        None if out is None else tuple("1" if taken & set(labels(t)) else t for t in out)
        for out in line.outputs
    ]
    routed_terms = (*terms[:axis], ROUTED, *terms[axis + 1 :])
    return replace(line, inputs=(routed_terms, *line.inputs[1:]), outputs=tuple(single))
