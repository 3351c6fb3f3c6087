"""One head: an axis of one element between scores and the weights around them, made visible as a space.

Needs: the axis graph. Gives: the same, in which the queries, keys, values and the output projection of an
attention of one head have an axis (1 d), if a reshape takes the one out of what weights make for all three,
and puts it back in front of what the projection reads.

Spaces leave factors of one out (growc.passes.axes.units). Whatever meets the element on its way follows it to
weights that make it, or is broadcast over it; where it is cut, summed or given out, nothing is changed.

More heads are more parts, where a reshape merges `g 1`. A class that is made of a fixed number of parts has
more heads in each instead: then what is merged is (g u), wherever the one can be followed back to weights
that make it, and what was merged on to weights that read it.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import Space, find, leaves, product
from growc.ir.graph import Value
from growc.ir.notation import Term, labels, names_of
from growc.ir.traits import VIEW
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import Flow
from growc.passes.axes.units import Place, Way, is_group, named_axes, ones_before, replace_spaces
from growc.passes.raising.attention import attends, scores_of, weighs


def count_heads(axes: Axes) -> None:
    """Give the one head of every attention that has a single one a space of its own, in place."""
    if not any(weighs(i.node) or attends(i) for i in axes.instances):
        return
    flow = Flow(axes)
    changed: dict[Place, Space] = {}
    for scores, axis in _single(flow):
        way = Around(flow, Space(axes.of(scores.node.outputs[0])[axis].size, counts=True))
        term = (scores.line.outputs[0] or ())[axis]
        if (
            way.joined(scores, -1, term, way.unit)
            and way.passed_on(scores, term, way.unit)
            and not changed.keys() & way.found.keys()
        ):
            changed |= way.found
    if changed:
        replace_spaces(axes, changed)


def _single(flow: Flow) -> Iterator[tuple[Instance, int]]:
    """What has queries and keys without heads, and each axis of one element that these share."""
    for instance in flow.axes.instances:
        scores = scores_of(flow, instance)
        if scores is None:
            continue
        both = [set(names_of(terms)) for terms in scores.line.inputs[:2]]
        terms = scores.line.outputs[0] or ()
        batch = [k for k, t in enumerate(terms) if isinstance(t, str) and t in both[0] & both[1]]
        atoms = {x for k in batch for x in leaves(flow.axes.of(scores.node.outputs[0])[k])}
        if atoms.isdisjoint(flow.on_weights):
            yield from ((scores, k) for k in batch if flow.axes.of(scores.node.outputs[0])[k].unit)


class Around(Way):
    """The ways of one head from the scores, up to the weights that make it and down to those that read it."""

    def __init__(self, flow: Flow, unit: Space) -> None:
        super().__init__(flow.axes, flow.by_node)
        self.flow, self.unit = flow, unit
        self.given = {*flow.axes.graph.outputs}

    def back(self, value: Value, axis: int, space: Space) -> bool:
        """As for any way; but a weight has the head in front of its units, not as an axis that is a batch."""
        if value.weight is not None and space is self.unit:
            return False
        return super().back(value, axis, space)

    def named(self, instance: Instance, term: Term, space: Space) -> bool:
        """As for any way; what is put end to end has the head from weights in all its parts."""
        if not super().named(instance, term, space):
            return False
        parts = [place for place, other in named_axes(instance, term) if other == term]
        return instance.line.treatment != "layout" or all(part in self.found for part in parts)

    def forward(self, value: Value, axis: int, space: Space) -> bool:
        """Whether the head can be followed to weights through everything that makes and uses this axis."""
        if (value, axis) in self.found:
            return self.found[value, axis] is space
        self.found[value, axis] = space
        return self.used(value, axis, space)

    def used(self, value: Value, axis: int, space: Space) -> bool:
        """The same, for all that uses a value; one that nothing uses is no obstacle."""
        uses = [(self.by_node[n], i) for n, i in value.users if n in self.by_node]
        if value in self.given or (value.users and not uses):
            return False
        return all(self.onward(instance, i, axis, space) for instance, i in uses)

    def onward(self, instance: Instance, operand: int, axis: int, space: Space) -> bool:
        """Through one operator that uses the axis."""
        terms = instance.line.inputs[operand] if operand < len(instance.line.inputs) else None
        if terms is None:
            return False
        if terms[axis] == "1":
            return self.merged(instance, terms, axis, space)
        return self.joined(instance, operand, terms[axis], space) and self.passed_on(
            instance, terms[axis], space
        )

    def joined(self, instance: Instance, operand: int, term: Term, space: Space) -> bool:
        """Whether the other operands have the axis from weights, or are broadcast where that may be."""
        if term == "1":
            return True
        if not isinstance(term, str) or term in ("_", "#"):
            return False
        contracts = instance.line.treatment == "contract" or attends(instance)
        for i, value, axis, other in instance.operands():
            if i != operand and term in labels(other):
                reached = other == term and self.back(value, axis, space)
                if not reached and (contracts or other != term):
                    return False
        return True

    def passed_on(self, instance: Instance, term: Term, space: Space) -> bool:
        """Whether the axis goes on in the results, or ends in a product with a weight."""
        outs = [place for place in instance.makes() if term in labels(place[2])]
        if not outs:
            return instance.line.treatment == "contract" and self.flow.weight_of(instance) is not None
        return all(other == term and self.forward(value, axis, space) for value, axis, other in outs)

    def merged(self, instance: Instance, terms: tuple[Term, ...], axis: int, space: Space) -> bool:
        """Through a reshape that puts the head in front of what it has."""
        after = terms[axis + 1] if axis + 1 < len(terms) else None
        out, made = instance.node.outputs[0], instance.line.outputs[0] or ()
        if not instance.node.has(VIEW) or after is None or after not in made:
            return False
        at = made.index(after)
        whole = self.axes.of(out)[at]
        alone = ones_before(terms, axis + 1) == [axis] and not ones_before(made, at) and whole.static
        return alone and self.forward(out, at, product([space, whole]))


# ---------------------------------------------------------------------------- one head in each part


def inner_heads(axes: Axes) -> dict[Place, Space]:
    """New spaces of the axes on which the one head in each part comes and goes; none where there is none."""
    found: dict[Space, list[tuple[Place, Place]]] = {}
    for instance in axes.instances:
        for one, whole in _merged(axes, instance):
            found.setdefault(find(axes.of(whole[0])[whole[1]]), []).append((one, whole))
    changed: dict[Place, Space] = {}
    flow = Flow(axes)
    for places in found.values():
        way = _Inside(flow, Space(axes.of(places[0][0][0])[places[0][0][1]].size, counts=True))
        if way.follows(places) and not changed.keys() & way.found.keys():
            changed |= way.found
    return changed


def count_inner_heads(axes: Axes) -> None:
    """Give the one head in each part a space of its own, in place."""
    changed = inner_heads(axes)
    if changed:
        replace_spaces(axes, changed)


def _merged(axes: Axes, instance: Instance) -> list[tuple[Place, Place]]:
    """Where one element is merged with the axis in front of it: that element, and the axis that is made."""
    value, line = instance.node.input(0), instance.line
    if not instance.node.has(VIEW) or value is None:
        return []
    own, made, out = line.inputs[0] or (), line.outputs[0] or (), instance.node.outputs[0]
    return [
        ((value, k), (out, made.index(own[k - 1])))
        for k in range(1, len(own))
        if own[k] == "1"
        and own[k - 1] in made
        and own[k - 1] != "1"
        and is_group(find(axes.of(value)[k - 1]))
    ]


class _Inside(Around):
    """The ways of one head in each part, from where it is merged with them."""

    def follows(self, places: list[tuple[Place, Place]]) -> bool:
        """Whether all of these can be followed both ways."""
        (first, at) = places[0][1]
        whole = product([self.axes.of(first)[at], self.unit])
        for _, place in places:
            self.found[place] = whole
        backward = all(self.back(*one, self.unit) for one, _ in places)
        return backward and all(self.used(*place, whole) for _, place in places)

    def passed_on(self, instance: Instance, term: Term, space: Space) -> bool:
        """As for any way; heads may be merged with what stands behind them."""
        for value, axis, other in instance.makes():
            if other != term and isinstance(term, str) and term in labels(other):
                made = self.whole((value, axis), instance.spaces, other, term, space)
                return self.forward(value, axis, made)
        return super().passed_on(instance, term, space)
