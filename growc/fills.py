"""The fills: how D units are made of d. One function each; to add one, add it to FILLS and to the language.

g(j) below is the source unit of unit j. See docs/language.md for the table and the papers.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from growc.draws import Draws
from growc.indexmap import Bools, IndexMap, Ints

Fill = Callable[[int, int, Draws], IndexMap]


def _copies(d: int, g: Ints) -> IndexMap:
    return IndexMap.of(d, g)


def _with_originals(d: int, more: Ints) -> IndexMap:
    return _copies(d, np.concatenate([np.arange(d), more]).astype(np.int64))


def neighbor_copy(d: int, size: int, draws: Draws) -> IndexMap:
    """g(j) = floor(j·d/D): each copy beside its original (NAI)."""
    return _copies(d, np.arange(size) * d // size)


def tail_copy(d: int, size: int, draws: Draws) -> IndexMap:
    """The last D − d units once more, in order (NAI, "last heads")."""
    j = np.arange(d, size)
    return _with_originals(d, d - 1 - ((size - 1 - j) % d))


def last_copy(d: int, size: int, draws: Draws) -> IndexMap:
    """g(j) = d − 1 for every new unit (NAI, "the last")."""
    return _with_originals(d, np.full(size - d, d - 1))


def uniform_copy(d: int, size: int, draws: Draws) -> IndexMap:
    """g(j) uniform on 0 .. d−1 (Net2Net; bert2BERT, equation 6)."""
    return _with_originals(d, draws.integers(size - d, d))


def cyclic_copy(d: int, size: int, draws: Draws) -> IndexMap:
    """g(j) = j mod d (HyperCloning, LEMON)."""
    return _copies(d, np.arange(size) % d)


def average_fill(d: int, size: int, draws: Draws) -> IndexMap:
    """floor(D/d) cyclic copies of all units, then the mean of all units in the rest (LEMON)."""
    whole = size // d * d
    rest = np.arange(size) >= whole
    return IndexMap.of(d, np.where(rest, -1, np.arange(size) % d), None, rest.astype(np.float64))


def zero_fill(d: int, size: int, draws: Draws) -> IndexMap:
    """New units are zero (Gesmundo and Maile)."""
    return _with_originals(d, np.full(size - d, -1))


def random_fill(d: int, size: int, draws: Draws) -> IndexMap:
    """New units are drawn (DirectCopy)."""
    made = zero_fill(d, size, draws)
    return IndexMap.of(d, made.index, None, None, np.arange(size) >= d)


FILLS: dict[str, Fill] = {
    "neighbor copy": neighbor_copy,
    "tail copy": tail_copy,
    "last copy": last_copy,
    "uniform copy": uniform_copy,
    "cyclic copy": cyclic_copy,
    "average fill": average_fill,
    "zero fill": zero_fill,
    "random fill": random_fill,
}


def appended(filled: IndexMap) -> IndexMap:
    """The same copies with the originals first, in their old order: for axes that the outside numbers."""
    fresh = new_units(filled)
    order = np.concatenate([np.flatnonzero(~fresh), np.flatnonzero(fresh)])
    return IndexMap.of(
        filled.source, filled.index[order], filled.weight[order], filled.mean[order], filled.junk[order]
    )


def new_units(filled: IndexMap) -> Bools:
    """Which rows are new: every row but the first copy of each unit."""
    fresh = np.ones(filled.size, dtype=bool)
    _units, first = np.unique(filled.index[filled.copies], return_index=True)
    fresh[np.flatnonzero(filled.copies)[first]] = False
    return fresh
