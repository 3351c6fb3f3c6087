"""One statement, lowered: the map of every space that it resizes; and sizes as statements change them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import reduce

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Bools, Floats, IndexMap, Ints
from growc.algebra.space import Size, Space, find, plus, times
from growc.errors.brief import brief
from growc.errors.source import Span
from growc.ir.graph import Node
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


@dataclass(eq=False)
class Units:
    """Where the units of an axis come from: `index[i]` where the group of a unit is of the i-th kind.

    `part`: which kind that is for each unit; -1 where the axis does not say.
    """

    index: Ints
    part: Ints

    def resolved(self) -> Ints | None:
        """One index for each unit; None where it takes another axis to know."""
        if (self.part < 0).any() and (self.index != self.index[:1])[:, self.part < 0].any():
            return None
        at: Ints = self.index[np.maximum(self.part, 0), np.arange(len(self.part))]
        return at

    def mean(self, size: int) -> Floats:
        """Each unit as the mean of where it comes from in all kinds of groups, a row over `size` old ones."""
        found: Floats = np.eye(size)[self.index].mean(axis=0)
        return found


@dataclass(frozen=True, eq=False)
class Regroup:
    """A map of the product (keys group): it takes both to know where a query head comes from.

    `cannot`: what is refused where the map cannot act. `averages`: whether keys are means wherever nothing
    says for which group they are read.
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
        """How many kinds of groups there are."""
        return len(self.of_keys.index)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many heads there are afterwards: keys, and queries for each."""
        return len(self.of_keys.part), len(self.of_group.part)


def split(keys: int, group: int, parts: int) -> tuple[Units, Units]:
    """Every group splits into `parts`: query head (k, g) becomes (k·parts + g // G', g mod G')."""
    new, inside = np.arange(keys * parts), group // parts
    of_group = np.arange(inside) + inside * np.arange(parts)[:, None]
    return Units(np.tile(new // parts, (parts, 1)), new % parts), Units(of_group, np.full(inside, -1))


def shuffle(orders: Ints) -> tuple[Units, Units]:
    """The k-th group takes its own heads in the order `orders[k]`."""
    keys, group = orders.shape
    each = np.arange(keys)
    return Units(np.tile(each, (keys, 1)), each), Units(orders, np.full(group, -1))


def pool(keys: int, group: int, parts: int) -> tuple[Units, Units]:
    """`parts` groups become one: query head (k, g) becomes (k // parts, (k mod parts)·G + g)."""
    left, new = np.arange(keys // parts), np.arange(group * parts)
    of_keys = left * parts + np.arange(parts)[:, None]
    return Units(of_keys, np.full(len(left), -1)), Units(np.tile(new % group, (parts, 1)), new // group)


@dataclass(frozen=True, eq=False)
class Choice:
    """A ranking that chooses units of a space that changes. slots: the axes that number what it chooses;
    before, after: how many it chooses.
    """

    __repr__ = brief

    ranking: Node
    space: Space
    slots: frozenset[Space]
    before: int
    after: int


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
    choices: list[Choice] = field(default_factory=list)
    merges: dict[Space, int] = field(default_factory=dict)
    """Of spaces, how many units in a row become their mean."""
    in_parts: bool = False
    """Whether units that go from a copy are those that other parts of the copy have."""

    @property
    def changes(self) -> bool:
        """Whether there is anything to do."""
        chosen = any(choice.before != choice.after for choice in self.choices)
        return bool(self.requests or self.regroups or self.merges or chosen)


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
        self.current.update((space, self.of(space)[0] // parts) for space, parts in stage.merges.items())
        for choice in stage.choices:
            self.current.update(dict.fromkeys(choice.slots, choice.after))
        for one in stage.regroups:
            self.regroup(one)

    def regroup(self, one: Regroup) -> None:
        """Take over the numbers of heads that other groups have."""
        self.current.update(zip((one.keys, one.group), one.sizes, strict=True))
