"""One lowered statement: the map of every space that it resizes. And the sizes that statements change."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce
from math import prod

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Bools, Floats, IndexMap, Ints
from growc.algebra.space import Size, Space, find, plus, times
from growc.errors.short_repr import brief
from growc.errors.source import Span
from growc.ir.graph import Node
from growc.recipe.fills import Entries, FillRule
from growc.recipe.option_rules import StatementOptions


@dataclass(frozen=True, eq=False)
class SpaceRequest:
    """The request that one space takes one map.

    `map`: the map over units of the space. `unit`: the number of the space's elements in a unit of the fill.
    """

    __repr__ = brief

    space: Space
    fill: FillRule | None
    """The fill of new units; None where a ranking chose the units."""
    map: IndexMap
    new: Bools = field(repr=False)
    draws: Draws = field(repr=False)
    unit: int = 1
    share: float | None = None
    """The share of the space's importance that is dropped, where importance was measured."""

    @property
    def entries(self) -> Entries:
        """The entries of weights for units that are no copies."""
        return Entries() if self.fill is None else self.fill.entries

    @property
    def drops(self) -> bool:
        """Whether some units of the space are dropped."""
        return bool((self.map.counts == 0).any())

    @property
    def left(self) -> IndexMap:
        """The map over the units that are not dropped."""
        return IndexMap.identity(self.map.size) if self.drops else self.map


@dataclass(eq=False)
class Units:
    """The origins of an axis's units: `index[i]` for units whose group is of the i-th kind.

    `part`: the kind of each unit; -1 where the axis does not determine it.
    """

    index: Ints
    part: Ints

    def resolved(self) -> Ints | None:
        """One index for each unit; None where it depends on another axis."""
        if (self.part < 0).any() and (self.index != self.index[:1])[:, self.part < 0].any():
            return None
        index: Ints = self.index[np.maximum(self.part, 0), np.arange(len(self.part))]
        return index

    def mean(self, size: int) -> Floats:
        """Each unit as the mean of its origins in all kinds of groups, shape (units, size).

        size: the number of old units.
        """
        rows: Floats = np.eye(size)[self.index].mean(axis=0)
        return rows


@dataclass(frozen=True, eq=False)
class Regroup:
    """A map of the product (keys group): both factors together determine the origin of a query head.

    `cannot`: the start of the message where the map cannot act. `averages`: whether keys are means wherever
    nothing says for which group they are read.
    """

    __repr__ = brief

    keys: Space
    group: Space
    of_keys: Units
    of_group: Units
    cannot: str
    averages: bool = False
    span: Span | None = None

    @property
    def kinds(self) -> int:
        """The number of kinds of groups."""
        return len(self.of_keys.index)

    @property
    def sizes(self) -> tuple[int, int]:
        """The numbers of heads afterwards: keys, and queries for each key."""
        return len(self.of_keys.part), len(self.of_group.part)


def split(keys: int, group: int, parts: int) -> tuple[Units, Units]:
    """Split every group into `parts`: query head (k, g) becomes (k·parts + g // G', g mod G')."""
    new, inside = np.arange(keys * parts), group // parts
    of_group = np.arange(inside) + inside * np.arange(parts)[:, None]
    return Units(np.tile(new // parts, (parts, 1)), new % parts), Units(of_group, np.full(inside, -1))


def shuffle(orders: Ints) -> tuple[Units, Units]:
    """Put the heads of the k-th group in the order `orders[k]`."""
    keys, group = orders.shape
    each = np.arange(keys)
    return Units(np.tile(each, (keys, 1)), each), Units(orders, np.full(group, -1))


def pool(keys: int, group: int, parts: int) -> tuple[Units, Units]:
    """Merge `parts` groups into one: query head (k, g) becomes (k // parts, (k mod parts)·G + g)."""
    pooled, new = np.arange(keys // parts), np.arange(group * parts)
    of_keys = pooled * parts + np.arange(parts)[:, None]
    return Units(of_keys, np.full(len(pooled), -1)), Units(np.tile(new % group, (parts, 1)), new // group)


@dataclass(frozen=True, eq=False)
class Choice:
    """A ranking that chooses units of a space that changes.

    slots: the axes whose units are the chosen ones. before, after: the number that it chooses.
    """

    __repr__ = brief

    ranking: Node
    space: Space
    slots: frozenset[Space]
    before: int
    after: int


@dataclass(eq=False)
class Stage:
    """All requests of one statement: maps of spaces, regroupings of heads, choices and merges."""

    __repr__ = brief

    number: int
    text: str
    axis: str
    options: StatementOptions
    requests: dict[Space, SpaceRequest] = field(default_factory=dict)
    span: Span | None = None
    regroups: list[Regroup] = field(default_factory=list)
    choices: list[Choice] = field(default_factory=list)
    merges: dict[Space, int] = field(default_factory=dict)
    """For each merged space, the number of consecutive units that become their mean."""
    in_parts: bool = False
    """Whether the units that a copy loses are those that other parts of the copy have."""

    @property
    def changes(self) -> bool:
        """Whether the statement changes anything."""
        chosen = any(choice.before != choice.after for choice in self.choices)
        return bool(self.requests or self.regroups or self.merges or chosen)


@dataclass
class Sizes:
    """The current size of every atom that a statement changed. All other atoms have the model's size.

    `asked`: the sizes that statements gave to products, by their factors, where the factors are settled only
    after the last statement (groups of query heads).
    """

    current: dict[Space, int] = field(default_factory=dict)
    asked: dict[tuple[Space, ...], int] = field(default_factory=dict)
    moment: int | None = None
    """The number of the statement before which these sizes hold; None: after the last statement."""

    def copy(self) -> Sizes:
        """A copy of the current sizes."""
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
        size = self.asked.get(tuple(spaces))
        if size is not None:
            return size
        return prod(self.of(s)[0] for s in spaces)

    def ask(self, spaces: Sequence[Space], size: int) -> None:
        """Record the size that a product will have once its factors are settled."""
        self.asked[tuple(spaces)] = size

    def apply_to(self, space: Space, stage: Stage) -> None:
        """Set the size of one atom after a stage. Other atoms may already have sizes of later stages."""
        request = stage.requests.get(find(space))
        if request is not None:
            self.current[request.space] = request.map.size

    def apply(self, stage: Stage) -> None:
        """Set the sizes of all atoms after a stage."""
        self.current.update((key, request.map.size) for key, request in stage.requests.items())
        self.current.update((space, self.of(space)[0] // parts) for space, parts in stage.merges.items())
        for choice in stage.choices:
            self.current.update(dict.fromkeys(choice.slots, choice.after))
        for one in stage.regroups:
            self.regroup(one)

    def regroup(self, regroup: Regroup) -> None:
        """Set the numbers of heads after a regrouping."""
        self.current.update(zip((regroup.keys, regroup.group), regroup.sizes, strict=True))
