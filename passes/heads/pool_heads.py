"""Key/value heads that become means of several: what that does to every weight.

Needs: a statement with `Pool`s, and sizes as they stand before it. Gives: the steps of every weight, maps of
model outputs, the gap. Ainslie et al., "GQA", section 2.1: the projection matrices of the key and value heads
of a group are mean pooled into one, and the query heads of all of them share it. Query heads keep their
places: (k, g) becomes (k // parts, (k mod parts)·G + g), which is the same number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap
from growc.algebra.space import Space, atoms_of, factors, find, leaves
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Value
from growc.ir.lowered_statement import Pool, Sizes, Stage
from growc.ir.notation import names_of
from growc.passes.axes.infer import Axes, Instance
from growc.plans.plan import MEAN, AxisStep, Gap, Layout, LeafStep

AVERAGING = frozenset({"layout", "lookup", "mean", "extreme", "layer_norm", "rms_norm"})
"""Treatments for which it does not matter how many heads there are."""


def pool(
    axes: Axes, stage: Stage, sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[tuple[str, int], IndexMap]]:
    """What it does to every weight, and to every axis of a model output.

    Raises GrowError (G304) where an operator sums over key/value heads, or a weight of them is no float.
    """
    found = _Pooling(axes, stage, sizes)
    found.check()
    return found.steps(), found.outputs()


def blended(axes: Axes, stage: Stage, sizes: Sizes) -> dict[tuple[str, int], Floats]:
    """What the means of a statement make of axes of model outputs, as matrices."""
    found = _Pooling(axes, stage, sizes)
    changed = ((v, axis, layout) for v in axes.graph.outputs for axis, layout in found.changed(v))
    return {(value.name, axis): _matrix(layout) for value, axis, layout in changed if stage.pools}


def _matrix(layout: Layout) -> Floats:
    """What a layout of means does to the units of an axis."""
    if layout.step is not None:
        return np.eye(layout.before) if layout.is_identity else np.full((1, layout.before), 1 / layout.before)
    parts = [_matrix(part) for part in layout.parts]
    if layout.kind == "product":
        made = np.eye(1)
        for part in parts:
            made = np.asarray(np.kron(made, part), dtype=np.float64)
        return made
    whole = np.zeros((layout.after, layout.before))
    rows = np.cumsum([0, *(p.after for p in layout.parts)])
    columns = np.cumsum([0, *(p.before for p in layout.parts)])
    for k, part in enumerate(parts):
        whole[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = part
    return whole


def averaged(stage: Stage) -> Iterator[Gap]:
    """One gap for a statement that averages heads."""
    counts = " or ".join(str(n) for n in sorted({p.parts for p in stage.pools}))
    each = f", in each of {len(stage.pools)} spaces" if len(stage.pools) > 1 else ""
    if stage.pools:
        yield Gap("", "subclone", f"every {counts} {stage.axis} become their mean{each}")


@dataclass(eq=False)
class _Pooling:
    axes: Axes
    stage: Stage
    sizes: Sizes
    pools: dict[Space, Pool] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.pools = {one.keys: one for one in self.stage.pools}
        self.groups = {one.group for one in self.stage.pools}

    def steps(self) -> dict[Value, list[AxisStep]]:
        found: dict[Value, list[AxisStep]] = {}
        for use in self.axes.graph.uses():
            for axis, layout in self.changed(use):
                if use.weight is None or use.weight.stored is not None or not use.weight.floating:
                    raise GrowError(
                        self.refusal(use.name, "holds them as integers, of which there is no mean")
                    )
                found.setdefault(use, []).append(AxisStep(axis, layout, "makes", self.stage.axis))
        return found

    def outputs(self) -> dict[tuple[str, int], IndexMap]:
        changed = ((v, axis, layout) for v in self.axes.graph.outputs for axis, layout in self.changed(v))
        return {(value.name, axis): layout.as_map() for value, axis, layout in changed}

    def changed(self, value: Value) -> Iterator[tuple[int, Layout]]:
        for axis, space in enumerate(self.axes.of(value)):
            if any(self.touches(s) for s in leaves(space)):
                layout = self.layout(space)
                if layout is None:
                    raise GrowError(self.refusal(value.name, "holds query heads without their key heads"))
                if not layout.is_identity:
                    yield axis, layout

    def touches(self, atom: Space) -> bool:
        return find(atom) in self.pools or find(atom) in self.groups

    # ---------------------------------------------------------------- layouts

    def layout(self, space: Space) -> Layout | None:
        """What becomes of an axis; None where it has a group without the heads that it belongs to."""
        space = find(space)
        if space.kind == "sum":
            parts = [self.layout(p) for p in space.parts]
            return None if None in parts else Layout("sum", tuple(p for p in parts if p is not None))
        return self.of_factors(factors(space))

    def of_factors(self, spaces: Sequence[Space]) -> Layout | None:
        parts: list[Layout] = []
        k = 0
        while k < len(spaces):
            one, following = self.pools.get(spaces[k]), spaces[k + 1 : k + 2]
            if one is not None and list(following) == [one.group]:
                parts += [self.kept(spaces[k]), self.kept(spaces[k + 1])]
                k += 2
                continue
            if spaces[k] in self.groups:
                return None
            inner = self.layout(spaces[k]) if spaces[k].kind == "sum" else self.atom(spaces[k], one)
            if inner is None:
                return None
            parts.append(inner)
            k += 1
        return parts[0] if len(parts) == 1 else Layout("product", tuple(parts))

    def atom(self, space: Space, one: Pool | None) -> Layout:
        if one is None:
            return self.kept(space)
        outer = Layout("leaf", (), LeafStep.keep(self.sizes.of(space)[0] // one.parts))
        step = LeafStep(one.parts, np.array([-1]), np.ones(1), np.array([MEAN]))
        return Layout("product", (outer, Layout("leaf", (), step)))

    def kept(self, space: Space) -> Layout:
        return Layout("leaf", (), LeafStep.keep(self.sizes.of(space)[0]))

    # ---------------------------------------------------------------- the check

    def check(self) -> None:
        """Heads are a batch to every operator, or it takes key heads together with their groups."""
        for instance in self.axes.instances:
            if instance.line.treatment in AVERAGING:
                continue
            made = {n for terms in instance.line.outputs for n in names_of(terms)}
            for terms in instance.line.inputs:
                self.judge(instance, [n for n in names_of(terms) if n not in made])

    def judge(self, instance: Instance, gone: Sequence[str]) -> None:
        spaces = [f for n in gone for f in factors(instance.spaces[n])]
        if any(self.touches(x) for x in atoms_of(spaces)):
            layout = self.of_factors(spaces)
            if layout is None or not layout.is_identity:
                name = instance.node.name or instance.node.op
                raise GrowError(self.refusal(name, f"takes them together ({instance.line.treatment})"))

    def refusal(self, name: str, cause: str) -> Diagnostic:
        message = f"key/value heads cannot become means: `{name}` {cause}"
        return Diagnostic("G304", message, self.stage.pools[0].span)
