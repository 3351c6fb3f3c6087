"""The fills: rules that make D units of d units, one row each in FILLS.

The language, its messages and the table in docs/language.md follow from the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Literal

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Bools, IndexMap, Ints
from growc.recipe.words import Word

CopyFormula = Callable[[Ints, int, int, Draws], Ints]
"""Maps units j to the units g(j) of the source that they copy; -1 where a unit is no copy."""


class Entry(Enum):
    """The entry of a weight for a new unit that is no copy."""

    ZERO = "zero"
    MEAN = "the mean of all old units"
    DRAWN = "drawn with the source tensor's standard deviation; in vectors zero, in gains one"
    ANY = "drawn where every number keeps the function, else zero"
    RESCALED = "drawn beside the columns of first copies, all of them times sqrt(d/D)"


@dataclass(frozen=True)
class Entries:
    """The entries of weights for new units that are no copies: of weights that make, scale or read them.

    `reading` RESCALED applies to copies too: the first copy of each unit keeps the column of the unit.
    """

    making: Literal[Entry.ZERO, Entry.MEAN, Entry.DRAWN] = Entry.ZERO
    scaling: Literal[Entry.MEAN, Entry.DRAWN] = Entry.MEAN
    reading: Literal[Entry.ZERO, Entry.DRAWN, Entry.ANY, Entry.RESCALED] = Entry.ZERO


ALL_DRAWN = Entries(making=Entry.DRAWN, scaling=Entry.DRAWN, reading=Entry.DRAWN)


@dataclass(frozen=True)
class FillRule(Word):
    """One rule that makes D units of d units.

    - g: the formula of copies.
    - making, reading, source: the text of docs/language.md on the weights that make and read new units, and
      on the origin of the fill.
    - copies: whether all, some or none of the new units are copies.
    - in_front: whether the old units come first. Then g gives the others alone.
    - whole_runs: whether it repeats whole runs of units. Then, on a product, it acts on the outermost factor
      that can take it.
    - layers: whether it makes whole layers too, which are no copies.
    """

    g: CopyFormula
    making: str
    source: str
    reading: str = "divided by C"
    copies: Literal["all", "some", "none"] = "all"
    entries: Entries = Entries()
    in_front: bool = True
    whole_runs: bool = False
    layers: bool = False

    @property
    def draws(self) -> bool:
        """Whether new units are drawn."""
        return self.entries.making is Entry.DRAWN

    @property
    def shares(self) -> bool:
        """Whether the copies of a unit share the columns of the weights that read it."""
        return self.copies != "none" and self.entries.reading is not Entry.RESCALED

    def map(self, d: int, size: int, draws: Draws) -> IndexMap:
        """The index map of the new axis with `size` units, made of `d` old units."""
        in_front = np.arange(d if self.in_front else 0)
        index = np.concatenate([in_front, self.g(np.arange(len(in_front), size), d, size, draws)])
        no_copies = index < 0
        means = no_copies.astype(np.float64) if self.entries.making is Entry.MEAN else None
        return IndexMap.of(d, index, None, means, no_copies if self.entries.making is Entry.DRAWN else None)


_ROWS = (
    FillRule(
        "neighbor copy",
        lambda j, d, size, draws: j * d // size,
        "g(j) = floor(j·d/D): each copy beside its original",
        "NAI",
        in_front=False,
    ),
    FillRule(
        "tail copy",
        lambda j, d, size, draws: d - 1 - (size - 1 - j) % d,
        "the last D − d units once more, in order: g(j) = d − 1 − ((D − 1 − j) mod d) for j ≥ d",
        'NAI, "last heads"',
    ),
    FillRule(
        "last copy",
        lambda j, d, size, draws: j * 0 + d - 1,
        "g(j) = d − 1 for j ≥ d",
        'NAI, "the last"',
    ),
    FillRule(
        "uniform copy",
        lambda j, d, size, draws: draws.integers(len(j), d),
        "g(j) drawn uniformly from 0..d−1 for j ≥ d",
        "Net2Net, FPI, ELLE",
    ),
    FillRule(
        "cyclic copy",
        lambda j, d, size, draws: j % d,
        "g(j) = j mod d",
        "HyperCloning, LEMON",
        whole_runs=True,
    ),
    FillRule(
        "rescaled copy",
        lambda j, d, size, draws: j % d,
        "g(j) = j mod d, nowhere weighted",
        "after SPARKLING",
        "the first copy of each unit keeps its column, the others' are drawn (source tensor's std); "
        "all times sqrt(d/D)",
        entries=Entries(reading=Entry.RESCALED),
        whole_runs=True,
    ),
    FillRule(
        "average fill",
        lambda j, d, size, draws: np.where(j < size // d * d, j % d, -1),
        "k = floor(D/d) cyclic copies of all units, then the mean of all units in the other D − kd "
        "(gain: mean; LayerNorm bias 0)",
        "LEMON",
        "copies divided by k; mean units: zero, or drawn (source tensor's std) where a norm that centres "
        "feeds them zeros",
        copies="some",
        entries=Entries(making=Entry.MEAN, reading=Entry.ANY),
        whole_runs=True,
    ),
    FillRule(
        "zero fill",
        lambda j, d, size, draws: j * 0 - 1,
        "zero (gain: mean)",
        "Gesmundo & Maile (hidden)",
        "drawn, source tensor's std; zero where new units are not zero any more",
        copies="none",
        entries=Entries(making=Entry.ZERO, reading=Entry.ANY),
    ),
    FillRule(
        "random fill",
        lambda j, d, size, draws: j * 0 - 1,
        "drawn N(0, source tensor's std); biases 0, gains 1",
        "DirectCopy",
        "drawn likewise",
        copies="none",
        entries=ALL_DRAWN,
        layers=True,
    ),
)

FILLS = {rule.name: rule for rule in _ROWS}

LAYER_FILLS = {rule.name: rule for rule in _ROWS if rule.layers}
"""The fills that can make new layers, by name."""


OFFERED = ("cyclic copy split random", "cyclic copy", "zero fill", "average fill")
"""The fills that a starter recipe tries for new units, the best to train with first."""

OFFERED_OF = {"vocab": ("average fill", *OFFERED)}
"""The same for axes that have others: a new token is none of the old tokens."""


def appended(filled: IndexMap) -> IndexMap:
    """The map with the originals first, in their old order: for axes whose units are known by number."""
    fresh = new_units(filled)
    order = np.concatenate([np.flatnonzero(~fresh), np.flatnonzero(fresh)])
    return IndexMap.of(
        filled.source, filled.index[order], filled.weight[order], filled.mean[order], filled.junk[order]
    )


def reset(fill: FillRule, filled: IndexMap, part: float, draws: Draws) -> tuple[FillRule, IndexMap]:
    """The fill and its map, with some of the new units drawn instead of copied.

    These are floor(part · their number) units, chosen uniformly.
    """
    new = np.flatnonzero(new_units(filled))
    count = int(part * len(new) + 1e-9)
    chosen = new[np.argsort(draws.uniform(0, len(new)), kind="stable")[:count]]
    index, junk = filled.index.copy(), filled.junk.copy()
    index[chosen], junk[chosen] = -1, True
    index_map = IndexMap.of(filled.source, index, filled.weight, filled.mean, junk)
    return replace(fill, copies="some", entries=ALL_DRAWN), index_map


def new_units(filled: IndexMap) -> Bools:
    """The rows that are new, shape (D,): all rows except the first copy of each unit."""
    is_new = np.ones(filled.size, dtype=bool)
    _units, first = np.unique(filled.index[filled.copies], return_index=True)
    is_new[np.flatnonzero(filled.copies)[first]] = False
    return is_new
