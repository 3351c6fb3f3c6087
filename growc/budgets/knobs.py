"""The axes of a model that a budget can change: possible sizes, atoms, and the loss at each size.

Needs: a compilation as it is before a budget. Gives: a `BudgetAxis` for each axis of the budget. Raises
GrowError for an axis that the model lacks or that cannot change.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, atoms_of, find
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.compilation import Result
from growc.passes.lowering.lower_depth import of_places
from growc.passes.lowering.lower_recipe import lowered
from growc.passes.lowering.lowered import Lowered
from growc.passes.lowering.scopes import runs_in
from growc.passes.ranking.magnitude import Magnitudes
from growc.passes.ranking.rankings import Rankings
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Binary, Expr, Int, Name, TensorAxis, evaluate
from growc.recipe.layer_orders import SHALLOWER, arrangement
from growc.recipe.ranking_rules import RANKINGS
from growc.resolve.bound import Bound

Said = Callable[[ast.AxisRef, Expr], ast.Statement]
"""Makes the statement that gives an axis of width a size."""

Lost = Callable[[Sequence[Space], Sequence[Fraction]], Floats]
"""Computes the losses at given shares of some atoms."""

WHOLE = ("hidden", "channels")
"""Axes of width that are on the stream, so that their units are a part of all that the model carries on."""

INSIDE = math.sqrt(0.5)
"""Factor on the loss of an axis inside branches: a layer has branches of two kinds."""

TIMES = 16
"""The largest factor by which an axis grows."""

PLACE = 2
"""An axis needs at least so many levels to be tried, so that atoms that follow it are found."""


@dataclass(frozen=True)
class BudgetAxis:
    """One axis of a budget.

    before: its distinct sizes. of: the number of equal parts into which all of these divide. levels: the
    numbers of such parts that it can have, ascending. lost: the loss by the scores at each level. atoms: the
    atoms that change in proportion. kept: for each level of layers, the layers of each run that stay.
    """

    axis: ast.AxisRef
    before: tuple[int, ...]
    of: int
    levels: tuple[int, ...]
    lost: Floats
    atoms: frozenset[Space] = frozenset()
    kept: tuple[tuple[tuple[int, ...] | None, ...], ...] = ()

    def share(self, level: int) -> Fraction:
        """The part of the axis that remains at a level."""
        return Fraction(self.levels[level], self.of)

    def sizes(self, level: int) -> tuple[int, ...]:
        """The axis's sizes at a level."""
        return tuple(int(size * self.share(level)) for size in self.before)

    def size(self, level: int) -> Expr:
        """The axis's size at a level, as an expression of a recipe."""
        return size_said(self.axis, self.before, self.share(level))

    def nearest(self, factor: Fraction) -> int:
        """The level nearest to a factor; of two equally near, the larger."""
        target = factor * self.of
        above = bisect_left(self.levels, target)
        if above == len(self.levels):
            return above - 1
        return above if above == 0 or 2 * target >= self.levels[above - 1] + self.levels[above] else above - 1

    def turn(self, level: int) -> Fraction:
        """The smallest factor to which a level is the nearest."""
        share = self.share(level)
        return share if level == 0 else (self.share(level - 1) + share) / 2

    def turns(self) -> list[Fraction]:
        """The factors at which another level becomes the nearest."""
        return [self.turn(level) for level in range(len(self.levels))]

    def stays(self, level: int) -> bool:
        """Whether the axis keeps its size at a level."""
        return self.share(level) == 1


def size_said(axis: ast.AxisRef, before: Sequence[int], share: Fraction) -> Expr:
    """A size as an expression: a number, or for an axis with several sizes a part of each."""
    if len(before) == 1:
        return Int(int(before[0] * share))
    name = axis if isinstance(axis, TensorAxis) else Name(axis.name)
    grown = name if share.numerator == 1 else Binary("*", Int(share.numerator), name)
    return grown if share.denominator == 1 else Binary("/", grown, Int(share.denominator))


@dataclass
class StatementTrials:
    """Trials of further statements after those of a compilation. done: the number of trials."""

    c: Result
    bound: Bound
    done: int = 0

    def lowered(self, *statements: ast.Statement) -> Lowered:
        """The lowered form of the compilation's statements and these."""
        self.done += 1
        appended = [replace(self.bound, statement=statement) for statement in statements]
        return lowered(self.c, [*self.c.statements, *appended], self.c.depth)

    def sizes(self, *statements: ast.Statement) -> dict[Space, int]:
        """The new sizes of all atoms that change."""
        after = self.lowered(*statements).sizes
        before = self.c.lowered.sizes
        atoms = dict.fromkeys(
            map(find, atoms_of(s for use in self.c.graph.uses() for s in self.c.axes.of(use)))
        )
        sizes = ((atom, after.of(atom)[0]) for atom in atoms)
        return {atom: size for atom, size in sizes if size != before.of(atom)[0]}

    def fits(self, statement: ast.Statement) -> bool:
        """Whether the model can follow a statement."""
        try:
            self.lowered(statement)
        except GrowError:
            return False
        return True


