"""Rankings of units for `subclone` and `reorder` on width.

Needs: the axis graph and the ties; the units that earlier statements left. Gives: the numbers of the units
that stay, in their old order, or of all units, highest first. Scores belong to the source's units; a unit
made by an earlier statement has the score of the unit that it copies. Units of equal score keep their order.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Floats, IndexMap, Ints
from growc.algebra.space import Space, find
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import irregular
from growc.errors.source import Span
from growc.passes.ranking.magnitude import Magnitudes
from growc.passes.ranking.unit_scores import MeasuredScores
from growc.recipe import syntax_tree as ast
from growc.recipe.ranking_rules import KEEPING_NUMBERS, RANKINGS, RankingRule, ScoredUnits

By = ast.Subclone | ast.Reorder
"""A statement that ranks the units of an axis."""


@dataclass
class Rankings:
    """Scores of units after earlier statements, computed on the source.

    maps: the map of each space that changed.
    """

    magnitudes: Magnitudes
    maps: dict[Space, IndexMap] = field(default_factory=dict)
    means: dict[Space, Floats] = field(default_factory=dict)
    """For spaces whose units became means, from which `maps` continues: the weights of the source's units in
    each mean.
    """
    scores_for: Callable[[By | None], MeasuredScores | None] = lambda by: None
    """Returns the scores for a statement, measured or from its file; for None, the measured importance."""

    def selection(self, by: By, units: Sequence[Space], size: int, draws: Draws) -> Ints:
        """The units of a product that stay, in their old order. Raises GrowError (G313)."""
        ranking = by.ranking
        rule, count = RANKINGS[ranking.name], self.count(units)
        self.allow(rule, units, ranking.span)
        if rule.places is not None:
            return rule.places(count, size)
        if rule.lists:
            return kept_units(ranking, count, size)
        return np.sort(self.order(by, units, draws)[:size])

    def order(self, by: By, units: Sequence[Space], draws: Draws) -> Ints:
        """All units of a product, highest-ranked first.

        Raises GrowError (G313) for rankings that are no order.
        """
        ranking = by.ranking
        rule, count = RANKINGS[ranking.name], self.count(units)
        if not rule.orders:
            message = f"`{rule.name}` spreads a number of units, and is no order of all"
            raise GrowError(Diagnostic("G313", message, ranking.span))
        if rule.places is not None:
            return np.arange(count)
        if rule.lists:
            first = listed_units(ranking, count)
            return np.concatenate([first, np.setdiff1d(np.arange(count), first)])
        return np.argsort(-self.scores(by, units, draws), kind="stable")

    def scores(self, by: By, units: Sequence[Space], draws: Draws, *, of_source: bool = False) -> Floats:
        """The score of each unit of a product of atoms: of the current units, or of the source's if
        `of_source`.
        """
        rule = RANKINGS[by.ranking.name]
        count = int(np.prod([u.size[0] for u in units], dtype=np.int64)) if of_source else self.count(units)

        def moved(scores: Floats) -> Floats:
            return scores if of_source else self._moved(scores, units)

        assert rule.scores is not None
        return rule.scores(
            ScoredUnits(
                importance=lambda: moved(self._measured(by, units)),
                magnitude=lambda: moved(self.magnitudes.of(units)),
                drawn=lambda: draws.at("rank").uniform(0, count),
                from_file=lambda: moved(self._measured(by, units)),
            )
        )

    def _moved(self, scores: Floats, units: Sequence[Space]) -> Floats:
        """The scores of a product's current units, from those of the source's units."""
        for k, atom in enumerate(map(find, units)):
            outer = [self.count([u]) for u in units[:k]]
            if (means := self.means.get(atom)) is not None:
                scores = _along(outer, means, scores)
            if (unit_map := self.maps.get(atom)) is not None:
                scores = _followed(scores, unit_map, outer)
        return scores

    def _measured(self, by: By, units: Sequence[Space]) -> Floats:
        """The scores of the source's units. Raises GrowError (G313) if they have none."""
        measured = self.scores_for(by)
        scores = None if measured is None else measured.importance(units)
        if measured is None or scores is None:
            cause = "nothing says them" if measured is None else measured.missing
            message = f"these units have no scores: {cause}"
            raise GrowError(Diagnostic("G313", message, by.ranking.span))
        return scores

    def share(self, by: By, space: Space, step: IndexMap) -> float | None:
        """The share of a space's importance that a step drops; None if importance was not measured."""
        measured = self.scores_for(by if RANKINGS[by.ranking.name].measured else None)
        importance = None if measured is None else measured.importance([space])
        key = find(space)
        if importance is None or key in self.maps or key in self.means or not importance.sum():
            return None
        return float(1 - importance[np.unique(step.index)].sum() / importance.sum())

    def count(self, units: Sequence[Space]) -> int:
        """The current number of units."""
        return int(np.prod([self._count(find(u)) for u in units], dtype=np.int64))

    def _count(self, atom: Space) -> int:
        unit_map, means = self.maps.get(atom), self.means.get(atom)
        if unit_map is not None:
            return unit_map.size
        return atom.size[0] if means is None else len(means)

    def allow(self, ranking: RankingRule | None, units: Sequence[Space], span: Span) -> None:
        """Raise GrowError (G313) if the ranking (None: any order) moves units that are known outside by their
        numbers.
        """
        for unit in map(find, units):
            if unit.addressed is not None and not (ranking and ranking.keeps_numbers):
                message = "the outside knows these units by their numbers, so they keep their order"
                remedy = "" if ranking is None else f"write {KEEPING_NUMBERS}"
                raise GrowError(Diagnostic("G313", message, span, "", (unit.addressed.cause,), remedy))

    def copy(self) -> Rankings:
        """A copy of the current state."""
        return replace(self, maps=dict(self.maps), means=dict(self.means))

    def follow(self, space: Space, step: IndexMap) -> None:
        """Record that a statement mapped a space."""
        key = find(space)
        self.maps[key] = step.after(self.maps[key]) if key in self.maps else step

    def since_source(self) -> dict[Space, IndexMap]:
        """The map of every changed space since the source; units that are means of several are marked as
        junk.
        """
        maps = dict(self.maps)
        for atom, means in self.means.items():
            merged = (means != 0).sum(axis=1) != 1
            base = IndexMap.of(means.shape[1], means.argmax(axis=1), junk=merged)
            maps[atom] = maps[atom].after(base) if atom in maps else base
        return maps

    def pool(self, space: Space, step: Floats) -> None:
        """Record that the units of a space became means.

        step: the weights of the previous units in each mean, one row a mean.
        """
        atom = find(space)
        unit_map, means = self.maps.pop(atom, None), self.means.get(atom)
        for earlier in (None if unit_map is None else np.nan_to_num(unit_map.matrix()), means):
            step = step if earlier is None else step @ earlier
        self.means[atom] = step


