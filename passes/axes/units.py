"""Counted units: a factor of one element that stands for one key/value head, made visible as a space.

Needs: the axis graph. Gives: the same graph, in which `(1 g)` after a broadcast of one to g is a product of
two spaces, a unit and the group. That holds if the one can be followed back to weights that make it.

Spaces leave out factors of one, since few of the many stretched axes of one element count anything. An axis
of one element counts what is repeated if the stretched axis behind it is merged with it: several key/value
heads would stand there. So does an axis that an attention operator shares among queries. The operators on its
way back to the weights are instantiated again as if there were many units.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from growc.algebra.space import Space, find, product, segments, structure, sum_of
from growc.ir.graph import Node, Value
from growc.ir.notation import Term, labels
from growc.ir.traits import REPEAT, TURN
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes, LineInstance, instantiate, space_of
from growc.passes.raising.attention import REPEAT_OP

ValueAxis = tuple[Value, int]
"""A value and one of its axes."""


@dataclass(frozen=True, eq=False)
class Stretched:
    """An axis of one element that a broadcast stretches to a group.

    one: that axis.
    group: the space of the group.
    alone: the axes that consist of the group alone.
    by: if no operator counts the element, the product that stretches it and the number of its operand.
    """

    one: ValueAxis
    group: Space
    alone: tuple[ValueAxis, ...] = ()
    by: tuple[Node, int] | None = None


def count_units(axes: Axes) -> None:
    """Give every unit that counts repeated groups a space of its own, in place."""
    by_node = {i.node: i for i in axes.instances}
    places = [s for i in axes.instances for s in [*merged(axes, i, by_node), *_repeated(i)]]
    for places_of_group in by_group(places):
        _expose(axes, by_node, places_of_group)


def by_group(places: Iterable[Stretched]) -> list[list[Stretched]]:
    """The places, collected by the group to which they are stretched."""
    groups: dict[Space, list[Stretched]] = defaultdict(list)
    for place in places:
        groups[find(place.group)].append(place)
    return list(groups.values())


def merged(axes: Axes, instance: LineInstance, by_node: Mapping[Node, LineInstance]) -> Iterator[Stretched]:
    """The places where a stretched axis is merged with an axis of one element in front of it."""
    value = instance.node.input(0)
    if value is None or instance.line.treatment != "layout" or instance.node.has(TURN):
        return
    in_terms, out_terms = instance.line.inputs[0] or (), instance.line.outputs[0] or ()
    for axis, (first, group) in enumerate(pairwise(in_terms)):
        space = find(axes.of(value)[axis + 1])
        if first == "1" and isinstance(group, str) and group in out_terms and is_group(space):
            group_axes = _as_stretched(by_node, (value, axis + 1))
            if group_axes:
                yield Stretched((value, axis), space, group_axes)


def _as_stretched(by_node: Mapping[Node, LineInstance], place: ValueAxis) -> tuple[ValueAxis, ...]:
    """The axis and its earlier forms, back to the operator that stretches it; empty if no operator does."""
    forms = [place]
    for value, axis in forms:
        instance = None if value.producer is None else by_node.get(value.producer)
        if instance is None:
            break
        if instance.node.has(REPEAT):
            before = instance.line.inputs[0] or ()
            at = axis - (value.rank - len(before))
            return tuple(forms) if at < 0 or before[at] == "1" else ()
        term = (instance.line.outputs[0] or ())[axis] if value is instance.node.outputs[0] else "_"
        sources = [(v, k) for v, k, other_term in instance.reads() if other_term == term and labels(term)]
        forms += sources if len(sources) == 1 else []
    return ()


def _repeated(instance: LineInstance) -> Iterator[Stretched]:
    """Operators whose line has both units and group: h heads of keys and values for (h g) of queries."""
    node, group = instance.node, instance.spaces.get("g")
    if group is None or not is_group(find(group)):
        return
    attends = instance.line.treatment == "attention"
    for value, terms in zip(node.inputs, instance.line.inputs, strict=False):
        if attends and value in node.inputs[1:3] and value is not None and (terms or ())[1] == "1":
            yield Stretched((value, 1), group)
        elif node.op == REPEAT_OP and value is not None:
            axis = node.integer("axis")
            yield from [Stretched((value, axis), group)] if is_one(value, axis) else []


def is_one(value: Value, axis: int) -> bool:
    """Whether an axis has one element at every sample point."""
    return value.sizes is not None and set(value.sizes[axis]) == {1}


def named_axes(instance: LineInstance, name: Term) -> Iterator[tuple[ValueAxis, Term]]:
    """The axes of the operands whose terms contain a label, each with its term."""
    yield from (((value, k), term) for value, k, term in instance.reads() if name in labels(term))


def is_group(space: Space) -> bool:
    """Whether a space can be made a product of a unit and a group that repeats it."""
    return space.kind == "atom" and space.static and space.frozen is None and not space.unit


def _expose(axes: Axes, by_node: dict[Node, LineInstance], places: Sequence[Stretched]) -> None:
    value, axis = places[0].one
    unit, path = Space(axes.of(value)[axis].size, counts=True), UnitPath(axes, by_node)
    if not all(path.back(*place.one, unit) for place in places):
        return
    group = find(places[0].group)
    inner = Space(group.size)
    structure(group, product([unit, inner]))
    path.hand_on()
    replace_spaces(axes, path.found | dict.fromkeys((axis for s in places for axis in s.alone), inner))


def replace_spaces(axes: Axes, changed: Mapping[ValueAxis, Space]) -> None:
    """Give axes new spaces, and instantiate the operators on them again."""
    for (value, axis), space in changed.items():
        spaces = list(axes.spaces[value])
        spaces[axis] = space
        axes.spaces[value] = tuple(spaces)
    axes.instances = [_again(axes, i, changed) for i in axes.instances]


def _again(axes: Axes, instance: LineInstance, changed: Mapping[ValueAxis, Space]) -> LineInstance:
    """The instance of a node with the new spaces.

    It keeps its line if the line names all changed axes. The line must also name no axis that stays one
    element and would now be stretched, such as one of a rotary table that all layers share.
    """
    node, line = instance.node, instance.line
    pairs = [*zip(node.inputs, line.inputs, strict=False), *zip(node.outputs, line.outputs, strict=False)]
    terms = [t for v, own in pairs if v for k, t in enumerate(own or ()) if (v, k) in changed]
    if not terms and not any((v, k) in changed for v in node.captured for k in range(v.rank)):
        return instance
    alike = all((v, k) in changed for v, own in pairs if v for k, t in enumerate(own or ()) if t in terms)
    named = alike and all(labels(t) for t in terms)
    return instantiate(axes, node, line=line) if named else instantiate(axes, node, counted=True)


class UnitPath:
    """The path of one element back to weights, with the new space of every axis on it."""

    def __init__(self, axes: Axes, by_node: dict[Node, LineInstance]) -> None:
        self.axes, self.by_node = axes, by_node
        self.used_again = cache(self._used_again)
        self.found: dict[ValueAxis, Space] = {}
        self.segments: dict[Space, dict[int, Space]] = {}
        """The new segments of each space of several segments, by the positions where they start."""

    def back(self, value: Value, axis: int, space: Space) -> bool:
        """Whether an axis comes from weights. If so, it and its origins take their new spaces."""
        if (value, axis) in self.found:
            return self.met((value, axis), space)
        if value.weight is not None:
            self.found[value, axis] = space
            return True
        instance = None if value.producer is None else self.by_node.get(value.producer)
        if instance is None:
            return False
        terms = instance.line.outputs[instance.node.outputs.index(value)] or ()
        reached = (
            self.reshaped(instance, terms, axis, space)
            if terms[axis] == "1"
            else self.named(instance, terms[axis], space)
        )
        if reached:
            self.found[value, axis] = space
        return reached

    def named(self, instance: LineInstance, term: Term, space: Space) -> bool:
        """Follow the axis through an operator whose line names it: at least one operand must have it from
        weights.

        If another operand has the axis too, one element of a tensor with other uses stays one and is
        stretched, as in a rotary table.
        """
        if not isinstance(term, str) or term in ("_", "#"):
            return False
        reached = False
        for (value, axis), operand_term in sorted(
            named_axes(instance, term), key=lambda p: self.is_shared(*p[0])
        ):
            if reached and self.is_shared(value, axis):
                continue
            if operand_term == term:
                reached |= self.back(value, axis, space)
            else:
                axis_space = self.whole((value, axis), instance.spaces, operand_term, term, space)
                reached |= self.back(value, axis, axis_space)
        return reached

    def is_shared(self, value: Value, axis: int) -> bool:
        """Whether an axis is one element of a value that has several uses and is made by no product: a stored
        tensor, or a slice or row of it.
        """
        return is_one(value, axis) and self.used_again(value)

    def _used_again(self, value: Value) -> bool:
        """Whether a value that no product makes, or anything it is made of, has several uses."""

        def behind(value: Value) -> Iterable[Value]:
            return () if value.producer is None else value.producer.operands

        reused = False
        for origin in walk([value], behind, nearest=True):
            instance = None if origin.producer is None else self.by_node.get(origin.producer)
            if instance is not None and instance.line.treatment == "contract":
                return False
            reused |= origin.weight in self.axes.used_often or len(origin.users) > 1
        return reused

    def whole(self, place: ValueAxis, spaces: dict[str, Space], term: Term, name: str, space: Space) -> Space:
        """The space of an axis with one new factor or segment. New segments that it already has stay."""
        start, new = 0, dict[int, Space]()
        for part in term[1] if term[0] == "+" else (term,):
            if name in labels(part):
                new[start] = space_of(part, {**spaces, name: space})
                break
            start += space_of(part, spaces).size[0]
        known_space = self.found.get(place)
        if known_space is None:
            new_space = self.filled(place, new)
            self.segments[new_space] = new
            return new_space
        self.add(place, find(known_space), new)
        return known_space

    def filled(self, place: ValueAxis, new: Mapping[int, Space]) -> Space:
        """The space of an axis with new segments."""
        value, axis = place
        new_parts, at, end = list[Space](), 0, 0
        for segment in segments(self.axes.of(value)[axis]):
            if at == end:  # Otherwise the segment is a part of a new one.
                new_parts.append(new.get(at, segment))
                end += new_parts[-1].size[0]
            at += segment.size[0]
        return sum_of(new_parts)

    def add(self, place: ValueAxis, held: Space, new: Mapping[int, Space]) -> None:
        """Add new segments to a space that already has some."""
        self.segments.setdefault(held, {}).update(new)
        filled = self.filled(place, self.segments[held])
        held.kind, held.parts = filled.kind, filled.parts

    def met(self, place: ValueAxis, space: Space) -> bool:
        """Whether an axis that already has a new space can have this one: the same, or one with other
        segments.
        """
        known_space, space = find(self.found[place]), find(space)
        if known_space is space:
            return True
        known_segments, new = self.segments.get(known_space), self.segments.get(space)
        if (
            known_segments is None
            or new is None
            or any(known_segments.get(at, segment) is not segment for at, segment in new.items())
        ):
            return False
        self.add(place, known_space, new)
        space.parent = known_space
        return True

    def hand_on(self) -> None:
        """Give the new spaces of several units to all axes that continue them unchanged.

        A packed projection has other readers than the keys.
        """
        pending = [place for place in self.found if not is_one(*place)]
        while pending:
            value, axis = pending.pop()
            for successor in self.same_after(value, axis):
                if successor not in self.found:
                    self.found[successor] = self.found[value, axis]
                    pending.append(successor)

    def same_after(self, value: Value, axis: int) -> Iterator[ValueAxis]:
        """Axes that operators make of this one unchanged, with as many axes of one element in front as it
        has.
        """
        for instance, operand in ((self.by_node[n], k) for n, k in value.users if n in self.by_node):
            terms = instance.line.inputs[operand] if operand < len(instance.line.inputs) else None
            if terms is None or not labels(terms[axis]):
                continue
            ones = len(ones_before(terms, axis))
            for result, out in zip(instance.node.outputs, instance.line.outputs, strict=False):
                same_axes = [k for k, term in enumerate(out or ()) if term == terms[axis]]
                yield from ((result, k) for k in same_axes if len(ones_before(out or (), k)) == ones)

    def reshaped(self, instance: LineInstance, terms: Sequence[Term], axis: int, space: Space) -> bool:
        """Follow the axis through a reshape: to the same one of the axes of one element before a factor, or
        into the axis of its units.
        """
        source, value = instance.line.inputs[0] or (), instance.node.inputs[0]
        after = next((t for t in terms[axis:] if t != "1"), None)
        if value is None or after is None or not labels(after):
            return False
        name = labels(after)[0]
        for at, term in enumerate(source):
            if name not in labels(term) or (isinstance(term, tuple) and term[0] != "*"):
                continue
            ones, ours = ones_before(source, at), ones_before(terms, list(terms).index(after))
            if not ones or labels(term)[0] != name:
                cut = labels(term).index(name)
                parts = [instance.spaces[n] for n in labels(term)]
                return axis == ours[0] and self.back(value, at, product([*parts[:cut], space, *parts[cut:]]))
            order = ours.index(axis)
            return order < len(ones) and self.back(value, ones[order], space)
        return False


def ones_before(terms: Sequence[Term], before: int) -> list[int]:
    """The axes of one element directly in front of an axis."""
    start = before
    while start > 0 and terms[start - 1] == "1":
        start -= 1
    return list(range(start, before))