def width(
    trials: StatementTrials, axis: ast.AxisRef, statement_of: Said, lost: Lost, multiples: int
) -> BudgetAxis:
    """The knob of an axis of width that shrinks."""
    before = today(trials, axis, statement_of)
    parts = math.gcd(*before)
    step = _step(trials, axis, statement_of, before, parts)
    levels = [k for k in range(step, parts + 1, step) if _suits(before, k, parts, multiples)]
    shares = [Fraction(k, parts) for k in levels]
    if len(levels) < PLACE:
        return BudgetAxis(axis, before, parts, (parts,), np.zeros(1))
    atoms = _atoms(trials, statement_of(axis, size_said(axis, before, shares[-2])), shares[-2], axis)
    factor = 1.0 if axis.name in WHOLE else INSIDE
    return BudgetAxis(
        axis, before, parts, tuple(levels), factor * lost(list(atoms), shares), frozenset(atoms)
    )


def wider(trials: StatementTrials, axis: ast.AxisRef, statement_of: Said, multiples: int) -> BudgetAxis:
    """The knob of an axis of width that grows."""
    before = today(trials, axis, statement_of)
    parts = math.gcd(*before)
    divisors = (n for n in range(1, parts + 1) if parts % n == 0)
    fitting = (
        n
        for n in divisors
        if trials.fits(statement_of(axis, size_said(axis, before, Fraction(parts + n, parts))))
    )
    step = next(fitting, 0)
    if not step:
        _refuse(trials, statement_of(axis, size_said(axis, before, Fraction(2))), axis)
    levels = range(parts, TIMES * parts + 1, step or parts)
    fitting_levels = tuple(k for k in levels if _suits(before, k, parts, multiples))
    share = Fraction(fitting_levels[1], parts) if len(fitting_levels) > 1 else Fraction(2)
    atoms = _atoms(trials, statement_of(axis, size_said(axis, before, share)), share, axis)
    return BudgetAxis(axis, before, parts, fitting_levels, np.zeros(len(fitting_levels)), frozenset(atoms))


def today(trials: StatementTrials, axis: ast.AxisRef, statement_of: Said) -> tuple[int, ...]:
    """The distinct current sizes of an axis. Raises GrowError if it cannot change."""
    name = axis if isinstance(axis, TensorAxis) else Name(axis.name)
    return trials.lowered(statement_of(axis, name)).summaries[-1].before


