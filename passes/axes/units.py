"""One key/value head: a factor of one element that a graph counts, made visible as a space.

Needs: the axis graph. Gives: the same, in which `(1 g)` that comes out of a broadcast of one to g is a
product of two spaces, a unit and the group, wherever the one can be followed back to weights that make it.

Spaces leave factors of one out: among the many axes of one element that graphs stretch, hardly any counts
something. Where what is stretched is merged with the axis in front of it, that axis counts what is repeated:
several key/value heads would stand there. So does what an attention operator shares. Its way back to the
weights is cut out of the graph once more as if there were many.
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
from growc.passes.axes.infer import Axes, Instance, instantiate, space_of
from growc.passes.raising.attention import REPEAT_OP

Place = tuple[Value, int]


@dataclass(frozen=True, eq=False)
class Stretched:
    """One element that a broadcast stretches to a group; `alone`: the axes that are the group alone.

    by: where no operator counts it, the product that stretches it, and which of its operands it is.
    """

    one: Place
    group: Space
    alone: tuple[Place, ...] = ()
    by: tuple[Node, int] | None = None


def count_units(axes: Axes) -> None:
    """Give every unit that counts repeated groups a space of its own, in place."""
    by_node = {i.node: i for i in axes.instances}
    places = [s for i in axes.instances for s in [*merged(axes, i, by_node), *_repeated(i)]]
    for found in by_group(places):
        _expose(axes, by_node, found)


def by_group(places: Iterable[Stretched]) -> list[list[Stretched]]:
    """What is stretched to one group, together."""
    found: dict[Space, list[Stretched]] = defaultdict(list)
    for place in places:
        found[find(place.group)].append(place)
    return list(found.values())


def merged(axes: Axes, instance: Instance, by_node: Mapping[Node, Instance]) -> Iterator[Stretched]:
    """Where a stretched axis is merged with one element in front of it: that element, and the group."""
    value = instance.node.input(0)
    if value is None or instance.line.treatment != "layout" or instance.node.has(TURN):
        return
    own, made = instance.line.inputs[0] or (), instance.line.outputs[0] or ()
    for axis, (one, group) in enumerate(pairwise(own)):
        space = find(axes.of(value)[axis + 1])
        if one == "1" and isinstance(group, str) and group in made and is_group(space):
            alone = _as_stretched(by_node, (value, axis + 1))
            if alone:
                yield Stretched((value, axis), space, alone)


def _as_stretched(by_node: Mapping[Node, Instance], place: Place) -> tuple[Place, ...]:
    """An axis, and those that it was before, up to where an operator stretches it; none where none does."""
    found = [place]
    for value, axis in found:
        instance = None if value.producer is None else by_node.get(value.producer)
        if instance is None:
            break
        if instance.node.has(REPEAT):
            before = instance.line.inputs[0] or ()
            at = axis - (value.rank - len(before))
            return tuple(found) if at < 0 or before[at] == "1" else ()
        term = (instance.line.outputs[0] or ())[axis] if value is instance.node.outputs[0] else "_"
        behind = [(v, k) for v, k, other in instance.reads() if other == term and labels(term)]
        found += behind if len(behind) == 1 else []
    return ()


def _repeated(instance: Instance) -> Iterator[Stretched]:
    """Operators that have both in their line: h heads of keys and values for (h g) of queries."""
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


def named_axes(instance: Instance, name: Term) -> Iterator[tuple[Place, Term]]:
    """The axes of the operands in which a label stands, each with its term."""
    yield from (((value, k), term) for value, k, term in instance.reads() if name in labels(term))


def is_group(space: Space) -> bool:
    """Whether a space can be made a product of a unit and what repeats it."""
    return space.kind == "atom" and space.static and space.frozen is None and not space.unit


def _expose(axes: Axes, by_node: dict[Node, Instance], places: Sequence[Stretched]) -> None:
    value, axis = places[0].one
    unit, way = Space(axes.of(value)[axis].size, counts=True), Way(axes, by_node)
    if not all(way.back(*place.one, unit) for place in places):
        return
    group = find(places[0].group)
    inner = Space(group.size)
    structure(group, product([unit, inner]))
    way.hand_on()
    replace_spaces(axes, way.found | dict.fromkeys((axis for s in places for axis in s.alone), inner))


def replace_spaces(axes: Axes, changed: Mapping[Place, Space]) -> None:
    """Give axes new spaces, and take the operators on them once more."""
    for (value, axis), space in changed.items():
        spaces = list(axes.spaces[value])
        spaces[axis] = space
        axes.spaces[value] = tuple(spaces)
    axes.instances = [_again(axes, i, changed) for i in axes.instances]


def _again(axes: Axes, instance: Instance, changed: Mapping[Place, Space]) -> Instance:
    """A node's line with the new spaces: the same one, where it names all axes that have some, and none that
    stays one element (of a rotary table that all layers share) and would be stretched now.
    """
    node, line = instance.node, instance.line
    pairs = [*zip(node.inputs, line.inputs, strict=False), *zip(node.outputs, line.outputs, strict=False)]
    terms = [t for v, own in pairs if v for k, t in enumerate(own or ()) if (v, k) in changed]
    if not terms and not any((v, k) in changed for v in node.captured for k in range(v.rank)):
        return instance
    alike = all((v, k) in changed for v, own in pairs if v for k, t in enumerate(own or ()) if t in terms)
    named = alike and all(labels(t) for t in terms)
    return instantiate(axes, node, line=line) if named else instantiate(axes, node, counted=True)


class Way:
    """The way of one element back to weights: the new space of every axis on it."""

    def __init__(self, axes: Axes, by_node: dict[Node, Instance]) -> None:
        self.axes, self.by_node = axes, by_node
        self.used_again = cache(self._used_again)
        self.found: dict[Place, Space] = {}
        self.segments: dict[Space, dict[int, Space]] = {}
        """Of a space of several segments: those that are new, by where they start."""

    def back(self, value: Value, axis: int, space: Space) -> bool:
        """Whether an axis comes from weights; if so, it and all that it comes from take their new spaces."""
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

    def named(self, instance: Instance, term: Term, space: Space) -> bool:
        """Through an operator whose line names the axis: at least one operand must have it from weights.

        Where another operand has the axis, one element of a tensor that others use too stays one and is
        stretched: so does a rotary table.
        """
        if not isinstance(term, str) or term in ("_", "#"):
            return False
        reached = False
        for (value, axis), other in sorted(named_axes(instance, term), key=lambda p: self.is_shared(*p[0])):
            if reached and self.is_shared(value, axis):
                continue
            if other == term:
                reached |= self.back(value, axis, space)
            else:
                whole = self.whole((value, axis), instance.spaces, other, term, space)
                reached |= self.back(value, axis, whole)
        return reached

    def is_shared(self, value: Value, axis: int) -> bool:
        """Whether an axis is one element of what is used several times and no product makes: a stored tensor,
        a slice or a row of it.
        """
        return is_one(value, axis) and self.used_again(value)

    def _used_again(self, value: Value) -> bool:
        """Whether what no product makes is used several times, itself or anything it is made of."""

        def behind(value: Value) -> Iterable[Value]:
            return () if value.producer is None else value.producer.operands

        again = False
        for made in walk([value], behind, nearest=True):
            maker = None if made.producer is None else self.by_node.get(made.producer)
            if maker is not None and maker.line.treatment == "contract":
                return False
            again |= made.weight in self.axes.used_often or len(made.users) > 1
        return again

    def whole(self, place: Place, spaces: dict[str, Space], term: Term, name: str, space: Space) -> Space:
        """The space of an axis of which one factor or segment is new; those that are new already stay so."""
        start, new = 0, dict[int, Space]()
        for part in term[1] if term[0] == "+" else (term,):
            if name in labels(part):
                new[start] = space_of(part, {**spaces, name: space})
                break
            start += space_of(part, spaces).size[0]
        held = self.found.get(place)
        if held is None:
            made = self.filled(place, new)
            self.segments[made] = new
            return made
        self.add(place, find(held), new)
        return held

    def filled(self, place: Place, new: Mapping[int, Space]) -> Space:
        """The space of an axis with new segments."""
        value, axis = place
        kept, at, end = list[Space](), 0, 0
        for segment in segments(self.axes.of(value)[axis]):
            if at == end:  # else it is a part of one that is new
                kept.append(new.get(at, segment))
                end += kept[-1].size[0]
            at += segment.size[0]
        return sum_of(kept)

    def add(self, place: Place, held: Space, new: Mapping[int, Space]) -> None:
        """New segments in a space that has some."""
        self.segments.setdefault(held, {}).update(new)
        made = self.filled(place, self.segments[held])
        held.kind, held.parts = made.kind, made.parts

    def met(self, place: Place, space: Space) -> bool:
        """Whether an axis that has a new space can have this one: the same, or one of other segments."""
        held, space = find(self.found[place]), find(space)
        if held is space:
            return True
        there, new = self.segments.get(held), self.segments.get(space)
        if there is None or new is None or any(there.get(at, one) is not one for at, one in new.items()):
            return False
        self.add(place, held, new)
        space.parent = held
        return True

    def hand_on(self) -> None:
        """Give the new spaces of several units to all that hands them on as they are: a packed projection has
        other readers than the keys.
        """
        pending = [place for place in self.found if not is_one(*place)]
        while pending:
            value, axis = pending.pop()
            for made in self.same_after(value, axis):
                if made not in self.found:
                    self.found[made] = self.found[value, axis]
                    pending.append(made)

    def same_after(self, value: Value, axis: int) -> Iterator[Place]:
        """Axes that operators make of this one as it is, where none of its factors may stand in front."""
        for instance, operand in ((self.by_node[n], k) for n, k in value.users if n in self.by_node):
            terms = instance.line.inputs[operand] if operand < len(instance.line.inputs) else None
            if terms is None or not labels(terms[axis]):
                continue
            ones = len(ones_before(terms, axis))
            for made, out in zip(instance.node.outputs, instance.line.outputs, strict=False):
                same = [k for k, term in enumerate(out or ()) if term == terms[axis]]
                yield from ((made, k) for k in same if len(ones_before(out or (), k)) == ones)

    def reshaped(self, instance: Instance, terms: Sequence[Term], axis: int, space: Space) -> bool:
        """Through a reshape: the same one of those in front of the same factor, or in front of its units."""
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
    """The axes of one element that stand directly in front of an axis."""
    start = before
    while start > 0 and terms[start - 1] == "1":
        start -= 1
    return list(range(start, before))
