"""Axes and layers that a plan changes and its class cannot change: they stay, while others follow the
statement.

Needs: a compilation, and the config that comes closest to its plan. Gives: a `Kept` with which the plan is
made again. For example, a head whose width is a number in the class's code has no config, but its backbone
has one.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.algebra.space import segments
from growc.checkpoint.classes.model import class_model
from growc.checkpoint.classes.stored_axes import StoredAxes, StoredAxis
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.passes.compilation import Kept, Result

FEW = 4
"""If more runs of layers than these may change, none is tried alone as the one the class cannot follow."""


def kept(unsolved: Unsolved, axes: StoredAxes) -> Kept:
    """The axes and layers that stay: those that stayed before, and axes that the plan changes and this config
    does not.

    If there are no such axes, runs of layers stay: with wrong sizes, a config may not read all its layers
    yet.
    """
    before, mine = axes.c.kept, _axes(unsolved, axes)
    runs = before.runs if mine else before.runs.union(_runs(unsolved, axes.c))
    return Kept(before.axes.union(mine), runs, _cause(axes.c))


def one_less(c: Result) -> list[Kept]:
    """For each run of layers that may change, what stays if this run stays too.

    Used if nothing shows which run the class cannot follow.
    """
    before = c.kept
    movable = [k for k, run in enumerate(c.depth.runs) if run.moved and k not in before.runs]
    candidates = movable if 1 < len(movable) <= FEW else []
    return [Kept(before.axes, before.runs | {k}, _cause(c)) for k in candidates]


def _cause(c: Result) -> str:
    return f"no config of `{type(class_model(c).class_weights.module).__name__}` was found that changes these"


def _axes(unsolved: Unsolved, axes: StoredAxes) -> list[StoredAxis]:
    """Axes of one space each if there are any, since an axis over several spaces may differ by one of them
    only.
    """
    plans = {weight.name: weight for weight in axes.c.plan.weights}
    places = [
        (axes.first(name), axis)
        for name, axis, planned, class_size in unsolved.sizes
        if name in plans and planned != class_size == plans[name].before[axis]
    ]
    single_space = [
        place for place in places if (space := axes.at(place)) is not None and len(segments(space)) == 1
    ]
    return single_space or places


def _runs(unsolved: Unsolved, c: Result) -> Iterator[int]:
    """Runs of layers with tensors that only the plan has, or only the class."""
    origins = {weight.name: weight.copy_of or weight.source for weight in c.plan.weights}
    names = {origins.get(name, name) for name in unsolved.names}
    for number, run in enumerate(c.edited.layers.runs):
        if not names.isdisjoint(run.tensors):
            yield number