def _suits(before: Sequence[int], k: int, parts: int, multiples: int) -> bool:
    """Whether sizes that are multiples today stay multiples."""
    return k == parts or all(size % multiples or (size // parts * k) % multiples == 0 for size in before)


def _step(
    trials: StatementTrials, axis: ast.AxisRef, statement_of: Said, before: Sequence[int], parts: int
) -> int:
    """The fewest parts that can be removed. The model decides: groups, runs of units that stay together."""
    for step in (n for n in range(1, parts + 1) if parts % n == 0):
        if step < parts and trials.fits(
            statement_of(axis, size_said(axis, before, Fraction(parts - step, parts)))
        ):
            return step
    _refuse(trials, statement_of(axis, size_said(axis, before, Fraction(max(1, parts // 2), parts))), axis)
    return parts


def _refuse(trials: StatementTrials, statement: ast.Statement, axis: ast.AxisRef) -> None:
    """Raise the reason why the model cannot follow a statement; other axes may still meet the budget."""
    try:
        trials.lowered(statement)
    except GrowError as error:
        note = f"no size in proportion to today's fits: without `{axis.name}` the budget may be met"
        raise GrowError(*(replace(d, notes=(*d.notes, note)) for d in error.diagnostics)) from error


def _atoms(
    trials: StatementTrials, statement: ast.Statement, share: Fraction, axis: ast.AxisRef
) -> dict[Space, int]:
    """The atoms that change with an axis. Raises GrowError (G305) if they do not change in its proportion."""
    changed = trials.sizes(statement)
    before = trials.c.lowered.sizes
    if any(size != before.of(atom)[0] * share for atom, size in changed.items()):
        message = f"the units of `{axis.name}` do not all change in one proportion"
        raise GrowError(Diagnostic("G305", message, axis.span, help="leave this axis out of the budget"))
    return changed


def scored(c: Result, by: ast.Subclone) -> Lost:
    """The loss function by the scores of a statement's ranking.

    The loss of an atom is the removed part of the sum of its units' scores. For several atoms it is the root
    of the mean square.
    """
    rankings = _rankings(c)

    def lost(atoms: Sequence[Space], shares: Sequence[Fraction]) -> Floats:
        squares = np.zeros(len(shares))
        for atom in atoms:
            scores = _scores(rankings, by, atom)
            scores = np.ldexp(scores, -np.frexp(np.abs(scores).max(initial=0.0))[1])  # sums stay finite
            sums = np.concatenate([[0.0], np.cumsum(np.sort(scores)[::-1])])
            kept = [sums[int(len(scores) * share)] for share in shares]
            squares += (1 - np.array(kept) / sums[-1]) ** 2 if sums[-1] > 0 else 0.0
        return np.asarray(np.sqrt(squares / max(len(atoms), 1)))

    return lost


def measurement(c: Result) -> ast.Measure | None:
    """The last `measure importance` of a recipe; None if there is none."""
    measures = [b.statement for b in c.statements if isinstance(b.statement, ast.Measure)]
    return measures[-1] if measures else None


def _rankings(c: Result) -> Rankings:
    """The rankings after the statements of a compilation."""
    measure = measurement(c)
    rankings = Rankings(Magnitudes(c.axes, c.ties), scores_for=lambda by: c.outside.scores(c, measure, by))
    for stage in c.lowered.stages:
        for request in stage.requests.values():
            rankings.follow(request.space, request.map)
    return rankings


def _scores(rankings: Rankings, by: ast.Subclone, atom: Space) -> Floats:
    """The scores of the units of an atom; all equal if the ranking has none for it."""
    equal = np.ones(rankings.count([atom]))
    if RANKINGS[by.ranking.name].scores is None:
        return equal
    try:
        return np.maximum(rankings.scores(by, [atom], Draws.of(0)), 0.0)
    except GrowError:
        return equal


def depth(c: Result, axis: ast.AxisRef, order: ast.LayerOrder, bound: Bound) -> BudgetAxis:
    """The knob of the layers if their number shrinks."""
    inside, counts = _runs(c, axis, bound)
    parts = math.gcd(*counts)
    scores = _of_layers(c, order)
    levels = tuple(range(1, parts + 1))
    arrangements_by_level, losses = [], []
    for level in levels:
        arrangements: list[tuple[int, ...] | None] = [None] * len(c.layers.runs)
        squares = 0.0
        for k, count in zip(inside, counts, strict=True):
            n = count * level // parts
            run_scores = None if scores is None else scores[k]
            staying = arrangement(ast.SubcloneLayers(Int(n), order), count, _literal, run_scores)
            weights = np.ones(count) if run_scores is None else np.array(run_scores)
            removed = weights[[layer not in staying for layer in range(count)]].sum()
            squares += float(removed / weights.sum()) ** 2 if weights.sum() else 0.0
            arrangements[k] = tuple(staying)
        arrangements_by_level.append(tuple(arrangements))
        losses.append(math.sqrt(squares / len(inside)))
    before = tuple(dict.fromkeys(counts))
    return BudgetAxis(
        axis, before, parts, levels, np.array(losses), frozenset(), tuple(arrangements_by_level)
    )


def deeper(c: Result, axis: ast.AxisRef, order: ast.LayerOrder, bound: Bound) -> BudgetAxis:
    """The knob of the layers if their number grows."""
    inside, counts = _runs(c, axis, bound)
    parts = math.gcd(*counts)
    levels = tuple(range(parts, TIMES * parts + 1))
    arrangements_by_level = []
    for level in levels:
        arrangements: list[tuple[int, ...] | None] = [None] * len(c.layers.runs)
        for k, count in zip(inside, counts, strict=True):
            n = count * level // parts
            arrangements[k] = tuple(arrangement(ast.Stack(Int(n), order), count, _literal))
        arrangements_by_level.append(tuple(arrangements))
    before = tuple(dict.fromkeys(counts))
    return BudgetAxis(
        axis, before, parts, levels, np.zeros(len(levels)), frozenset(), tuple(arrangements_by_level)
    )


def _runs(c: Result, axis: ast.AxisRef, bound: Bound) -> tuple[list[int], list[int]]:
    """The runs of layers that a statement changes, and the number of layers in each."""
    if c.depth.changed:
        message = "this version finds numbers of layers where no statement above has moved layers"
        raise GrowError(Diagnostic("G209", message, axis.span, help="write it above the statement on layers"))
    inside = [c.layers.runs.index(run) for run in runs_in(c.layers, bound.scopes, axis.span)]
    inside = [k for k in inside if bound.scopes or k not in c.kept.runs]
    return inside, [len(c.layers.runs[k].layers) for k in inside]


def _literal(expr: Expr) -> int:
    """The value of an expression without names."""
    return evaluate(expr, lambda axis: 0)


def _of_layers(c: Result, order: ast.LayerOrder) -> list[list[float]] | None:
    """The scores of the layers of each run, if the order uses scores; otherwise None."""
    if not SHALLOWER[order.name].scored:
        return None
    scores = c.outside.layer_scores(c, measurement(c), order)
    return [of_places(run, run_scores, order) for run, run_scores in zip(c.depth.runs, scores, strict=True)]
