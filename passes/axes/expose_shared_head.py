"""Edits for a single key/value head that no operator of the graph counts (multi-query attention).

Needs: the axis graph. Gives: `HeadEdits`. A product of two activations stretches one head of keys or values
to all query heads; several heads would have to be repeated there. If the one head can be followed back to
weights (growc.passes.axes.units), the repeat is the only edit. Otherwise the graph put an axis of one element
in front of other axes. Heads must then be split off the channels behind it, at the first value in which these
channels are an axis of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import Space, atoms_of, find, leaves
from growc.ir.graph import Node, Value
from growc.ir.notation import labels
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.units import Stretched, UnitPath, ValueAxis, by_group, is_group, is_one, merged
from growc.passes.edits import HeadEdits


def unseen_units(axes: Axes) -> HeadEdits:
    """The edits that make the graph count the heads that all queries share."""
    by_node = {i.node: i for i in axes.instances}
    static = axes.graph.static
    weighed = {atom for use in axes.graph.uses() for atom in atoms_of(axes.of(use))}
    places: list[Stretched] = []
    for instance in axes.instances:
        places += merged(axes, instance, by_node)
        if instance.line.treatment == "contract" and not any(v in static for v in instance.node.inputs):
            places += _shared(axes, instance, weighed)
    unfolds: dict[ValueAxis, None] = {}
    repeats: list[tuple[Node, int, int, int]] = []
    for group in by_group(places):
        unfold_places = _unfolds(axes, by_node, group)
        if unfold_places is not None:
            unfolds.update(dict.fromkeys(unfold_places))
            repeats += [(*s.by, s.one[1], s.group.size[0]) for s in group if s.by is not None]
    return HeadEdits([*unfolds], repeats)


def _shared(axes: Axes, product: LineInstance, weighed: set[Space]) -> Iterator[Stretched]:
    """The operands of a product that have one head for all heads of the other operand, and no other heads."""
    for k in (0, 1):
        value, other_value = product.node.input(k), product.node.input(1 - k)
        if value is None or other_value is None:
            continue
        batch = range(value.rank - 2)
        if any(leaf in weighed for axis in batch for leaf in leaves(axes.of(value)[axis])):
            continue
        lines = (product.line.inputs[k], product.line.inputs[1 - k], product.line.outputs[0])
        own_terms, other_terms, out_terms = (terms or () for terms in lines)
        for axis in batch:
            at = axis - value.rank  # Batch axes correspond by their distance from the end.
            term = other_terms[at] if -at <= min(len(other_terms), len(out_terms)) else "_"
            if (
                not isinstance(term, str)
                or not labels(term)
                or own_terms[axis] not in ("1", term)
                or out_terms[at] != term
            ):
                continue
            space = find(axes.of(other_value)[at])
            stretched = own_terms[axis] in ("1", term) and is_one(value, axis)
            if stretched and is_group(space) and space in weighed:
                yield Stretched((value, axis), space, by=(product.node, k))


def _unfolds(axes: Axes, by_node: dict[Node, LineInstance], group: list[Stretched]) -> list[ValueAxis] | None:
    """The places where heads must be split off channels; None if no such place leads to the group."""
    unfold_places: list[ValueAxis] = []
    for place in group:
        value, axis = place.one
        if UnitPath(axes, by_node).back(value, axis, Space(axes.of(value)[axis].size, counts=True)):
            continue
        origins = _Origins(axes, by_node, value, axis)
        if not origins.found:
            return None
        unfold_places += origins.found
    return unfold_places


class _Origins:
    """The values from which an axis of one element and the channels behind it come to a place together."""

    def __init__(self, axes: Axes, by_node: dict[Node, LineInstance], value: Value, axis: int) -> None:
        self.axes, self.by_node = axes, by_node
        channels = [s for k, s in enumerate(axes.of(value)) if k != axis and s.static and not s.unit]
        self.channels = [list(leaves(s)) for s in channels]
        self.seen: dict[ValueAxis, list[ValueAxis]] = {}
        self.found = self.behind(value, axis)

    def behind(self, value: Value, axis: int) -> list[ValueAxis]:
        """The earliest such values behind a place."""
        if (value, axis) not in self.seen:
            self.seen[value, axis] = []
            further = [p for place in self.operands(value, axis) for p in self.behind(*place)]
            itself = [(value, axis)] if self.is_origin(value, axis) else []
            self.seen[value, axis] = list(dict.fromkeys(further)) or itself
        return self.seen[value, axis]

    def operands(self, value: Value, axis: int) -> Iterator[ValueAxis]:
        """The same axis in the operands that a value is made of."""
        instance = None if value.producer is None else self.by_node.get(value.producer)
        if instance is None:
            return
        terms = instance.line.outputs[instance.node.outputs.index(value)] or ()
        if not labels(terms[axis]):
            return
        same_axes = ((operand, k) for operand, k, term in instance.reads() if term == terms[axis])
        yield from (place for place in same_axes if place[0].weight is None)

    def is_origin(self, value: Value, axis: int) -> bool:
        """Whether heads can be split off here: the channels are the last axis, behind the axis of one
        element.
        """
        spaces = self.axes.of(value)
        last_atoms = list(leaves(spaces[-1]))
        return value.producer is not None and axis < value.rank - 1 and last_atoms in self.channels