def _along(outer: Sequence[int], step: Floats, scores: Floats) -> Floats:
    """A matrix times the scores of the units of one factor of a product."""
    table = scores.reshape(int(np.prod(outer, dtype=np.int64)), step.shape[1], -1)
    return np.asarray(np.einsum("ij,ajb->aib", step, table)).reshape(-1)


def _followed(scores: Floats, unit_map: IndexMap, outer: Sequence[int]) -> Floats:
    """The scores of the units that a map makes, along one factor of a product."""
    table = scores.reshape(int(np.prod(outer, dtype=np.int64)), unit_map.source, -1)
    index = np.maximum(unit_map.index, 0)
    moved = np.where(unit_map.copies[None, :, None], table[:, index], 0.0)
    return np.asarray(moved + unit_map.mean[None, :, None] * table.mean(axis=1, keepdims=True)).reshape(-1)


def kept_units(ranking: ast.Ranking, count: int, size: int) -> Ints:
    """The units that a file lists. Raises GrowError (G313) unless there are `size` of them."""
    listed = np.sort(listed_units(ranking, count))
    if len(listed) != size:
        assert ranking.file is not None
        message = f"`{ranking.file.value}` lists {len(listed)} units, and {size} are to stay"
        raise GrowError(Diagnostic("G313", message, ranking.file.span))
    return listed


def listed_units(ranking: ast.Ranking, count: int) -> Ints:
    """The numbers in a file, one a line, in its order.

    Raises GrowError (G313) for lines that are no unit's number.
    """
    assert ranking.file is not None
    path, span = ranking.file.path, ranking.file.span
    if kind := irregular(path):
        raise GrowError(Diagnostic("G313", f"`{path.as_posix()}` is {kind}, and no file", span))
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        problem = (error.strerror or str(error)).lower() if isinstance(error, OSError) else "it is not UTF-8"
        raise GrowError(Diagnostic("G313", f"`{path.as_posix()}` cannot be read: {problem}", span)) from error
    seen: dict[int, None] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text:
            continue
        is_number = text.isdecimal() and len(text) < 19
        if not is_number or int(text) >= count or int(text) in seen:
            why = f"no unit from 0 to {count - 1}"
            if is_number and int(text) in seen:
                why = f"`{int(text)}` again"
            # The message does not quote the line, since the file may be any file.
            message = f"line {number} of `{ranking.file.value}` is {why}"
            raise GrowError(Diagnostic("G313", message, span))
        seen[int(text)] = None
    return np.array(list(seen), dtype=np.int64)
