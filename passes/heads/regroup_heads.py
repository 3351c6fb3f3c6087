"""Groups of query heads that split, or whose heads change places: what that does to every weight.

Neither is a map of the key heads or of the heads in a group by itself. Splitting into s parts, query head (k,
g) becomes (k·s + g // G', g mod G'), which leaves an axis that holds both as it was, and copies an axis that
holds key and value heads alone. A shuffle takes head (k, g) from (k, order[k][g]). Both are exact wherever
groups are a batch. What statements on `heads` and `kv_heads` come to: growc.passes.lowering.grouped_query.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from growc.algebra.indexmap import IndexMap, Ints
from growc.algebra.space import Space, find, leaves, product
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import Value
from growc.ir.lowered_statement import Regroup, Sizes, Split, Stage
from growc.ir.notation import names_of
from growc.passes.axes.infer import Axes, Instance
from growc.plans.plan import AxisStep, Layout, LeafStep


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


def regroup(
    axes: Axes, stage: Stage, sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[tuple[str, int], IndexMap]]:
    """What it does to every weight, and to every axis of a model output; `sizes` as they stand before.

    Raises GrowError (G304) where an operator stands against it.
    """
    found = _Regrouping(axes, stage, sizes)
    found.check()
    return found.steps(), found.outputs()


@dataclass(eq=False)
class _Regrouping:
    axes: Axes
    stage: Stage
    sizes: Sizes
    roles: dict[Space, tuple[Regroup, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for one in self.stage.regroups:
            self.roles[one.keys] = one, True
            self.roles[one.group] = one, False
        self.kinds = max(_kinds(one) for one in self.stage.regroups)

    def steps(self) -> dict[Value, list[AxisStep]]:
        found: dict[Value, list[AxisStep]] = {}
        for use in self.axes.graph.uses():
            for axis, index in self.changed(use):
                n = len(index)
                before = self.sizes.of(self.axes.of(use)[axis])[0]
                leaf = LeafStep(before, index, np.ones(n), np.zeros(n, dtype=np.int64))
                found.setdefault(use, []).append(
                    AxisStep(axis, Layout("leaf", (), leaf), "makes", self.stage.axis)
                )
        return found

    def outputs(self) -> dict[tuple[str, int], IndexMap]:
        found = {}
        for value in self.axes.graph.outputs:
            for axis, index in self.changed(value):
                before = self.sizes.of(self.axes.of(value)[axis])[0]
                found[value.name, axis] = IndexMap.of(before, index)
        return found

    def changed(self, value: Value) -> Iterator[tuple[int, Ints]]:
        for axis, space in enumerate(self.axes.of(value)):
            if not self.touches(space):
                continue
            index = self.units(space).resolved()
            if index is None:
                raise GrowError(
                    self.refusal(value.name, "holds query heads of groups without their key heads")
                )
            if len(index) != self.sizes.of(space)[0] or (index != np.arange(len(index))).any():
                yield axis, index

    # ---------------------------------------------------------------- the check

    def check(self) -> None:
        """Groups are a batch to every operator: it passes them on, or contracts or averages all of them."""
        for instance in self.axes.instances:
            made = {n for terms in instance.line.outputs for n in names_of(terms)}
            for terms in instance.line.inputs:
                gone = [n for n in names_of(terms) if n not in made]
                self.judge(instance, [instance.spaces[n] for n in gone])
            self.judge(instance, [instance.spaces[n] for n in instance.line.over])

    def judge(self, instance: Instance, spaces: Sequence[Space]) -> None:
        kind = instance.line.treatment
        if kind in ("layout", "lookup") or not any(self.touches(s) for s in spaces):
            return
        index = self.units(product(list(spaces))).resolved()
        if index is not None:
            total = self.sizes.product(spaces)
            counts = np.bincount(index, minlength=total)
            evenly = kind in ("mean", "extreme", "layer_norm", "rms_norm")
            if (counts == counts[0]).all() and (evenly or counts[0] == 1):
                return
        name = instance.node.name or instance.node.op
        raise GrowError(self.refusal(name, f"takes key/value heads together ({kind})"))

    def refusal(self, name: str, cause: str) -> Diagnostic:
        first = self.stage.regroups[0]
        what = "split" if isinstance(first, Split) else "have their heads in another order"
        return Diagnostic("G304", f"groups of query heads cannot {what}: `{name}` {cause}", first.span)

    def touches(self, space: Space) -> bool:
        return any(x in self.roles for x in leaves(space))

    # ---------------------------------------------------------------- indices

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
        one, is_keys = self.roles.get(space, (None, False))
        if one is None:
            return _Units(np.tile(np.arange(size), (self.kinds, 1)), np.full(size, -1))
        if is_keys:
            index, part = _of_keys(one, size)
            return _Units(np.tile(index, (self.kinds, 1)), part)
        rows = [_of_group(one, size, min(i, _kinds(one) - 1)) for i in range(self.kinds)]
        return _Units(np.stack(rows), np.full(len(rows[0]), -1))


def _kinds(one: Regroup) -> int:
    return one.parts if isinstance(one, Split) else len(one.orders)


def _of_keys(one: Regroup, size: int) -> tuple[Ints, Ints]:
    """Where each key head comes from, and which kind of group it has."""
    parts = one.parts if isinstance(one, Split) else 1
    new = np.arange(size * parts)
    return new // parts, new % parts if isinstance(one, Split) else new


def _of_group(one: Regroup, size: int, kind: int) -> Ints:
    """Where each head of a group of a kind comes from."""
    if isinstance(one, Split):
        inside = size // one.parts
        return np.arange(inside) + kind * inside
    order: Ints = one.orders[kind]
    return order
