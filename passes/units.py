"""One key/value head: a factor of one element that a graph counts, made visible as a space.

Needs: the axis graph. Gives: the same, in which `(1 g)` that comes out of a broadcast of one to g is a
product of two spaces, a unit and the group, wherever the one can be followed back to weights that make it.

Spaces leave factors of one out: among the many axes of one element that graphs stretch, hardly any counts
something. Where what is stretched is merged with the axis in front of it, that axis counts what is repeated:
several key/value heads would stand there. Its way back to the weights is cut out of the graph once more as
if there were many.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import pairwise

from growc.axes import Space, find, product, structure, sum_of
from growc.graph import Node, Value
from growc.operators import Term, labels
from growc.passes.spaces import Axes, Instance, instantiate

Place = tuple[Value, int]


def count_units(axes: Axes) -> None:
    """Give every unit that counts repeated groups a space of its own, in place."""
    by_node = {i.node: i for i in axes.instances}
    found: dict[int, list[tuple[Place, Place]]] = defaultdict(list)
    for instance in axes.instances:
        for place, group in _merged(axes, instance, by_node):
            found[id(find(group))].append((place, (place[0], place[1] + 1)))
    for places in found.values():
        _expose(axes, by_node, places)


def _merged(axes: Axes, instance: Instance, by_node: dict[Node, Instance]) -> list[tuple[Place, Space]]:
    """Where a stretched axis is merged with one element in front of it: that element, and the group."""
    value = instance.node.input(0)
    made = None if value is None else value.producer
    if value is None or made is None or made.op not in ("Expand", "Tile") or made not in by_node:
        return []
    if instance.line.treatment != "layout" or instance.node.op == "Transpose":
        return []
    own, before = instance.line.inputs[0] or (), by_node[made].line.inputs[0] or ()
    lead = len(own) - len(before)
    found = []
    for axis, (one, group) in enumerate(pairwise(own)):
        stretched = axis + 1 < lead or before[axis + 1 - lead] == "1"
        alone = isinstance(group, str) and group in (instance.line.outputs[0] or ())
        space = find(axes.of(value)[axis + 1])
        if (
            one == "1"
            and stretched
            and alone
            and space.kind == "atom"
            and space.static
            and space.frozen is None
        ):
            found.append(((value, axis), space))
    return found


def _expose(axes: Axes, by_node: dict[Node, Instance], places: Sequence[tuple[Place, Place]]) -> None:
    ways = [_Way(axes, by_node) for _ in places]
    unit = Space(axes.of(places[0][0][0])[places[0][0][1]].size, counts=True)
    if not all(way.back(*place, unit) for way, (place, _) in zip(ways, places, strict=True)):
        return
    value, axis = places[0][1]
    group = find(axes.of(value)[axis])
    inner = Space(group.size)
    structure(group, product([unit, inner]))
    changed: dict[Place, Space] = {}
    for way, (_, (merged, at)) in zip(ways, places, strict=True):
        changed |= way.found
        changed[merged, at] = inner
    for (value, axis), space in changed.items():
        spaces = list(axes.spaces[value])
        spaces[axis] = space
        axes.spaces[value] = tuple(spaces)
    values = {value for value, _ in changed}
    axes.instances = [
        instantiate(axes, i.node, counted=True) if values & {*i.node.operands, *i.node.outputs} else i
        for i in axes.instances
    ]


class _Way:
    """The way of one element back to weights: the new space of every axis on it."""

    def __init__(self, axes: Axes, by_node: dict[Node, Instance]) -> None:
        self.axes, self.by_node = axes, by_node
        self.found: dict[Place, Space] = {}

    def back(self, value: Value, axis: int, space: Space) -> bool:
        """Whether an axis comes from weights; if so, it and all that it comes from take their new spaces."""
        if (value, axis) in self.found:
            return self.found[value, axis] is space
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
        """Through an operator whose line names the axis: at least one operand must have it from weights."""
        if not isinstance(term, str) or term in ("_", "#"):
            return False
        reached = False
        for value, terms in zip(instance.node.inputs, instance.line.inputs, strict=False):
            for axis, other in enumerate(terms or ()):
                if value is None or term not in labels(other):
                    continue
                if other == term:
                    reached |= self.back(value, axis, space)
                elif isinstance(other, tuple) and other[0] == "+":
                    reached |= self.back(value, axis, self.segment(value, axis, instance, other, term, space))
        return reached

    def segment(
        self, value: Value, axis: int, instance: Instance, whole: Term, name: str, space: Space
    ) -> Space:
        """The space of an axis of which one segment is new; segments that are new already stay so."""
        parts = [space if n == name else find(instance.spaces[n]) for n in labels(whole)]
        held = self.found.get((value, axis))
        if held is None:
            return sum_of(parts)
        held.parts = tuple(space if n == name else p for n, p in zip(labels(whole), held.parts, strict=True))
        return held

    def reshaped(self, instance: Instance, terms: Sequence[Term], axis: int, space: Space) -> bool:
        """Through a reshape: the same one of those in front of the same factor, or the first of its units."""
        source, value = instance.line.inputs[0] or (), instance.node.inputs[0]
        after = next((t for t in terms[axis:] if t != "1"), None)
        if value is None or after is None or not labels(after):
            return False
        name = labels(after)[0]
        for at, term in enumerate(source):
            if labels(term)[:1] != [name]:
                continue
            ones, ours = _ones(source, at), _ones(terms, list(terms).index(after))
            if not ones:
                return axis == ours[0] and self.back(value, at, product([space, self.axes.of(value)[at]]))
            order = ours.index(axis)
            return order < len(ones) and self.back(value, ones[order], space)
        return False


def _ones(terms: Sequence[Term], before: int) -> list[int]:
    """The axes of one element that stand directly in front of an axis."""
    start = before
    while start > 0 and terms[start - 1] == "1":
        start -= 1
    return list(range(start, before))
