"""Axes and layers that a plan changes and its class cannot: where others follow the statement, they stay.

Needs: a compilation, and the config that comes closest to its plan. Gives: `Kept`, with which the plan is
made once more. A head that is as wide as a number in the class's code has no config; its backbone has one.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import segments
from growc.checkpoint.classes.model import held_model
from growc.checkpoint.classes.stored_axes import Place, StoredAxes
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.passes.compilation import Kept, Result

FEW = 4
"""Of more runs of layers than these it is not tried which one the class cannot follow."""


def kept(found: Unsolved, axes: StoredAxes) -> Kept:
    """What stays: what stayed before, and axes that the plan changes and this config leaves as they were; if
    there are none, runs of layers: where sizes are wrong, a config may not read all of its layers yet.
    """
    before, mine = axes.c.kept, _axes(found, axes)
    runs = before.runs if mine else before.runs.union(_runs(found, axes.c))
    return Kept(before.axes.union(mine), runs, _cause(axes.c))


def one_less(c: Result) -> list[Kept]:
    """For each run of layers that may change, what stays if it stays too: where nothing says which one it is
    that the class cannot follow.
    """
    before = c.kept
    free = [k for k, past in enumerate(c.depth.runs) if past.moved and k not in before.runs]
    some = free if 1 < len(free) <= FEW else []
    return [Kept(before.axes, before.runs | {k}, _cause(c)) for k in some]


def _cause(c: Result) -> str:
    return f"no config of `{type(held_model(c).holder.module).__name__}` was found that changes these"


def _axes(found: Unsolved, axes: StoredAxes) -> list[Place]:
    """Axes of one space each, if there are any: what runs over several may differ by one of them."""
    plans = {weight.name: weight for weight in axes.c.plan.weights}
    places = [
        (axes.first(name), axis)
        for name, axis, planned, there in found.sizes
        if name in plans and planned != there == plans[name].before[axis]
    ]
    one = [place for place in places if (space := axes.at(place)) is not None and len(segments(space)) == 1]
    return one or places


def _runs(found: Unsolved, c: Result) -> Iterator[int]:
    """Runs of layers of which one of both, plan and class, has more."""
    origins = {weight.name: weight.copy_of or weight.source for weight in c.plan.weights}
    names = {origins.get(name, name) for name in found.names}
    for number, run in enumerate(c.edited.layers.runs):
        if not names.isdisjoint(run.tensors):
            yield number
