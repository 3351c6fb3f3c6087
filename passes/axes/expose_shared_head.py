"""One key/value head that nothing in the graph counts: where operators that count it would have to stand.

Needs: the axis graph. Gives: `HeadEdits`. A product of two activations stretches one head of keys or values
to all query heads: several heads would have to be repeated there. Where the one can be followed back to
weights (growc.passes.axes.units), that is all. Else the axis of one element was put in front of something
else, and heads have to be taken out of the channels behind it, as soon as these stand for themselves.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value, static_values
from growc.ir.notation import labels
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.units import Place, Stretched, Way, by_group, is_group, is_one, merged
from growc.passes.edits import HeadEdits


def unseen_units(axes: Axes) -> HeadEdits:
    """What would have to count the heads that all queries share."""
    by_node = {i.node: i for i in axes.instances}
    static = static_values(axes.graph)
    weighed = {x for use in axes.graph.uses() for x in atoms_of(axes.of(use))}
    places: list[Stretched] = []
    for instance in axes.instances:
        places += merged(axes, instance, by_node)
        if instance.line.treatment == "contract" and not any(v in static for v in instance.node.inputs):
            places += _shared(axes, instance, weighed)
    unfolds: dict[Place, None] = {}
    repeats: list[tuple[Node, int, int, int]] = []
    for group in by_group(places):
        found = _unfolds(axes, by_node, group)
        if found is not None:
            unfolds.update(dict.fromkeys(found))
            repeats += [(*s.by, s.one[1], s.group.size[0]) for s in group if s.by is not None]
    return HeadEdits([*unfolds], repeats)


def _shared(axes: Axes, product: Instance, weighed: set[Space]) -> Iterator[Stretched]:
    """The operands of a product that have one head for all of the other one's, and no heads beside it."""
    for k in (0, 1):
        value, other = product.node.input(k), product.node.input(1 - k)
        if value is None or other is None:
            continue
        batch = range(value.rank - 2)
        if any(x in weighed for axis in batch for x in leaves(axes.of(value)[axis])):
            continue
        lines = (product.line.inputs[k], product.line.inputs[1 - k], product.line.outputs[0])
        own, theirs, out = (terms or () for terms in lines)
        for axis in batch:
            at = axis - value.rank  # axes of a batch stand alike, from the end
            term = theirs[at] if -at <= min(len(theirs), len(out)) else "_"
            if (
                not isinstance(term, str)
                or not labels(term)
                or own[axis] not in ("1", term)
                or out[at] != term
            ):
                continue
            space = find(axes.of(other)[at])
            stretched = own[axis] in ("1", term) and is_one(value, axis)
            if stretched and is_group(space) and space in weighed:
                yield Stretched((value, axis), space, by=(product.node, k))


def _unfolds(axes: Axes, by_node: dict[Node, Instance], group: list[Stretched]) -> list[Place] | None:
    """Where heads have to be taken out of channels; None where that brings none to the group."""
    found: list[Place] = []
    for place in group:
        value, axis = place.one
        if Way(axes, by_node).back(value, axis, Space(axes.of(value)[axis].size, counts=True)):
            continue
        origins = _Origins(axes, by_node, value, axis)
        if not origins.found:
            return None
        found += origins.found
    return found


class _Origins:
    """The values from which the axis of one element and the channels behind it come to a place together."""

    def __init__(self, axes: Axes, by_node: dict[Node, Instance], value: Value, axis: int) -> None:
        self.axes, self.by_node = axes, by_node
        channels = [s for k, s in enumerate(axes.of(value)) if k != axis and s.static and not s.unit]
        self.channels = [list(leaves(s)) for s in channels]
        self.seen: dict[Place, list[Place]] = {}
        self.found = self.behind(value, axis)

    def behind(self, value: Value, axis: int) -> list[Place]:
        """The earliest such values."""
        if (value, axis) not in self.seen:
            self.seen[value, axis] = []
            further = [p for place in self.operands(value, axis) for p in self.behind(*place)]
            here = [(value, axis)] if self.is_origin(value, axis) else []
            self.seen[value, axis] = list(dict.fromkeys(further)) or here
        return self.seen[value, axis]

    def operands(self, value: Value, axis: int) -> Iterator[Place]:
        """The same axis of what a value is made of."""
        instance = None if value.producer is None else self.by_node.get(value.producer)
        if instance is None:
            return
        terms = instance.line.outputs[instance.node.outputs.index(value)] or ()
        if not labels(terms[axis]):
            return
        same = ((operand, k) for operand, k, term in instance.reads() if term == terms[axis])
        yield from (place for place in same if place[0].weight is None)

    def is_origin(self, value: Value, axis: int) -> bool:
        """Whether heads can be taken out here: in front of the channels, which are the last axis."""
        spaces = self.axes.of(value)
        own = list(leaves(spaces[-1]))
        return value.producer is not None and axis < value.rank - 1 and own in self.channels
