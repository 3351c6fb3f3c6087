"""Ties: weights that are one tensor, such as embedding and head, or a matrix that several layers use.

Needs: the axis graph. Gives: `Tie`s, groups of uses that must stay one tensor, with their spaces unified.

Each use of a weight was analysed by itself. This pass joins the uses of one stored matrix, and matrices that
an exporter stored twice, equal or transposed. A vector or a constant that several uses share is no tie,
because exporters merge equal ones.
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
"""The least number of elements that are compared at once: rows in one layout, a narrow stripe in the
other.
"""


@dataclass(frozen=True, eq=False)
class Tie:
    """Uses of one weight.

    turned: for each use, whether it is stored transposed to the first one.
    """

    uses: tuple[Value, ...]
    turned: tuple[bool, ...]

    @property
    def is_head(self) -> bool:
        """Whether the weight is both a look-up table and a matrix of a product."""
        return len({looked_up(u) for u in self.uses}) == 2


def find_ties(axes: Axes, untied: Collection[int] = ()) -> list[Tie]:
    """Unify the spaces of uses of one weight.

    untied: the numbers of the tied heads that are separated from their tables.
    """
    ties, heads = [], count()
    for tie in _groups(axes.graph):
        untie = tie.is_head and next(heads) in untied
        ties += [p for p in (_apart(tie) if untie else [tie]) if len(p.uses) > 1]
    for tie in ties:
        first = axes.of(tie.uses[0])
        for use, turned in zip(tie.uses[1:], tie.turned[1:], strict=True):
            spaces = axes.of(use)
            for a, b in zip(first, spaces[::-1] if turned else spaces, strict=True):
                unify(a, b, use)
    merge_equal(space for spaces in axes.spaces.values() for space in spaces)
    return ties


def tied_heads(axes: Axes) -> list[Tie]:
    """The ties between tables and heads, in order, before any `untie head`."""
    return [tie for tie in _groups(axes.graph) if tie.is_head]


def uncounted(ties: Iterable[Tie]) -> set[Value]:
    """The uses whose elements count with another use: those of one tensor, and of a head and its table.

    Copies of a layer are equal, and ties, but each is stored and will be trained by itself.
    """
    uses: set[Value] = set()
    for tie in ties:
        counted: set[Weight | None] = set()
        for use in tie.uses:
            if use.weight in counted or (counted and tie.is_head):
                uses.add(use)
            counted.add(use.weight)
    return uses


def cut_by_untie(axes: Axes, untied: Collection[int]) -> frozenset[Value]:
    """The uses that `untie head` gives a weight of their own: those that multiply with a table."""
    untied_heads = [tie for k, tie in enumerate(tied_heads(axes)) if k in untied] if untied else []
    return frozenset(u for tie in untied_heads for u in tie.uses if not looked_up(u))


def _apart(tie: Tie) -> list[Tie]:
    parts = []
    for kind in (True, False):
        chosen = [(u, t) for u, t in zip(tie.uses, tie.turned, strict=True) if looked_up(u) is kind]
        parts.append(Tie(tuple(u for u, _ in chosen), tuple(t != chosen[0][1] for _, t in chosen)))
    return parts


def looked_up(use: Value) -> bool:
    """Whether a use of a weight ends in a look-up by number, through casts and similar operators."""
    uses = walk(use.users, lambda at: at[0].outputs[0].users if at[0].has(SAME) else ())
    return any(operand == 0 and node.treatment == "lookup" for node, operand in uses)


def _groups(graph: Graph) -> Iterable[Tie]:
    """The ties before any `untie head`, in order of first use."""
    uses: dict[Weight, list[Value]] = defaultdict(list)
    for use in graph.uses():
        if use.weight is not None and use.weight.floating:
            uses[use.weight].append(use)
    matrices = {w: None for w in uses if sum(d > 1 for d in w.shape) >= 2}  # ordered, unlike a set
    probes = _Probes(matrices)
    joined: set[Weight] = set()
    for weight, own_uses in uses.items():
        if weight in joined:
            continue
        group, turned = list(own_uses), [False] * len(own_uses)
        if weight in matrices and (len(own_uses) == 1 or weight.zero or not probes.constant(weight)):
            for twin, transposed in probes.equal(weight):
                if twin not in joined and twin is not weight:
                    joined.add(twin)
                    group += uses[twin]
                    turned += [transposed] * len(uses[twin])
        elif not all(_partial(u) for u in own_uses):
            continue
        joined.add(weight)
        if len(group) > 1:
            yield Tie(tuple(group), tuple(turned))


def _partial(use: Value) -> bool:
    """Whether every reader of a use takes a slice of the tensor: uses of its parts belong together."""
    return all(n.has(TAKE) and i == 0 for n, i in use.users)


class _Probes:
    """A few elements of every matrix, at positions that transposition exchanges.

    Unequal matrices rarely share them.
    """

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
        """Whether the probe holds a single number, or no elements.

        False if no numbers are known, as for a config alone.
        """
        if not weight.known:
            return False
        probe = self.of(weight)
        return probe.size == 0 or bool((probe == probe.flat[0]).all())

    @cached_property
    def alike(self) -> dict[object, list[Weight]]:
        """Matrices by shape and probe, without those that are the only one of their shape."""
        by_probe: dict[object, list[Weight]] = defaultdict(list)
        for weight in self.matrices:
            if self.shapes[self.kind(weight)] > 1:
                by_probe[_key(weight.dtype, weight.shape, self.of(weight))].append(weight)
        return by_probe

    def equal(self, weight: Weight) -> Iterable[tuple[Weight, bool]]:
        """Weights with the same values, except for copies made for new layers: (weight, whether it is
        transposed).
        """
        if not weight.known or self.shapes[self.kind(weight)] == 1 or self.constant(weight):
            return
        dtype, shape, probe = weight.dtype, weight.shape, self.of(weight)
        candidates = [w for w in self.alike[_key(dtype, shape, probe)] if w.root != weight.root]
        yield from ((w, False) for w in candidates if _blocks_equal(weight, w))
        if len(shape) == 2:
            turned = self.alike.get(_key(dtype, shape[::-1], probe.T), ())
            transposed = [w for w in turned if w.root != weight.root]
            yield from ((w, True) for w in transposed if _blocks_equal(weight, w, turned=True))


def _key(dtype: str, shape: tuple[int, ...], probe: Array) -> object:
    return dtype, shape, tuple(probe.ravel().tolist())


def _blocks_equal(x: Weight, y: Weight, turned: bool = False) -> bool:
    """Whether some rows of a weight equal those of another one, or its columns if `turned`.

    Columns are read from the weight with fewer rows, since every row of a column block is read from another
    place.
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
