"""Single heads: an axis of one element between scores and the weights around them, made visible as a space.

Needs: the axis graph. Gives: the same graph, in which the queries, keys, values and output projection of an
attention with one head have an axis (1 d). That holds if a reshape splits the one off the results of the
weights for all three, and merges it again in front of what the projection reads.

Spaces leave out factors of one (growc.passes.axes.units). Any operand that meets the element on its way
either comes from weights that make it, or is broadcast over it. If the element is sliced, summed or given
out, nothing changes.

More heads mean more parts if a reshape merges `g 1`. A class with a fixed number of parts has more heads in
each part instead: the merged axis is then (g u). This requires that the one can be followed back to weights
that make it, and the merged axis on to weights that read it.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import Space, find, leaves, product
from growc.ir.graph import Value
from growc.ir.notation import Term, labels, names_of
from growc.ir.traits import VIEW
from growc.passes.axes.infer import Axes, LineInstance
from growc.passes.axes.queries import AxisQueries
from growc.passes.axes.units import UnitPath, ValueAxis, is_group, named_axes, ones_before, replace_spaces
from growc.passes.raising.attention import attends, scores_of, weighs


def count_heads(axes: Axes) -> None:
    """Give the head of every attention that has only one a space of its own, in place."""
    if not any(weighs(i.node) or attends(i) for i in axes.instances):
        return
    flow = AxisQueries(axes)
    changed: dict[ValueAxis, Space] = {}
    for scores, axis in _single(flow):
        path = HeadPath(flow, Space(axes.of(scores.node.outputs[0])[axis].size, counts=True))
        term = (scores.line.outputs[0] or ())[axis]
        if (
            path.joined(scores, -1, term, path.unit)
            and path.passed_on(scores, term, path.unit)
            and not changed.keys() & path.found.keys()
        ):
            changed |= path.found
    if changed:
        replace_spaces(axes, changed)


def _single(flow: AxisQueries) -> Iterator[tuple[LineInstance, int]]:
    """The scores of queries and keys without heads, with each shared axis of one element."""
    for instance in flow.axes.instances:
        scores = scores_of(flow, instance)
        if scores is None:
            continue
        both = [set(names_of(terms)) for terms in scores.line.inputs[:2]]
        terms = scores.line.outputs[0] or ()
        batch = [k for k, t in enumerate(terms) if isinstance(t, str) and t in both[0] & both[1]]
        atoms = {leaf for k in batch for leaf in leaves(flow.axes.of(scores.node.outputs[0])[k])}
        if atoms.isdisjoint(flow.on_weights):
            yield from ((scores, k) for k in batch if flow.axes.of(scores.node.outputs[0])[k].unit)


class HeadPath(UnitPath):
    """The paths of one head from the scores: up to the weights that make it, and down to those that
    read it.
    """

    def __init__(self, flow: AxisQueries, unit: Space) -> None:
        super().__init__(flow.axes, flow.by_node)
        self.flow, self.unit = flow, unit
        self.given = {*flow.axes.graph.outputs}

    def back(self, value: Value, axis: int, space: Space) -> bool:
        """As for any path, except that a weight has the head in front of its units, not as a batch axis."""
        if value.weight is not None and space is self.unit:
            return False
        return super().back(value, axis, space)

    def named(self, instance: LineInstance, term: Term, space: Space) -> bool:
        """As for any path, except that all parts of a concatenation must have the head from weights."""
        if not super().named(instance, term, space):
            return False
        parts = [place for place, part_term in named_axes(instance, term) if part_term == term]
        return instance.line.treatment != "layout" or all(part in self.found for part in parts)

    def forward(self, value: Value, axis: int, space: Space) -> bool:
        """Whether the head can be followed to weights through everything that makes and uses this axis."""
        if (value, axis) in self.found:
            return self.found[value, axis] is space
        self.found[value, axis] = space
        return self.used(value, axis, space)

    def used(self, value: Value, axis: int, space: Space) -> bool:
        """The same for all users of a value; a value without users is no obstacle."""
        uses = [(self.by_node[n], i) for n, i in value.users if n in self.by_node]
        if value in self.given or (value.users and not uses):
            return False
        return all(self.onward(instance, i, axis, space) for instance, i in uses)

    def onward(self, instance: LineInstance, operand: int, axis: int, space: Space) -> bool:
        """The same through one operator that uses the axis."""
        terms = instance.line.inputs[operand] if operand < len(instance.line.inputs) else None
        if terms is None:
            return False
        if terms[axis] == "1":
            return self.merged(instance, terms, axis, space)
        return self.joined(instance, operand, terms[axis], space) and self.passed_on(
            instance, terms[axis], space
        )

    def joined(self, instance: LineInstance, operand: int, term: Term, space: Space) -> bool:
        """Whether the other operands have the axis from weights, or may be broadcast over it."""
        if term == "1":
            return True
        if not isinstance(term, str) or term in ("_", "#"):
            return False
        contracts = instance.line.treatment == "contract" or attends(instance)
        for i, value, axis, other_term in instance.operands():
            if i != operand and term in labels(other_term):
                reached = other_term == term and self.back(value, axis, space)
                if not reached and (contracts or other_term != term):
                    return False
        return True

    def passed_on(self, instance: LineInstance, term: Term, space: Space) -> bool:
        """Whether the axis continues in the results, or ends in a product with a weight."""
        outs = [place for place in instance.makes() if term in labels(place[2])]
        if not outs:
            return instance.line.treatment == "contract" and self.flow.weight_of(instance) is not None
        return all(out_term == term and self.forward(value, axis, space) for value, axis, out_term in outs)

    def merged(self, instance: LineInstance, terms: tuple[Term, ...], axis: int, space: Space) -> bool:
        """The same through a reshape that merges the head with the axis of its channels."""
        after = terms[axis + 1] if axis + 1 < len(terms) else None
        out, out_terms = instance.node.outputs[0], instance.line.outputs[0] or ()
        if not instance.node.has(VIEW) or after is None or after not in out_terms:
            return False
        out_axis = out_terms.index(after)
        out_space = self.axes.of(out)[out_axis]
        only_factor = (
            ones_before(terms, axis + 1) == [axis]
            and not ones_before(out_terms, out_axis)
            and out_space.static
        )
        return only_factor and self.forward(out, out_axis, product([space, out_space]))


# ---------------------------------------------------------------------------- one head in each part


def inner_heads(axes: Axes) -> dict[ValueAxis, Space]:
    """New spaces of the axes on which the one head in each part appears; empty if there is no such head."""
    by_space: dict[Space, list[tuple[ValueAxis, ValueAxis]]] = {}
    for instance in axes.instances:
        for one_place, merged_place in _merged(axes, instance):
            by_space.setdefault(find(axes.of(merged_place[0])[merged_place[1]]), []).append(
                (one_place, merged_place)
            )
    changed: dict[ValueAxis, Space] = {}
    flow = AxisQueries(axes)
    for places in by_space.values():
        path = _Inside(flow, Space(axes.of(places[0][0][0])[places[0][0][1]].size, counts=True))
        if path.follows(places) and not changed.keys() & path.found.keys():
            changed |= path.found
    return changed


def count_inner_heads(axes: Axes) -> None:
    """Give the one head in each part a space of its own, in place."""
    changed = inner_heads(axes)
    if changed:
        replace_spaces(axes, changed)


def _merged(axes: Axes, instance: LineInstance) -> list[tuple[ValueAxis, ValueAxis]]:
    """The places where an axis of one element is merged with the axis in front of it: that axis, and the
    merged one.
    """
    value, line = instance.node.input(0), instance.line
    if not instance.node.has(VIEW) or value is None:
        return []
    in_terms, out_terms, out = line.inputs[0] or (), line.outputs[0] or (), instance.node.outputs[0]
    return [
        ((value, k), (out, out_terms.index(in_terms[k - 1])))
        for k in range(1, len(in_terms))
        if in_terms[k] == "1"
        and in_terms[k - 1] in out_terms
        and in_terms[k - 1] != "1"
        and is_group(find(axes.of(value)[k - 1]))
    ]


class _Inside(HeadPath):
    """The paths of one head in each part, from the places where it is merged with the parts."""

    def follows(self, places: list[tuple[ValueAxis, ValueAxis]]) -> bool:
        """Whether all of these heads can be followed in both directions."""
        (first, at) = places[0][1]
        whole = product([self.axes.of(first)[at], self.unit])
        for _, place in places:
            self.found[place] = whole
        backward = all(self.back(*one_place, self.unit) for one_place, _ in places)
        return backward and all(self.used(*place, whole) for _, place in places)

    def passed_on(self, instance: LineInstance, term: Term, space: Space) -> bool:
        """As for any path, except that heads may be merged with the axes behind them."""
        for value, axis, out_term in instance.makes():
            if out_term != term and isinstance(term, str) and term in labels(out_term):
                new_space = self.whole((value, axis), instance.spaces, out_term, term, space)
                return self.forward(value, axis, new_space)
        return super().passed_on(instance, term, space)
