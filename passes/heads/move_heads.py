"""Key/value heads that become means, groups of heads that split or are shuffled: what that does to weights.

Needs: a statement with `Pool`s or `Regroup`s, and sizes as they stand before it. Gives: the steps of every
weight, maps of model outputs, gaps. None of these is a map of the key heads or of the heads in a group by
itself. What statements on `heads` and `kv_heads` come to: growc.passes.lowering.grouped_query.

Means: Ainslie et al., "GQA", section 2.1. The projection matrices of the key and value heads of a group are
mean pooled into one, and the query heads of all of them share it. Query heads keep their places: (k, g)
becomes (k // parts, (k mod parts)·G + g), which is the same number.

Splitting into s parts, query head (k, g) becomes (k·s + g // G', g mod G'), which leaves an axis that holds
both as it was, and copies an axis that holds key and value heads alone. A shuffle takes head (k, g) from
(k, order[k][g]). Both are exact wherever groups are a batch.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Floats, IndexMap, Ints
from growc.algebra.space import Space, factors, find, leaves, product
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Value
from growc.ir.lowered_statement import Pool, Regroup, Sizes, Split, Stage
from growc.ir.notation import names_of
from growc.passes.axes.infer import Axes, Instance
from growc.plans.plan import MEAN, AxisStep, Gap, Layout, LeafStep

AVERAGING = frozenset({"mean", "extreme", "layer_norm", "rms_norm"})
"""Treatments for which it does not matter how many heads there are."""

Place = tuple[str, int]


def move_heads(
    axes: Axes, stage: Stage, sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[Place, IndexMap], dict[Place, Floats]]:
    """What it does to every weight, to every axis of a model output, and there, of means, as a matrix.

    Raises GrowError (G304) where an operator stands against it, or a weight has no means.
    """
    found = (_Regrouping if stage.regroups else _Pooling)(axes, stage, sizes)
    found.check()
    steps = found.steps()
    outputs = {(v.name, axis): layout for v in axes.graph.outputs for axis, layout in found.changed(v)}
    maps = {place: layout.as_map() for place, layout in outputs.items()}
    blends = {place: _matrix(layout) for place, layout in outputs.items() if stage.pools}
    return steps, maps, blends


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


class _Moving(ABC):
    """What becomes of axes that hold the heads of a statement. `cannot`, `halves`, `takes`: for refusals."""

    cannot: str
    halves: str
    takes: str
    moves: Sequence[Pool | Regroup]

    def __init__(self, axes: Axes, stage: Stage, sizes: Sizes) -> None:
        self.axes, self.stage, self.sizes = axes, stage, sizes
        self.moves = [*stage.pools, *stage.regroups]
        self.heads = {x for one in self.moves for x in (one.keys, one.group)}

    @abstractmethod
    def layout(self, spaces: Sequence[Space]) -> Layout | None:
        """What becomes of a product; None where it has a group without the heads that it belongs to."""

    @abstractmethod
    def stands(self, layout: Layout | None, averages: bool) -> bool:
        """Whether an operator that takes these units together makes the same of them."""

    def steps(self) -> dict[Value, list[AxisStep]]:
        found: dict[Value, list[AxisStep]] = {}
        for use in self.axes.graph.uses():
            for axis, layout in self.changed(use):
                floats = use.weight is not None and use.weight.stored is None and use.weight.floating
                if self.stage.pools and not floats:
                    raise self.refused(use.name, "holds them as integers, of which there is no mean")
                found.setdefault(use, []).append(AxisStep(axis, layout, "makes", self.stage.axis))
        return found

    def changed(self, value: Value) -> Iterator[tuple[int, Layout]]:
        for axis, space in enumerate(self.axes.of(value)):
            if self.touches([space]):
                layout = self.layout([space])
                if layout is None:
                    raise self.refused(value.name, self.halves)
                if not layout.is_identity:
                    yield axis, layout

    def touches(self, spaces: Sequence[Space]) -> bool:
        return any(not self.heads.isdisjoint(leaves(space)) for space in spaces)

    def check(self) -> None:
        """Heads are a batch to every operator: it passes them on, or takes all that belong together."""
        for instance in self.axes.instances:
            made = {n for terms in instance.line.outputs for n in names_of(terms)}
            for terms in instance.line.inputs:
                self.judge(instance, [n for n in names_of(terms) if n not in made])
            self.judge(instance, instance.line.over)

    def judge(self, instance: Instance, gone: Sequence[str]) -> None:
        kind, spaces = instance.line.treatment, [instance.spaces[n] for n in gone]
        if kind in ("layout", "lookup") or not self.touches(spaces):
            return
        if not self.stands(self.layout(spaces), kind in AVERAGING):
            raise self.refused(instance.node.name or instance.node.op, f"{self.takes} together ({kind})")

    def refused(self, name: str, cause: str) -> GrowError:
        return GrowError(Diagnostic("G304", f"{self.cannot}: `{name}` {cause}", self.moves[0].span))


# ---------------------------------------------------------------------------------------------- means


class _Pooling(_Moving):
    """Key/value heads that become means."""

    cannot = "key/value heads cannot become means"
    halves = "holds query heads without their key heads"
    takes = "takes them"

    def __init__(self, axes: Axes, stage: Stage, sizes: Sizes) -> None:
        super().__init__(axes, stage, sizes)
        self.pools = {one.keys: one for one in stage.pools}
        self.groups = {one.group for one in stage.pools}

    def stands(self, layout: Layout | None, averages: bool) -> bool:
        return averages or (layout is not None and layout.is_identity)

    def layout(self, spaces: Sequence[Space]) -> Layout | None:
        parts: list[Layout] = []
        pending = [f for space in spaces for f in factors(space)][::-1]
        while pending:
            space = pending.pop()
            one = self.pools.get(space)
            if one is not None and pending and pending[-1] is one.group:
                parts += [self.kept(space), self.kept(pending.pop())]
                continue
            if space in self.groups:
                return None
            inner = self.segments(space) if space.kind == "sum" else self.atom(space, one)
            if inner is None:
                return None
            parts.append(inner)
        return parts[0] if len(parts) == 1 else Layout("product", tuple(parts))

    def segments(self, space: Space) -> Layout | None:
        parts = [self.layout([p]) for p in space.parts]
        return None if None in parts else Layout("sum", tuple(p for p in parts if p is not None))

    def atom(self, space: Space, one: Pool | None) -> Layout:
        if one is None:
            return self.kept(space)
        outer = Layout("leaf", (), LeafStep.keep(self.sizes.of(space)[0] // one.parts))
        step = LeafStep(one.parts, np.array([-1]), np.ones(1), np.array([MEAN]))
        return Layout("product", (outer, Layout("leaf", (), step)))

    def kept(self, space: Space) -> Layout:
        return Layout("leaf", (), LeafStep.keep(self.sizes.of(space)[0]))


# ------------------------------------------------------------------------------------- other groups


@dataclass(eq=False)
class _Units:
    """Where the units of an axis come from: `index[i]` where the group is of the i-th kind (of a split: the
    i-th part of its old one; of a shuffle: the i-th group).

    `part` is that i for each unit, -1 where the axis does not say.
    """

    index: Ints
    part: Ints

    def resolved(self) -> Ints | None:
        """One index for each unit; None where it takes another axis to know."""
        if (self.part < 0).any() and (self.index != self.index[:1])[:, self.part < 0].any():
            return None
        at: Ints = self.index[np.maximum(self.part, 0), np.arange(len(self.part))]
        return at


class _Regrouping(_Moving):
    """Groups of query heads that split, or whose heads change places."""

    halves = "holds query heads of groups without their key heads"
    takes = "takes key/value heads"

    def __init__(self, axes: Axes, stage: Stage, sizes: Sizes) -> None:
        super().__init__(axes, stage, sizes)
        splits = isinstance(stage.regroups[0], Split)
        what = "split" if splits else "have their heads in another order"
        self.cannot = f"groups of query heads cannot {what}"
        self.keys = {one.keys: one for one in stage.regroups}
        self.groups = {one.group: one for one in stage.regroups}
        self.kinds = max(map(_kinds, stage.regroups))

    def layout(self, spaces: Sequence[Space]) -> Layout | None:
        index = self.units(product(spaces)).resolved()
        if index is None:
            return None
        n = len(index)
        step = LeafStep(self.sizes.product(spaces), index, np.ones(n), np.zeros(n, dtype=np.int64))
        return Layout("leaf", (), step)

    def stands(self, layout: Layout | None, averages: bool) -> bool:
        counts = None if layout is None else layout.as_map().counts
        return counts is not None and bool((counts == (counts[0] if averages else 1)).all())

    def units(self, space: Space) -> _Units:
        """The units of an axis afterwards, in order."""
        space = find(space)
        if space.kind == "atom":
            return self.atom(space)
        inner = [self.units(p) for p in space.parts]
        sizes = [self.sizes.of(p)[0] for p in space.parts]
        made, size = inner[0], sizes[0]
        for other, n in zip(inner[1:], sizes[1:], strict=True):
            if space.kind == "sum":
                index = np.concatenate([made.index, other.index + size], axis=1)
                made, size = _Units(index, np.concatenate([made.part, other.part])), size + n
            else:
                index = (made.index[:, :, None] * n + other.index[:, None, :]).reshape(self.kinds, -1)
                part = np.maximum(made.part[:, None], other.part[None, :]).reshape(-1)
                made, size = _Units(index, part), size * n
        return made

    def atom(self, space: Space) -> _Units:
        size = self.sizes.of(space)[0]
        if (one := self.keys.get(space)) is not None:
            parts = one.parts if isinstance(one, Split) else 1
            new = np.arange(size * parts)
            part = new % parts if isinstance(one, Split) else new
            return _Units(np.tile(new // parts, (self.kinds, 1)), part)
        if (one := self.groups.get(space)) is not None:
            rows = [_of_group(one, size, min(i, _kinds(one) - 1)) for i in range(self.kinds)]
            return _Units(np.stack(rows), np.full(len(rows[0]), -1))
        return _Units(np.tile(np.arange(size), (self.kinds, 1)), np.full(size, -1))


def _kinds(one: Regroup) -> int:
    return one.parts if isinstance(one, Split) else len(one.orders)


def _of_group(one: Regroup, size: int, kind: int) -> Ints:
    """Where each head of a group of a kind comes from."""
    if isinstance(one, Split):
        inside = size // one.parts
        return np.arange(inside) + kind * inside
    order: Ints = one.orders[kind]
    return order
