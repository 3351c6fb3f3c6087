"""Experts whose units are taken one by one, each with a network of its own, and what becomes of them.

`growc.passes.raising.experts` finds them. Such an axis is no row of segments: its units may change places, or
become fewer. What cuts them takes other numbers; sums lose the terms that are gone, and the networks behind
these are used by nobody.
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

Units = frozenset[int]


@dataclass(frozen=True, eq=False)
class Experts:
    """An axis whose units are taken one by one.

    cuts: for each node, the unit that each of its results is, or is compared with. values: those that vanish
    with units. owners: nodes that serve one unit alone, the last ones first. refusal: why units cannot go.
    """

    whole: Value
    axis: int
    cuts: Mapping[Node, Sequence[int]]
    values: dict[Value, Units] = field(default_factory=dict, repr=False)
    owners: dict[Node, int] = field(default_factory=dict, repr=False)
    refusal: Reason | None = None

    @property
    def count(self) -> int:
        """How many units the axis has."""
        return (self.whole.sizes or ())[self.axis][0]

    @cached_property
    def networks(self) -> Mapping[int, Sequence[Value]]:
        """The uses of stored tensors that serve one unit alone, in canonical order."""
        found: dict[int, list[Value]] = defaultdict(list)
        for node, unit in reversed(self.owners.items()):
            found[unit] += [v for v in node.operands if v.weight is not None]
        return found

    def dead(self, gone: Units) -> Iterator[Node]:
        """The nodes that nobody needs without these units."""
        yield from (node for node, unit in self.owners.items() if unit in gone)
        yield from (v.producer for v, units in self.values.items() if v.producer and units <= gone)

    def left(self, gone: Units) -> Iterator[tuple[Node, tuple[int, ...]]]:
        """The operands that sums and writes still have without these units, where they lose some."""

        def vanishes(value: Value | None) -> bool:
            return value in self.values and self.values[value] <= gone

        for node in dict.fromkeys(node for value in self.values for node, _ in value.users):
            kept = tuple(i for i, value in enumerate(node.inputs) if not vanishes(value))
            if node.has(SUM, WRITE) and len(kept) < len(node.inputs) and not vanishes(node.outputs[0]):
                yield node, kept if node.has(SUM) else (0,)


@dataclass(frozen=True)
class Taken:
    """What statements make of axes whose units are taken one by one.

    numbers: the new number of what each result of a cut is (None: gone), where some are others. dead: nodes
    that nobody needs any more, `gone` their stored tensors. left: the operands that sums still have.
    constants: the new numbers of units that look-ups have as constants, where some are others.
    """

    numbers: Mapping[Node, Sequence[int | None]] = field(default_factory=dict)
    dead: frozenset[Node] = frozenset()
    gone: frozenset[Value] = frozenset()
    left: Mapping[Node, Sequence[int]] = field(default_factory=dict)
    constants: Mapping[Node, tuple[int, ...]] = field(default_factory=dict)


def taken(found: Sequence[tuple[Experts, IndexMap | None]]) -> Taken:
    """What becomes of all of them, each with the map of its axis."""
    numbers: dict[Node, list[int | None]] = {}
    dead: set[Node] = set()
    left: dict[Node, Sequence[int]] = {}
    for experts, made in found:
        if made is None:
            continue
        place = {int(unit): k for k, unit in enumerate(made.index)}
        gone = frozenset(range(made.source)) - place.keys()
        new = {node: [place.get(unit) for unit in units] for node, units in experts.cuts.items()}
        numbers |= {node: found for node, found in new.items() if found != list(experts.cuts[node])}
        dead |= set(experts.dead(gone))
        left |= dict(experts.left(gone))
    uses = (v for node in dead for v in node.operands if v.weight is not None)
    return Taken(numbers, frozenset(dead), frozenset(uses), left)


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
    whole = (*terms[:axis], ROUTED, *terms[axis + 1 :])
    return replace(line, inputs=(whole, *line.inputs[1:]), outputs=tuple(single))
