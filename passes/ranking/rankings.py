"""Which units rank highest: the rankings of `subclone` and `reorder`, on width.

Needs: the axis graph and the ties; the units that earlier statements left. Gives: the numbers of the units
that stay, in their old order, or of all units, highest first. Scores are those of the source's units; a unit
that an earlier statement made has the score of the unit that it is a copy of. Equal scores keep their order.
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
from growc.passes.ranking.unit_scores import Measured
from growc.recipe import syntax_tree as ast
from growc.recipe.ranking_rules import KEEPING_NUMBERS, RANKINGS, RankingRule, Units

By = ast.Subclone | ast.Reorder
"""A statement that ranks the units of an axis."""


@dataclass
class Rankings:
    """Scores, on the source, of the units of spaces as they stand (`made`: what they were made of)."""

    magnitudes: Magnitudes
    made: dict[Space, IndexMap] = field(default_factory=dict)
    means: dict[Space, Floats] = field(default_factory=dict)
    """Of spaces whose units became means, and from which `made` goes on: how much of each of the source's."""
    found: Callable[[By | None], Measured | None] = lambda by: None
    """What was measured for a statement, or its file says; for none, the importance that was measured."""

    def selection(self, by: By, units: Sequence[Space], size: int, draws: Draws) -> Ints:
        """The units of a product that stay, in their old order."""
        ranking = by.ranking
        rule, count = RANKINGS[ranking.name], self.count(units)
        self.allow(rule, units, ranking.span)
        if rule.places is not None:
            return rule.places(count, size)
        if rule.lists:
            return kept_units(ranking, count, size)
        return np.sort(self.order(by, units, draws)[:size])

    def order(self, by: By, units: Sequence[Space], draws: Draws) -> Ints:
        """All units, highest first."""
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
        """One number for each unit of a product of atoms, as it stands or `of_source`."""
        rule = RANKINGS[by.ranking.name]
        count = int(np.prod([u.size[0] for u in units], dtype=np.int64)) if of_source else self.count(units)

        def moved(found: Floats) -> Floats:
            return found if of_source else self._moved(found, units)

        assert rule.scores is not None
        return rule.scores(
            Units(
                importance=lambda: moved(self._measured(by, units)),
                magnitude=lambda: moved(self.magnitudes.of(units)),
                drawn=lambda: draws.at("rank").uniform(0, count),
                given=lambda: moved(self._measured(by, units)),
            )
        )

    def _moved(self, found: Floats, units: Sequence[Space]) -> Floats:
        """The scores of the units of a product as it stands, from those of the source's."""
        for k, atom in enumerate(map(find, units)):
            outer = [self.count([u]) for u in units[:k]]
            if (means := self.means.get(atom)) is not None:
                found = _along(outer, means, found)
            if (made := self.made.get(atom)) is not None:
                found = _followed(found, made, outer)
        return found

    def _measured(self, by: By, units: Sequence[Space]) -> Floats:
        """The scores of the source's units. Raises GrowError (G313) where they have none."""
        found = self.found(by)
        scores = None if found is None else found.importance(units)
        if found is None or scores is None:
            cause = "nothing says them" if found is None else found.missing
            message = f"these units have no scores: {cause}"
            raise GrowError(Diagnostic("G313", message, by.ranking.span))
        return scores

    def share(self, by: By, space: Space, step: IndexMap) -> float | None:
        """Which part of the importance of a space a step drops; None where it was not measured."""
        measured = self.found(by if RANKINGS[by.ranking.name].measured else None)
        found = None if measured is None else measured.importance([space])
        key = find(space)
        if found is None or key in self.made or key in self.means or not found.sum():
            return None
        return float(1 - found[np.unique(step.index)].sum() / found.sum())

    def count(self, units: Sequence[Space]) -> int:
        """How many units there are now."""
        return int(np.prod([self._count(find(u)) for u in units], dtype=np.int64))

    def _count(self, atom: Space) -> int:
        made, means = self.made.get(atom), self.means.get(atom)
        if made is not None:
            return made.size
        return atom.size[0] if means is None else len(means)

    def allow(self, ranking: RankingRule | None, units: Sequence[Space], span: Span) -> None:
        """Raise GrowError (G313) where the outside numbers units that a ranking (None: any order) moves."""
        for unit in map(find, units):
            if unit.addressed is not None and not (ranking and ranking.keeps_numbers):
                message = "the outside knows these units by their numbers, so they keep their order"
                remedy = "" if ranking is None else f"write {KEEPING_NUMBERS}"
                raise GrowError(Diagnostic("G313", message, span, "", (unit.addressed.cause,), remedy))

    def copy(self) -> Rankings:
        """The same at this moment."""
        return replace(self, made=dict(self.made), means=dict(self.means))

    def follow(self, space: Space, step: IndexMap) -> None:
        """A statement has mapped a space."""
        key = find(space)
        self.made[key] = step.after(self.made[key]) if key in self.made else step

    def since_source(self) -> dict[Space, IndexMap]:
        """What every space that changed was mapped to; units that are means of several are junk."""
        found = dict(self.made)
        for atom, means in self.means.items():
            merged = (means != 0).sum(axis=1) != 1
            base = IndexMap.of(means.shape[1], means.argmax(axis=1), junk=merged)
            found[atom] = found[atom].after(base) if atom in found else base
        return found

    def pool(self, space: Space, step: Floats) -> None:
        """The units of a space became means of those that it had: `step` says of which, row by row."""
        atom = find(space)
        made, means = self.made.pop(atom, None), self.means.get(atom)
        for earlier in (None if made is None else np.nan_to_num(made.matrix()), means):
            step = step if earlier is None else step @ earlier
        self.means[atom] = step


def _along(outer: Sequence[int], step: Floats, scores: Floats) -> Floats:
    """A matrix times the scores of the units of one factor of a product."""
    table = scores.reshape(int(np.prod(outer, dtype=np.int64)), step.shape[1], -1)
    return np.asarray(np.einsum("ij,ajb->aib", step, table)).reshape(-1)


def _followed(scores: Floats, made: IndexMap, outer: Sequence[int]) -> Floats:
    """The scores of the units that a map makes, along one factor of a product."""
    table = scores.reshape(int(np.prod(outer, dtype=np.int64)), made.source, -1)
    index = np.maximum(made.index, 0)
    moved = np.where(made.copies[None, :, None], table[:, index], 0.0)
    return np.asarray(moved + made.mean[None, :, None] * table.mean(axis=1, keepdims=True)).reshape(-1)


def kept_units(ranking: ast.Ranking, count: int, size: int) -> Ints:
    """The units that a file lists, which must be as many as the statement says."""
    found = np.sort(listed_units(ranking, count))
    if len(found) != size:
        assert ranking.file is not None
        message = f"`{ranking.file.value}` lists {len(found)} units, and {size} are to stay"
        raise GrowError(Diagnostic("G313", message, ranking.file.span))
    return found


def listed_units(ranking: ast.Ranking, count: int) -> Ints:
    """The numbers in a file, one a line, in its order. Raises GrowError (G313) for what are none."""
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
            message = f"line {number} of `{ranking.file.value}` is {why}"  # and not its text: any file
            raise GrowError(Diagnostic("G313", message, span))
        seen[int(text)] = None
    return np.array(list(seen), dtype=np.int64)
