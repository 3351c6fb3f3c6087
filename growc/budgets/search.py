"""Search for sizes that meet a budget and lose least: over levels of axes, without a model.

The axis with the most levels takes as much as the budget leaves to it. All others are tried at levels spread
over their range, and then near the best choices found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product

import numpy as np

from growc.algebra.indexmap import Floats, Ints
from growc.budgets.polynomial import Cost

Levels = tuple[int, ...]
"""A level of each axis, by its place among the axis's levels."""

MOST = 200_000
"""Largest number of combinations of the other axes that are tried."""

NEAR = 0.02
"""A choice counts as near the budget if at most this part of it is unused."""

LEAST_DIFFERENCE = 1 / 10
"""Two choices differ if the share of some axis differs by at least this much."""

REFINED, REFINEMENTS = 24, 4
"""So many of the best choices are moved by single levels, so often: a choice may move by as many levels."""


@dataclass(frozen=True)
class Axis:
    """The levels of one axis, from the smallest: the share that each keeps, and its loss by the scores.

    depth: whether the levels are numbers of layers.
    """

    shares: Floats
    lost: Floats
    depth: bool = False


@dataclass(frozen=True)
class Candidate:
    """A choice of levels, its cost and its loss."""

    levels: Levels
    amount: float
    lost: float


@dataclass
class Search:
    """The choices of levels under a budget."""

    axes: Sequence[Axis]
    cost: Cost
    barred: set[Levels] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.rows, self.powers = self.cost.table()
        self.width = [k for k, axis in enumerate(self.axes) if not axis.depth]
        self.deep = next((k for k, axis in enumerate(self.axes) if axis.depth), None)

    def amounts(self, levels: Ints) -> Floats:
        """The costs of choices, one a row."""
        row = levels[:, self.deep] if self.deep is not None and len(self.rows) > 1 else 0
        terms = np.broadcast_to(self.rows[row], (len(levels), self.rows.shape[1])).copy()
        for column, k in enumerate(self.width):
            shares = self.axes[k].shares[levels[:, k]]
            terms *= shares[:, None] ** self.powers[:, column][None, :]
        return np.asarray(terms.sum(axis=1))

    def lost(self, levels: Ints) -> Floats:
        """The losses of choices, one a row; errors of several axes add up in their squares."""
        each = [axis.lost[levels[:, k]] ** 2 for k, axis in enumerate(self.axes)]
        return np.asarray(np.sqrt(np.sum(each, axis=0)))

    def best(self, limit: float) -> list[Candidate]:
        """The choices within a budget, smallest loss first. If some are near the budget, these come before
        all others.
        """
        finest = max(range(len(self.axes)), key=lambda k: len(self.axes[k].shares))
        choices = self.filled(np.array(list(product(*self.spread(finest))), dtype=np.int64), finest, limit)
        for _ in range(REFINEMENTS):
            ranked = self.ranked(choices, limit)[:REFINED]
            if not ranked:
                return []
            neighbours = {neighbour for choice in ranked for neighbour in self.beside(choice.levels, finest)}
            choices = np.unique(
                np.concatenate([choices, self.filled(np.array(sorted(neighbours)), finest, limit)]), axis=0
            )
        return self.ranked(choices, limit)

    def spread(self, finest: int) -> list[Sequence[int]]:
        """Levels of each axis that are tried in combination: all of them, or some spread over their range."""
        counts = [1 if k == finest else len(axis.shares) for k, axis in enumerate(self.axes)]
        most = max(counts)
        while np.prod([float(min(n, most)) for n in counts]) > MOST:
            most -= 1
        return [
            [0] if k == finest else sorted({round(i) for i in np.linspace(0, n - 1, min(n, most))})
            for k, n in enumerate(counts)
        ]

    def filled(self, levels: Ints, finest: int, limit: float) -> Ints:
        """The choices whose finest axis takes the highest level that the budget allows."""
        low, high = np.zeros(len(levels), np.int64), np.full(len(levels), len(self.axes[finest].shares) - 1)
        levels = levels.copy()
        while (low < high).any():
            levels[:, finest] = (low + high + 1) // 2
            fits = self.amounts(levels) <= limit
            low, high = np.where(fits, levels[:, finest], low), np.where(fits, high, levels[:, finest] - 1)
            high = np.maximum(low, high)
        levels[:, finest] = low
        return levels[self.amounts(levels) <= limit]

    def beside(self, levels: Levels, finest: int) -> Iterator[Levels]:
        """Choices that differ by one level of one axis, or of two axes."""
        moves = [k for k in range(len(self.axes)) if k != finest]
        for steps in product((-1, 0, 1), repeat=len(moves)):
            neighbour = list(levels)
            for k, step in zip(moves, steps, strict=True):
                neighbour[k] = min(max(neighbour[k] + step, 0), len(self.axes[k].shares) - 1)
            if sum(map(abs, steps)) <= 2:
                yield tuple(neighbour)

    def ranked(self, levels: Ints, limit: float) -> list[Candidate]:
        """Choices that are not barred, in order."""
        if not len(levels):
            return []
        amounts, lost = self.amounts(levels), self.lost(levels)
        near = amounts >= (1 - NEAR) * limit
        order = np.lexsort((lost, ~near)) if near.any() else np.lexsort((lost, -amounts))
        choices = (Candidate(tuple(map(int, levels[k])), float(amounts[k]), float(lost[k])) for k in order)
        return [choice for choice in choices if choice.levels not in self.barred]

    def different(self, candidates: Sequence[Candidate], count: int) -> list[Candidate]:
        """The best choices of which no two are nearly the same, at most `count`."""
        chosen: list[Candidate] = []
        for candidate in candidates:
            if len(chosen) == count:
                break
            if all(self.apart(candidate.levels, previous.levels) >= LEAST_DIFFERENCE for previous in chosen):
                chosen.append(candidate)
        return chosen

    def apart(self, one: Levels, other: Levels) -> float:
        """The largest difference between the shares of an axis."""
        pairs = zip(self.axes, one, other, strict=True)
        return max(abs(float(axis.shares[a] - axis.shares[b])) for axis, a, b in pairs)

    def around(self, candidate: Candidate, limit: float) -> tuple[Candidate | None, Candidate | None]:
        """The nearest choices by a single level of one axis: the next cheaper one, and the next above the
        budget.
        """
        single = [
            (*candidate.levels[:k], candidate.levels[k] + step, *candidate.levels[k + 1 :])
            for k, axis in enumerate(self.axes)
            for step in (-1, 1)
            if 0 <= candidate.levels[k] + step < len(axis.shares)
        ]
        if not single:
            return None, None
        levels = np.array(single, dtype=np.int64)
        neighbours = [
            Candidate(*fields)
            for fields in zip(
                single, map(float, self.amounts(levels)), map(float, self.lost(levels)), strict=True
            )
        ]
        below = max(
            (m for m in neighbours if m.amount < candidate.amount), key=lambda m: m.amount, default=None
        )
        above = min((m for m in neighbours if m.amount > limit), key=lambda m: m.amount, default=None)
        return below, above
