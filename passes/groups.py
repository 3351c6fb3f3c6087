"""Grouped queries: what `heads` and `kv_heads` mean together, and how every group splits into several.

K key/value heads serve G query heads each. With K' and G' the numbers after the last statement, every group
first splits into s = G/G' (where G' < G): key/value heads are copied, query heads stay. Then the fills of
`kv_heads` map groups, query heads travelling with them, and those of `heads` act inside groups
(docs/language.md). Splitting is no map of either space by itself: query head (k, g) becomes
(k·s + g // G', g mod G'), which leaves an axis that holds both as it was, and copies an axis that holds key
and value heads alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np

from growc.axes import Space, find, leaves, product
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import Value
from growc.indexmap import IndexMap, Ints
from growc.operators import names_of
from growc.passes.roles import RoleAxis, Roles
from growc.passes.spaces import Axes, Instance
from growc.plans import AxisStep, Layout, LeafStep
from growc.source import Span
from growc.stage import Sizes, Split


@dataclass(frozen=True, eq=False)
class Pair:
    """The two names of one grouped attention, and the atoms that they stand on."""

    heads: RoleAxis
    kv_heads: RoleAxis
    keys: Space
    group: Space


def pairs_of(roles: Roles) -> list[Pair]:
    """Every attention whose heads are a row-major (keys group), each an atom."""
    found = []
    for heads in roles.axes.get("heads", []):
        keys = [s for s in heads.spaces if id(s) not in roles.expanded]
        group = [s for s in heads.spaces if id(s) in roles.expanded]
        if len(keys) == len(group) == 1:
            found.append(Pair(heads, RoleAxis(tuple(keys)), keys[0], group[0]))
    return found


@dataclass(frozen=True)
class Settled:
    """The sizes that a pair comes to have: K·s before the fill of `kv_heads`, then K'; G' in every group."""

    split: int
    keys: int
    group: int


def settle(keys: int, group: int, kv_heads: int, heads: int, span: Span, others: Sequence[Span]) -> Settled:
    """From K, G and the sizes asked for. Raises GrowError (G301) where these make no whole groups."""
    labelled = tuple((s, "and this") for s in others)
    if heads % kv_heads:
        each = f"every group would have {heads / kv_heads:.4g}"
        message = f"{heads} `heads` cannot share {kv_heads} `kv_heads`: {each}"
        help_ = f"use a multiple of {kv_heads} for `heads`"
        raise GrowError(Diagnostic("G301", message, span, "", (), help_, labelled))
    wanted = heads // kv_heads
    if wanted < group and group % wanted:
        message = f"groups of {group} query heads cannot split into groups of {wanted}"
        whole = ", ".join(str(d) for d in range(1, group + 1) if group % d == 0)
        raise GrowError(
            Diagnostic("G301", message, span, "", (), f"a group can become {whole} or more", labelled)
        )
    return Settled(group // min(wanted, group), kv_heads, wanted)


# -------------------------------------------------------------------- splitting


@dataclass(eq=False)
class _Units:
    """Where the units of an axis come from: `index[i]` if the group is the i-th part of its old one.

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


def split_groups(
    axes: Axes, splits: Sequence[Split], sizes: Sizes
) -> tuple[dict[Value, list[AxisStep]], dict[tuple[str, int], IndexMap]]:
    """What splitting does to every weight, and to every axis of a model output; `sizes` as they stand before.

    Raises GrowError (G304) where an operator stands against it.
    """
    splitting = _Splitting(axes, splits, sizes)
    splitting.check()
    return splitting.steps(), splitting.outputs()


@dataclass(eq=False)
class _Splitting:
    axes: Axes
    splits: Sequence[Split]
    sizes: Sizes
    roles: dict[int, tuple[Split, bool]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for split in self.splits:
            self.roles[id(split.keys)] = split, True
            self.roles[id(split.group)] = split, False

    def steps(self) -> dict[Value, list[AxisStep]]:
        found: dict[Value, list[AxisStep]] = {}
        for use in self.axes.graph.uses():
            for axis, index in self.changed(use):
                n = len(index)
                before = self.sizes.of(self.axes.of(use)[axis])[0]
                leaf = LeafStep(before, index, np.ones(n), np.zeros(n, dtype=np.int64))
                found.setdefault(use, []).append(
                    AxisStep(axis, Layout("leaf", (), leaf), "makes", "kv_heads")
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
        message = f"groups of query heads cannot split: `{name}` {cause}"
        return Diagnostic("G304", message, self.splits[0].span)

    def touches(self, space: Space) -> bool:
        return any(id(x) in self.roles for x in leaves(space))

    # ---------------------------------------------------------------- indices

    def units(self, space: Space) -> _Units:
        """The units of an axis after the split, in order."""
        space = find(space)
        parts = max(s.parts for s in self.splits)
        if space.kind == "atom":
            return self.atom(space, parts)
        inner = [self.units(p) for p in space.parts]
        sizes = [self.sizes.of(p)[0] for p in space.parts]
        made, size = inner[0], sizes[0]
        for other, n in zip(inner[1:], sizes[1:], strict=True):
            if space.kind == "sum":
                index = np.concatenate([made.index, other.index + size], axis=1)
                made, size = _Units(index, np.concatenate([made.part, other.part])), size + n
            else:
                index = (made.index[:, :, None] * n + other.index[:, None, :]).reshape(parts, -1)
                part = np.maximum(made.part[:, None], other.part[None, :]).reshape(-1)
                made, size = _Units(index, part), size * n
        return made

    def atom(self, space: Space, parts: int) -> _Units:
        size = self.sizes.of(space)[0]
        split, is_keys = self.roles.get(id(space), (None, False))
        if split is None:
            return _Units(np.tile(np.arange(size), (parts, 1)), np.full(size, -1))
        if is_keys:
            new = np.arange(size * split.parts)
            return _Units(np.tile(new // split.parts, (parts, 1)), new % split.parts)
        inside = np.arange(size // split.parts)
        taken = [inside + min(i, split.parts - 1) * len(inside) for i in range(parts)]
        return _Units(np.stack(taken), np.full(len(inside), -1))
