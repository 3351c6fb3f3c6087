"""An index map as bands: consecutive units of the result that follow from the source in one way.

Needs: the map of an axis. Gives: a limited number of `Band`s, whatever the size of the axis.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Bools, IndexMap, Ints
from growc.recipe.fills import new_units

KINDS = ("kept", "copy", "mean", "zero", "new")
"""Kinds of a unit of the result: the first copy of a source unit, a further copy, a mean of all units, zero,
or drawn.
"""

SINGLE = 32
"""If an axis has at most this many units and any of them changes, each unit is a band of its own."""

MIXED = "mixed"
"""The kind of a band that stands for several kinds."""


REGROUPED = "regrouped"
"""The kind of heads whose groups split, join or are shuffled."""


@dataclass(frozen=True)
class Band:
    """Units first..last of the result, and low..high of the source, both half-open.

    low, high: -1 if no unit comes from the source. counts: the number of units of each kind.
    """

    kind: str
    first: int
    last: int
    low: int
    high: int
    counts: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Bands:
    """A whole map.

    dropped: ranges of source units that the result lacks. merged: whether a band stands for units of several
    kinds or places.
    """

    before: int
    after: int
    bands: tuple[Band, ...]
    dropped: tuple[tuple[int, int], ...] = ()
    merged: bool = False

    @property
    def unchanged(self) -> bool:
        """Whether every unit keeps its place."""
        return self.before == self.after and [(b.kind, b.low) for b in self.bands] == [("kept", 0)]


def bands_of(index_map: IndexMap, limit: int) -> Bands:
    """A map as at most `limit` bands; with few units each is a band of its own."""
    kinds = unit_kinds(index_map)
    few = index_map.size <= min(limit, SINGLE) and not index_map.is_identity
    starts = np.arange(index_map.size) if few else _starts(index_map, kinds)
    merged = len(starts) > limit
    if merged:
        starts = np.unique(np.linspace(0, index_map.size, limit + 1).astype(np.int64)[:-1])
    ends = [*starts[1:].tolist(), index_map.size] if len(starts) else []
    bands = tuple(_band(index_map, kinds, a, b) for a, b in zip(starts.tolist(), ends, strict=True))
    return Bands(index_map.source, index_map.size, bands, _dropped(index_map, limit), merged)


def regrouped(before: int, after: int) -> Bands:
    """The bands of an axis whose units have no map of their own."""
    whole = Band(MIXED, 0, after, 0, before, ((REGROUPED, after),))
    return Bands(before, after, (whole,), merged=True)


def unit_kinds(index_map: IndexMap) -> Ints:
    """The kind of every unit, as its place in KINDS."""
    fresh = new_units(index_map)
    kinds = np.where(index_map.junk, KINDS.index("new"), KINDS.index("zero"))
    kinds = np.where((index_map.mean != 0) & ~index_map.junk, KINDS.index("mean"), kinds)
    copied = np.where(fresh, KINDS.index("copy"), KINDS.index("kept"))
    return np.asarray(np.where(index_map.copies, copied, kinds), dtype=np.int64)


def _starts(index_map: IndexMap, kinds: Ints) -> Ints:
    """The first unit of each row of units that continue in one way."""
    if not index_map.size:
        return np.zeros(0, dtype=np.int64)
    goes_on = (kinds[1:] == kinds[:-1]) & (
        ~index_map.copies[1:] | (index_map.index[1:] == index_map.index[:-1] + 1)
    )
    return np.concatenate([[0], 1 + np.flatnonzero(~goes_on)])


def _band(index_map: IndexMap, kinds: Ints, first: int, last: int) -> Band:
    band_kinds = kinds[first:last]
    counts = tuple((name, n) for k, name in enumerate(KINDS) if (n := int(np.count_nonzero(band_kinds == k))))
    sources = index_map.index[first:last][index_map.copies[first:last]]
    low, high = (int(sources.min()), int(sources.max()) + 1) if len(sources) else (-1, -1)
    return Band(counts[0][0] if len(counts) == 1 else MIXED, first, last, low, high, counts)


def _dropped(index_map: IndexMap, limit: int) -> tuple[tuple[int, int], ...]:
    """Ranges of source units without a copy; only the largest ones if there are many."""
    if index_map.mean.any():
        return ()
    uncopied: Bools = index_map.counts == 0
    edges = np.flatnonzero(np.diff(np.concatenate([[False], uncopied, [False]]).astype(np.int8)))
    ranges = list(zip(edges[::2].tolist(), edges[1::2].tolist(), strict=True))
    largest = sorted(ranges, key=lambda one: (one[0] - one[1], one[0]))[:limit]
    return tuple(sorted(largest))
