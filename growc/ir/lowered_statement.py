"""One statement, lowered: the map of every space that it resizes; and sizes as statements change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Bools, IndexMap, Ints
from growc.algebra.space import Size, Space, find, plus, times
from growc.errors.brief import brief
from growc.errors.source import Span
from growc.recipe.fills import Entries, FillRule
from growc.recipe.option_rules import Options


@dataclass(frozen=True, eq=False)
class Request:
    """One space takes one map. `map` is in units of the space; `unit` is how many of its elements a fill's
    unit has.
    """

    __repr__ = brief

    space: Space
    fill: FillRule | None
    """None: a ranking chose the units."""
    map: IndexMap
    new: Bools = field(repr=False)
    draws: Draws = field(repr=False)
    unit: int = 1
    share: float | None = None
    """Which part of the importance of the space is dropped, where it was measured."""

    @property
    def entries(self) -> Entries:
        """What weights hold for units that are no copies."""
        return Entries() if self.fill is None else self.fill.entries

    @property
    def drops(self) -> bool:
        """Whether some units of the space are left out."""
        return bool((self.map.counts == 0).any())

    @property
    def left(self) -> IndexMap:
        """What the map does to the units that it does not drop."""
        return IndexMap.identity(self.map.size) if self.drops else self.map


@dataclass(frozen=True, eq=False)
class Split:
    """Every group of query heads splits into `parts`: the key/value heads become as many times more."""

    keys: Space
    group: Space
    parts: int
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class Shuffle:
    """The query heads of each group change places: the k-th group takes its own in the order `orders[k]`."""

    keys: Space
    group: Space
    orders: Ints
    span: Span | None = None


@dataclass(frozen=True, eq=False)
class Pool:
    """Every `parts` key/value heads in a row become their mean, and their groups of query heads one group."""

    keys: Space
    group: Space
    parts: int
    span: Span | None = None


Regroup = Split | Shuffle
"""What no map of either space says by itself: it takes both to know where a head comes from."""


@dataclass(eq=False)
class Stage:
    """All spaces that one statement maps, or what becomes of groups."""

    __repr__ = brief

    number: int
    text: str
    axis: str
    options: Options
    requests: dict[Space, Request] = field(default_factory=dict)
    span: Span | None = None
    regroups: list[Regroup] = field(default_factory=list)
    pools: list[Pool] = field(default_factory=list)


@dataclass
class Sizes:
    """Today's size of every atom that a statement changed; all others keep the model's.

    `asked` is what statements gave products whose factors are only settled after the last one (groups of
    query heads), by their factors.
    """

    current: dict[Space, int] = field(default_factory=dict)
    asked: dict[tuple[Space, ...], int] = field(default_factory=dict)
    moment: int | None = None
    """The statement before which they stand; None: after the last one."""

    def copy(self) -> Sizes:
        """The sizes as they stand now."""
        return Sizes(dict(self.current), dict(self.asked), self.moment)

    def of(self, space: Space) -> Size:
        """The size of a space, at every sample point."""
        space = find(space)
        if space.kind == "atom":
            changed = self.current.get(space)
            return space.size if changed is None else (changed,) * len(space.size)
        return reduce(times if space.kind == "product" else plus, map(self.of, space.parts))

    def product(self, spaces: Sequence[Space]) -> int:
        """The size of a row-major product of static spaces."""
        asked = self.asked.get(tuple(spaces))
        if asked is not None:
            return asked
        return int(np.prod([self.of(s)[0] for s in spaces], dtype=np.int64))

    def ask(self, spaces: Sequence[Space], size: int) -> None:
        """What a product is to become, once its factors are settled."""
        self.asked[tuple(spaces)] = size

    def apply_to(self, space: Space, stage: Stage) -> None:
        """Take over the size of one atom: of others a later stage may have been taken over by now."""
        request = stage.requests.get(find(space))
        if request is not None:
            self.current[request.space] = request.map.size

    def apply(self, stage: Stage) -> None:
        """Take over the sizes that a stage leaves."""
        self.current.update((key, request.map.size) for key, request in stage.requests.items())
        for split in (r for r in stage.regroups if isinstance(r, Split)):
            keys, group = self.of(split.keys)[0], self.of(split.group)[0]
            self.current.update({split.keys: keys * split.parts, split.group: group // split.parts})
        for pool in stage.pools:
            keys, group = self.of(pool.keys)[0], self.of(pool.group)[0]
            self.current.update({pool.keys: keys // pool.parts, pool.group: group * pool.parts})
