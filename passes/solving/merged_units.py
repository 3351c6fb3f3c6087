"""The merging of consecutive units into their mean (`merge experts`).

Needs: a statement with `merges`, and sizes as they stand before it. Gives: the steps of every weight that has
the units, the maps of outputs, and the gap. Raises GrowError (G304) where a weight has no means.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap
from growc.algebra.space import Space, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Value
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.axes.infer import Axes
from growc.passes.heads.move_heads import OutputAxis, matrix_of
from growc.plans.plan import MEAN, AxisStep, Gap, Layout, LeafStep


def merge_units(
    axes: Axes, stage: Stage, sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[OutputAxis, IndexMap], dict[OutputAxis, Floats]]:
    """The steps of weights, the maps of output axes, and these maps as matrices.

    Raises GrowError (G304) where a weight has no means.
    """
    steps: dict[Value, list[AxisStep]] = {}
    for use in axes.graph.uses():
        for axis, layout in _changed(axes, stage, sizes, use):
            if use.weight is None or not use.weight.floating or use.weight.stored is not None:
                cause = f"`{use.name}` holds them as integers, of which there is no mean"
                raise GrowError(Diagnostic("G304", f"`{stage.axis}` cannot be merged: {cause}", stage.span))
            steps.setdefault(use, []).append(AxisStep(axis, layout, "makes", stage.axis))
    outputs = {
        (value.name, axis): layout
        for value in axes.graph.outputs
        for axis, layout in _changed(axes, stage, sizes, value)
    }
    maps = {place: layout.as_map() for place, layout in outputs.items()}
    return steps, maps, {place: matrix_of(layout) for place, layout in outputs.items()}


def merged(axes: Axes, stage: Stage) -> Iterator[Gap]:
    """Yield one gap for each router that chooses from means, or one for all if there is no router."""
    name = stage.axis
    for space, parts in stage.merges.items():
        cause = f"every {parts} {name} become their mean"
        rankings = [r for r, ranked in axes.ranked.items() if space in leaves(ranked)]
        for ranking in rankings:
            yield Gap.at(ranking, f"{cause}, and the router's {ranking.kind} chooses from these")
        if not rankings:
            yield Gap.at(None, cause)


def _changed(axes: Axes, stage: Stage, sizes: Sizes, value: Value) -> Iterator[tuple[int, Layout]]:
    for axis, space in enumerate(axes.of(value)):
        if any(atom in stage.merges for atom in leaves(space)):
            yield axis, _layout(stage, sizes, space)


def _layout(stage: Stage, sizes: Sizes, space: Space) -> Layout:
    space = find(space)
    if space.kind != "atom":
        return Layout(space.kind, tuple(_layout(stage, sizes, part) for part in space.parts))
    size, parts = sizes.of(space)[0], stage.merges.get(space, 1)
    if parts == 1:
        return Layout("leaf", (), LeafStep.keep(size))
    outer = Layout("leaf", (), LeafStep.keep(size // parts))
    mean = LeafStep(parts, np.array([-1]), np.ones(1), np.array([MEAN]))
    return Layout("product", (outer, Layout("leaf", (), mean)))
