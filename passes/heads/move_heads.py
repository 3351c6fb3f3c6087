"""Key/value heads that become means, and groups of heads that split or are shuffled: the steps of weights.

Needs: a statement with `Regroup`s, and sizes as they stand before it. Gives: the steps of every weight, maps
of model outputs, gaps. Each is a map of the product (keys group), and not of keys or groups alone.
growc.passes.lowering.grouped_query makes `Regroup`s of statements on `heads` and `kv_heads`.

An axis with both keys and groups has the map of the product. On an axis with keys alone, a new head copies
the old one, if it comes from the same place in every kind of group. Otherwise it is a mean (Ainslie et al.,
"GQA", section 2.1: the projection matrices of the key and value heads of a group are mean pooled into one,
and the query heads of all of them share it). An axis with groups alone is refused, unless all groups move
alike. Splits and shuffles are exact wherever groups are a batch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap
from growc.algebra.space import Space, atoms_of, factors, find, product
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Value
from growc.ir.lowered_statement import Regroup, Sizes, Stage, Units
from growc.ir.notation import names_of
from growc.passes.axes.infer import Axes, LineInstance
from growc.plans.plan import MEAN, AxisStep, Gap, Layout, LeafStep

AVERAGING = frozenset({"mean", "extreme", "layer_norm", "rms_norm"})
"""Treatments whose result does not depend on the number of equal copies of heads."""

OutputAxis = tuple[str, int]
"""The name of an output, and one of its axes."""


def move_heads(
    axes: Axes, stage: Stage, sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[OutputAxis, IndexMap], dict[OutputAxis, Floats]]:
    """The steps of every weight, the map of every axis of a model output, and for means also the matrix.

    Raises GrowError (G304) where an operator takes the heads together, or a weight has no means.
    """
    moving = _Moving(axes, stage, sizes)
    moving.check()
    steps = moving.steps()
    outputs = {(v.name, axis): layout for v in axes.graph.outputs for axis, layout in moving.changed(v)}
    maps = {place: layout.as_map() for place, layout in outputs.items()}
    blends = {place: matrix_of(layout) for place, layout in outputs.items() if moving.first.averages}
    return steps, maps, blends


def matrix_of(layout: Layout) -> Floats:
    """The matrix of a layout of means over the units of an axis, shape (after, before)."""
    if layout.step is not None:
        return np.eye(layout.before) if layout.is_identity else np.full((1, layout.before), 1 / layout.before)
    parts = [matrix_of(part) for part in layout.parts]
    if layout.kind == "product":
        kron_product = np.eye(1)
        for part in parts:
            kron_product = np.asarray(np.kron(kron_product, part), dtype=np.float64)
        return kron_product
    block_matrix = np.zeros((layout.after, layout.before))
    rows = np.cumsum([0, *(p.after for p in layout.parts)])
    columns = np.cumsum([0, *(p.before for p in layout.parts)])
    for k, part in enumerate(parts):
        block_matrix[rows[k] : rows[k + 1], columns[k] : columns[k + 1]] = part
    return block_matrix


def averaged(stage: Stage) -> Iterator[Gap]:
    """Yield one gap for a statement that averages heads."""
    pools = [one for one in stage.regroups if one.averages]
    counts = " or ".join(str(n) for n in sorted({one.kinds for one in pools}))
    each = f", in each of {len(pools)} spaces" if len(pools) > 1 else ""
    if pools:
        yield Gap("", "subclone", f"every {counts} {stage.axis} become their mean{each}")


class _Moving:
    """The layouts of the axes that have heads of a statement."""

    def __init__(self, axes: Axes, stage: Stage, sizes: Sizes) -> None:
        self.axes, self.stage, self.sizes, self.first = axes, stage, sizes, stage.regroups[0]
        self.keys: dict[Space, list[Regroup]] = {}
        for one in stage.regroups:
            self.keys.setdefault(one.keys, []).append(one)
        self.groups = {one.group: one for one in stage.regroups}
        self.kinds = max(one.kinds for one in stage.regroups)

    def steps(self) -> dict[Value, list[AxisStep]]:
        steps: dict[Value, list[AxisStep]] = {}
        for use in self.axes.graph.uses():
            for axis, layout in self.changed(use):
                floats = use.weight is not None and use.weight.stored is None and use.weight.floating
                if self.first.averages and not floats:
                    raise self.refused(use.name, "holds them as integers, of which there is no mean")
                steps.setdefault(use, []).append(AxisStep(axis, layout, "makes", self.stage.axis))
        return steps

    def changed(self, value: Value) -> Iterator[tuple[int, Layout]]:
        for axis, space in enumerate(self.axes.of(value)):
            if self.touches([space]):
                layout = self.layout([space])
                if layout is None:
                    raise self.refused(value.name, "holds query heads of groups without their key heads")
                if not layout.is_identity:
                    yield axis, layout

    def touches(self, spaces: Sequence[Space]) -> bool:
        return any(x in self.keys or x in self.groups for x in atoms_of(spaces))

    def check(self) -> None:
        """Check that every operator passes heads on, or takes all together that belong together.

        Raises GrowError (G304) otherwise.
        """
        for instance in self.axes.instances:
            kept_labels = {n for terms in instance.line.outputs for n in names_of(terms)}
            for terms in instance.line.inputs:
                self.judge(instance, [n for n in names_of(terms) if n not in kept_labels])
            self.judge(instance, instance.line.over)

    def judge(self, instance: LineInstance, gone: Sequence[str]) -> None:
        kind, spaces = instance.line.treatment, [instance.spaces[n] for n in gone]
        if kind in ("layout", "lookup") or not self.touches(spaces):
            return
        if not self.stands(self.layout(spaces), kind in AVERAGING):
            raise self.refused(instance.node.name or instance.node.op, f"takes them together ({kind})")

    def stands(self, layout: Layout | None, averages: bool) -> bool:
        """Whether an operator that takes these units together has the same result as before."""
        index_map = None if layout is None else layout.as_map()
        if index_map is None or index_map.junk.any():
            return averages and self.first.averages
        return bool((index_map.counts == (index_map.counts[0] if averages else 1)).all())

    def refused(self, name: str, cause: str) -> GrowError:
        return GrowError(Diagnostic("G304", f"{self.first.cannot}: `{name}` {cause}", self.first.span))

    # ---- one axis

    def layout(self, spaces: Sequence[Space]) -> Layout | None:
        """The layout of a product; None where it has a group without the key heads that it belongs to."""
        units, n = self.units(product(spaces)), self.sizes.product(spaces)
        index = None if units is None else units.resolved()
        layout = None
        if index is not None:
            step = LeafStep(n, index, np.ones(len(index)), np.zeros(len(index), dtype=np.int64))
            layout = Layout("leaf", (), step)
        if self.first.averages and (layout is None or not layout.is_identity):
            return self.with_means([f for space in spaces for f in factors(space)])
        return layout

    def units(self, space: Space) -> Units | None:
        """The units of an axis after the statement, in order; None where heads meet groups of other heads."""
        space = find(space)
        if space.kind == "atom":
            return self.atom(space)
        units, size = self.units(space.parts[0]), self.sizes.of(space.parts[0])[0]
        for k, part in enumerate(space.parts[1:], 1):
            other, n = self.units(part), self.sizes.of(part)[0]
            strange = space.kind == "product" and self.strange(space.parts[:k], part)
            if units is None or other is None or strange:
                return None
            if space.kind == "sum":
                index = np.concatenate([units.index, other.index + size], axis=1)
                units, size = Units(index, np.concatenate([units.part, other.part])), size + n
            else:
                index = (units.index[:, :, None] * n + other.index[:, None, :]).reshape(self.kinds, -1)
                part_numbers = np.maximum(units.part[:, None], other.part[None, :]).reshape(-1)
                units, size = Units(index, part_numbers), size * n
        return units

    def strange(self, spaces: Sequence[Space], other: Space) -> bool:
        """Whether both have heads, and these belong to different keys."""
        a, b = ({self.keys_of(x) for x in atoms_of(s)} - {None} for s in (spaces, [other]))
        return bool(a and b) and len(a | b) > 1

    def keys_of(self, atom: Space) -> Space | None:
        """The key/value heads that an atom counts, or whose group it is; else None."""
        return atom if atom in self.keys else self.groups[atom].keys if atom in self.groups else None

    def atom(self, space: Space) -> Units | None:
        size = self.sizes.of(space)[0]
        if space in self.keys:
            maps = [one.of_keys for one in self.keys[space]]
            alike = all(np.array_equal(maps[0].index, other.index) for other in maps[1:])
            return self.of_kinds(maps[0]) if alike else None
        if space in self.groups:
            return self.of_kinds(self.groups[space].of_group)
        return Units(np.tile(np.arange(size), (self.kinds, 1)), np.full(size, -1))

    def of_kinds(self, units: Units) -> Units:
        """The units repeated for every kind of group in the statement."""
        kinds = np.minimum(np.arange(self.kinds), len(units.index) - 1)
        return Units(units.index[kinds], units.part)

    def with_means(self, parts: Sequence[Space]) -> Layout | None:
        """The layout of a product with means of key/value heads wherever their group is not beside them."""
        layouts: list[Layout] = []
        pending = [*parts][::-1]
        while pending:
            space = pending.pop()
            if space in self.groups:
                return None
            if space in self.keys and pending and self.keys_of(pending[-1]) is space:
                size = self.sizes.of(space)[0] * self.sizes.of(pending.pop())[0]
                layouts.append(Layout("leaf", (), LeafStep.keep(size)))
                continue
            inner = self.segments(space) if space.kind == "sum" else self.mean(space)
            if inner is None:
                return None
            layouts.append(inner)
        return layouts[0] if len(layouts) == 1 else Layout("product", tuple(layouts))

    def segments(self, space: Space) -> Layout | None:
        parts = [self.layout([p]) for p in space.parts]
        return None if None in parts else Layout("sum", tuple(p for p in parts if p is not None))

    def mean(self, space: Space) -> Layout | None:
        size, kinds = self.sizes.of(space)[0], {one.kinds for one in self.keys.get(space, ())}
        if not kinds:
            return Layout("leaf", (), LeafStep.keep(size))
        if len(kinds) > 1:
            return None
        parts = kinds.pop()
        outer = Layout("leaf", (), LeafStep.keep(size // parts))
        step = LeafStep(parts, np.array([-1]), np.ones(1), np.array([MEAN]))
        return Layout("product", (outer, Layout("leaf", (), step)))
