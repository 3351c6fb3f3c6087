"""Units that are taken out one by one, each for a network of its own (experts that are no stack).

Needs: a simulated graph. Gives: `Apart`s: of an axis that is cut into single units, or of scores of which the
numbers of the highest are compared with constants, what each result is the unit of, and what vanishes where
units go. Such an axis is no row of segments: its units may change places, or become fewer. What cuts them
takes other numbers; sums lose the terms that are gone, and the networks behind these are used by nobody.

A value vanishes with its units if it is made of them alone, or of them times something else. Nothing is found
where the units have no weights of their own; where they meet in anything but sums, that is a refusal.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from growc.axes import Reason
from growc.graph import Graph, Node, Value
from growc.indexmap import IndexMap
from growc.operators import Line, Term, labels
from growc.passes.routing import ROUTED, numbers_of
from growc.traits import SUM, WRITE

Units = frozenset[int]


@dataclass(frozen=True, eq=False)
class Apart:
    """An axis whose units are taken one by one.

    cuts: for each node, the unit that each of its results is, or is compared with. fates: values, with the
    units that they vanish with. owners: nodes that serve one unit alone. refusal: why units cannot go.
    """

    whole: Value
    axis: int
    cuts: Mapping[Node, Sequence[int]]
    fates: Mapping[Value, Units] = field(default_factory=dict, repr=False)
    owners: Mapping[Node, int] = field(default_factory=dict, repr=False)
    refusal: Reason | None = None

    @cached_property
    def networks(self) -> Mapping[int, Sequence[Value]]:
        """The uses of stored tensors that serve one unit alone, in canonical order."""
        found: dict[int, list[Value]] = defaultdict(list)
        for node, unit in self.owners.items():
            found[unit] += [v for v in node.operands if v.weight is not None]
        return found

    def dead(self, gone: Units) -> Iterator[Node]:
        """The nodes that nobody needs without these units."""
        yield from (node for node, unit in self.owners.items() if unit in gone)
        yield from (v.producer for v, units in self.fates.items() if v.producer and units <= gone)

    def left(self, gone: Units) -> dict[Node, tuple[int, ...]]:
        """The operands that sums still have without these units, where they lose some and not all."""
        found = {}
        for value in self.fates:
            for node, _ in value.users:
                kept = tuple(i for i, v in enumerate(node.inputs) if not self.fates.get(v, NEVER) <= gone)  # type: ignore[arg-type]
                loses = node.has(SUM) or (node.has(WRITE) and 0 in kept)
                if (
                    loses
                    and len(kept) < len(node.inputs)
                    and not self.fates.get(node.outputs[0], NEVER) <= gone
                ):
                    found[node] = kept if node.has(SUM) else (0,)
        return found


NEVER: Units = frozenset({-1})


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


def taken(found: Sequence[tuple[Apart, IndexMap | None]]) -> Taken:
    """What becomes of all of them, each with the map of its axis."""
    numbers: dict[Node, list[int | None]] = {}
    dead: set[Node] = set()
    left: dict[Node, Sequence[int]] = {}
    for apart, made in found:
        if made is None:
            continue
        place = {int(unit): k for k, unit in enumerate(made.index)}
        gone = frozenset(range(made.source)) - place.keys()
        new = {node: [place.get(unit) for unit in units] for node, units in apart.cuts.items()}
        numbers |= {node: found for node, found in new.items() if found != list(apart.cuts[node])}
        dead |= set(apart.dead(gone))
        left |= apart.left(gone)
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


# --------------------------------------------------------------------------------------------- cuts


def cut_singly(
    graph: Graph, static: Collection[Value]
) -> Iterator[tuple[tuple[Value, int], dict[Node, tuple[int, ...]]]]:
    """What is cut, with its axis; and which units each node takes out of it."""
    found: dict[tuple[Value, int], dict[Node, tuple[int, ...]]] = defaultdict(dict)
    for node in graph.nodes:
        whole = node.input(0)
        if whole is None or whole in static or whole.known is not None:
            continue
        place = _compared(node) if node.op == "Equal" else _single(node, whole)
        if place is not None:
            value, axis, units = place
            found[value, axis][node] = units
    for key, cuts in found.items():
        if len({unit for units in cuts.values() for unit in units}) > 1:
            yield key, cuts


def _single(node: Node, whole: Value) -> tuple[Value, int, tuple[int, ...]] | None:
    """The axis and the units of a cut that takes single ones."""
    if whole.sizes is None or node.op not in ("Gather", "Slice", "Split"):
        return None
    if node.op == "Split":
        axis = int(node.attributes.get("axis", 0)) % whole.rank
        single = all(out.sizes is not None and set(out.sizes[axis]) == {1} for out in node.outputs)
        return (whole, axis, tuple(range(len(node.outputs)))) if single else None
    if node.op == "Gather":
        axis, index = int(node.attributes.get("axis", 0)) % max(whole.rank, 1), _number(node.input(1))
    else:
        axes = [
            k
            for k, (a, b) in enumerate(zip(whole.sizes, node.outputs[0].sizes or (), strict=False))
            if a != b
        ]
        bounds = [_number(node.input(i)) for i in (1, 2)]
        if len(axes) != 1 or None in bounds or set((node.outputs[0].sizes or ())[axes[0]]) != {1}:
            return None
        axis, index = axes[0], bounds[0]
    size = set(whole.sizes[axis])
    if index is None or len(size) != 1 or max(size) < 2:
        return None
    return whole, axis, (index % max(size),)


def _number(value: Value | None) -> int | None:
    """The one whole number that a constant is."""
    known = None if value is None else value.known
    if known is None or known[0].size != 1 or known[0].dtype != np.int64 or known[0].ndim > 1:
        return None
    return int(known[0].reshape(-1)[0]) if all((k == known[0]).all() for k in known) else None


def _compared(node: Node) -> tuple[Value, int, tuple[int, ...]] | None:
    """The scores whose numbers are compared with a constant one."""
    for numbers, other in (node.inputs, node.inputs[::-1]):
        unit, ranking = _number(other), None if numbers is None else numbers_of(numbers)
        scores = None if ranking is None else ranking[0].inputs[0]
        if unit is not None and ranking is not None and scores is not None and scores.sizes is not None:
            axis = ranking[1]
            return (scores, axis, (unit,)) if 0 <= unit < scores.sizes[axis][0] else None
    return None
