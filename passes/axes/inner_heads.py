"""One head in each of several parts: a factor of one element behind a count, made visible as a space.

Needs: the axis graph. Gives: the same, in which `g 1` that a reshape merges is (g u), wherever the one can be
followed back to weights that make it, and what was merged on to weights that read it.

Spaces leave factors of one out (growc.passes.axes.units), so that more heads are more parts. A class that is
made of a fixed number of parts has more heads in each instead.
"""

from __future__ import annotations

from growc.algebra.space import Space, find, product
from growc.ir.notation import Term, labels
from growc.passes.axes.infer import Axes, Instance
from growc.passes.axes.queries import Flow
from growc.passes.axes.single_heads import Around
from growc.passes.axes.units import Place, is_group, replace_spaces
from growc.passes.raising.heads import merges


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
    if not merges(instance.node) or value is None:
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
