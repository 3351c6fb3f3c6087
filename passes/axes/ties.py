"""Weights that are one: embedding and head, one layer's matrices used by several.

Needs: the axis graph. Gives: `Tie`s, groups of uses that must stay one tensor, their spaces unified.

Every use of a weight was analysed by itself. Uses of one stored matrix are joined again here, and so are
matrices that an exporter stored twice, equal or transposed. A vector or a constant tensor that several uses
share is no tie: exporters merge equal ones.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import count

import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.space import merge_equal, unify
from growc.ir.graph import Graph, Value, Weight
from growc.ir.traits import SAME, TAKE
from growc.ir.walk import walk
from growc.passes.axes.infer import Axes

_BLOCK = 1 << 18
"""Elements compared at a time, at least: rows in one layout, a narrow stripe in the other."""


@dataclass(frozen=True, eq=False)
class Tie:
    """Uses of one weight; `turned` says for each whether it is stored transposed to the first."""

    uses: tuple[Value, ...]
    turned: tuple[bool, ...]

    @property
    def is_head(self) -> bool:
        """Whether a table that is looked up is also a matrix that is multiplied with."""
        return len({looked_up(u) for u in self.uses}) == 2


def find_ties(axes: Axes, untied: Collection[int] = ()) -> list[Tie]:
    """Join what is one weight. Tables and the heads tied to them part where their number is in `untied`."""
    ties, heads = [], count()
    for tie in _groups(axes.graph):
        apart = tie.is_head and next(heads) in untied
        ties += [p for p in (_apart(tie) if apart else [tie]) if len(p.uses) > 1]
    for tie in ties:
        first = axes.of(tie.uses[0])
        for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
            spaces = axes.of(use)
            for a, b in zip(first, spaces[::-1] if turned else spaces, strict=True):
                unify(a, b, use)
    merge_equal(space for spaces in axes.spaces.values() for space in spaces)
    return ties


def tied_heads(axes: Axes) -> list[Tie]:
    """Tables with the heads that are tied to them, before `untie head`, in order."""
    return [tie for tie in _groups(axes.graph) if tie.is_head]


def cut_by_untie(axes: Axes, untied: Collection[int]) -> frozenset[Value]:
    """The uses that `untie head` gives a weight of their own: those that multiply with a table."""
    cut = [tie for k, tie in enumerate(tied_heads(axes)) if k in untied] if untied else []
    return frozenset(u for tie in cut for u in tie.uses if not looked_up(u))


def _apart(tie: Tie) -> list[Tie]:
    parts = []
    for kind in (True, False):
        chosen = [(u, t) for u, t in zip(tie.uses, tie.turned, strict=True) if looked_up(u) is kind]
        parts.append(Tie(tuple(u for u, _ in chosen), tuple(t != chosen[0][1] for _, t in chosen)))
    return parts


def looked_up(use: Value) -> bool:
    """Whether a weight use ends in a look-up by number (through casts and the like)."""
    uses = walk(use.users, lambda at: at[0].outputs[0].users if at[0].has(SAME) else ())
    return any(operand == 0 and node.treatment == "lookup" for node, operand in uses)


def _groups(graph: Graph) -> Iterable[Tie]:
    """Ties before `untie head`, in order of first use."""
    uses: dict[Weight, list[Value]] = defaultdict(list)
    for use in graph.uses():
        if use.weight is not None and use.weight.floating:
            uses[use.weight].append(use)
    matrices = {w: None for w in uses if sum(d > 1 for d in w.shape) >= 2}  # in order, unlike a set
    probes = _Probes(matrices)
    joined: set[Weight] = set()
    for weight, own in uses.items():
        if weight in joined:
            continue
        group, turned = list(own), [False] * len(own)
        if weight in matrices and (len(own) == 1 or weight.zero or not probes.constant(weight)):
            for other, how in probes.equal(weight):
                if other not in joined and other is not weight:
                    joined.add(other)
                    group += uses[other]
                    turned += [how] * len(uses[other])
        elif not all(_partial(u) for u in own):
            continue
        joined.add(weight)
        if len(group) > 1:
            yield Tie(tuple(group), tuple(turned))


def _partial(use: Value) -> bool:
    """Whether a use takes a slice of the stored tensor: uses of its parts belong together."""
    return all(n.has(TAKE) and i == 0 for n, i in use.users)


class _Probes:
    """A few elements of every matrix, at positions that transposition exchanges: few others have the same."""

    def __init__(self, matrices: Iterable[Weight]) -> None:
        self.matrices = [weight for weight in matrices if weight.known]
        self.shapes = Counter(map(self.kind, self.matrices))
        self.taken: dict[Weight, Array] = {}

    @staticmethod
    def kind(weight: Weight) -> tuple[object, ...]:
        return (weight.dtype, *sorted(weight.shape))

    def of(self, weight: Weight) -> Array:
        if weight not in self.taken:
            places = [sorted({(size - 1) * k // 3 for k in range(4 if size else 0)}) for size in weight.shape]
            self.taken[weight] = weight.at(np.ix_(*places))
        return self.taken[weight]

    def constant(self, weight: Weight) -> bool:
        """Whether its elements are one number, or none; of a config by itself no numbers are known."""
        if not weight.known:
            return False
        probe = self.of(weight)
        return probe.size == 0 or bool((probe == probe.flat[0]).all())

    @cached_property
    def alike(self) -> dict[object, list[Weight]]:
        """Matrices by shape and probe, those that are the only one of their shape left out."""
        found: dict[object, list[Weight]] = defaultdict(list)
        for weight in self.matrices:
            if self.shapes[self.kind(weight)] > 1:
                found[_key(weight.dtype, weight.shape, self.of(weight))].append(weight)
        return found

    def equal(self, weight: Weight) -> Iterable[tuple[Weight, bool]]:
        """Weights of the same values, copies left out that layers were given: (weight, whether it is stored
        transposed).
        """
        if not weight.known or self.shapes[self.kind(weight)] == 1 or self.constant(weight):
            return
        dtype, shape, probe = weight.dtype, weight.shape, self.of(weight)
        same = [w for w in self.alike[_key(dtype, shape, probe)] if w.root != weight.root]
        yield from ((w, False) for w in same if _blocks_equal(weight, w))
        if len(shape) == 2:
            turned = self.alike.get(_key(dtype, shape[::-1], probe.T), ())
            others = [w for w in turned if w.root != weight.root]
            yield from ((w, True) for w in others if _blocks_equal(weight, w, turned=True))


def _key(dtype: str, shape: tuple[int, ...], probe: Array) -> object:
    return dtype, shape, tuple(probe.ravel().tolist())


def _blocks_equal(x: Weight, y: Weight, turned: bool = False) -> bool:
    """Whether some rows of a weight are those of another one, or its columns.

    Columns are taken of the weight that has fewer rows: each of its rows is read from another place.
    """
    if turned and x.shape[0] < y.shape[0]:
        x, y = y, x
    rows = max(1, _BLOCK // max(1, math.prod(x.shape[1:])))
    starts = {0, max(x.shape[0] - rows, 0), x.shape[0] // 2}
    blocks = (slice(start, start + rows) for start in sorted(starts))
    return all(
        np.array_equal(x.at((block,)), y.at((slice(None), block)).T if turned else y.at((block,)))
        for block in blocks
    )
