"""What can change of a model: the sizes that each axis can have, its atoms, and what each size loses.

Needs: a compilation as it stands before a budget. Gives: a `Knob` for each axis of the budget. Raises
GrowError for an axis that the model lacks, or that cannot change.
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
"""The statement that gives an axis of width a size."""

Lost = Callable[[Sequence[Space], Sequence[Fraction]], Floats]
"""What shares of some atoms lose."""

WHOLE = ("hidden", "channels")
"""Axes of width whose units are a part of all that the model carries on."""

INSIDE = math.sqrt(0.5)
"""What a part of an axis inside of branches counts: a layer has branches of two kinds."""

TIMES = 16
"""How much larger an axis becomes at most."""

PLACE = 2
"""Levels at which an axis is tried, so that the others follow."""


@dataclass(frozen=True)
class Knob:
    """One axis of a budget. before: its distinct sizes; of: how many equal parts all of these have; levels:
    how many such parts it can have, from the fewest; lost: by the scores, at each level. atoms: those that
    change in proportion. kept: of each level of layers, which layers of each run stay.
    """

    axis: ast.AxisRef
    before: tuple[int, ...]
    of: int
    levels: tuple[int, ...]
    lost: Floats
    atoms: frozenset[Space] = frozenset()
    kept: tuple[tuple[tuple[int, ...] | None, ...], ...] = ()

    def share(self, level: int) -> Fraction:
        """Which part of it there is at a level."""
        return Fraction(self.levels[level], self.of)

    def sizes(self, level: int) -> tuple[int, ...]:
        """Its sizes at a level."""
        return tuple(int(size * self.share(level)) for size in self.before)

    def size(self, level: int) -> Expr:
        """Its size at a level, as a recipe says it."""
        return size_said(self.axis, self.before, self.share(level))

    def nearest(self, factor: Fraction) -> int:
        """The level that is nearest to a factor; of two, the larger."""
        wanted = factor * self.of
        above = bisect_left(self.levels, wanted)
        if above == len(self.levels):
            return above - 1
        return above if above == 0 or 2 * wanted >= self.levels[above - 1] + self.levels[above] else above - 1

    def turn(self, level: int) -> Fraction:
        """The smallest factor to which a level is the nearest."""
        own = self.share(level)
        return own if level == 0 else (self.share(level - 1) + own) / 2

    def turns(self) -> list[Fraction]:
        """The factors at which another level becomes the nearest."""
        return [self.turn(level) for level in range(len(self.levels))]

    def stays(self, level: int) -> bool:
        """Whether it keeps its size at a level."""
        return self.share(level) == 1


def size_said(axis: ast.AxisRef, before: Sequence[int], share: Fraction) -> Expr:
    """A size as a recipe says it: a number, or of an axis with several sizes a part of each."""
    if len(before) == 1:
        return Int(int(before[0] * share))
    name = axis if isinstance(axis, TensorAxis) else Name(axis.name)
    grown = name if share.numerator == 1 else Binary("*", Int(share.numerator), name)
    return grown if share.denominator == 1 else Binary("/", grown, Int(share.denominator))


@dataclass
class Trials:
    """Statements put behind those of a compilation. done: how many were."""

    c: Result
    bound: Bound
    done: int = 0

    def lowered(self, *statements: ast.Statement) -> Lowered:
        """What they come to."""
        self.done += 1
        behind = [replace(self.bound, statement=statement) for statement in statements]
        return lowered(self.c, [*self.c.statements, *behind], self.c.depth)

    def sizes(self, *statements: ast.Statement) -> dict[Space, int]:
        """The sizes of all atoms that change."""
        after = self.lowered(*statements).sizes
        before = self.c.lowered.sizes
        atoms = dict.fromkeys(
            map(find, atoms_of(s for use in self.c.graph.uses() for s in self.c.axes.of(use)))
        )
        found = ((atom, after.of(atom)[0]) for atom in atoms)
        return {atom: size for atom, size in found if size != before.of(atom)[0]}

    def fits(self, statement: ast.Statement) -> bool:
        """Whether the model can take it."""
        try:
            self.lowered(statement)
        except GrowError:
            return False
        return True


def width(trials: Trials, axis: ast.AxisRef, said: Said, lost: Lost, multiples: int) -> Knob:
    """The knob of an axis of width that shrinks."""
    before = today(trials, axis, said)
    parts = math.gcd(*before)
    step = _step(trials, axis, said, before, parts)
    kept = [k for k in range(step, parts + 1, step) if _suits(before, k, parts, multiples)]
    shares = [Fraction(k, parts) for k in kept]
    if len(kept) < PLACE:
        return Knob(axis, before, parts, (parts,), np.zeros(1))
    atoms = _atoms(trials, said(axis, size_said(axis, before, shares[-2])), shares[-2], axis)
    factor = 1.0 if axis.name in WHOLE else INSIDE
    return Knob(axis, before, parts, tuple(kept), factor * lost(list(atoms), shares), frozenset(atoms))


def wider(trials: Trials, axis: ast.AxisRef, said: Said, multiples: int) -> Knob:
    """The knob of an axis of width that grows."""
    before = today(trials, axis, said)
    parts = math.gcd(*before)
    steps = (n for n in range(1, parts + 1) if parts % n == 0)
    fitting = (
        n for n in steps if trials.fits(said(axis, size_said(axis, before, Fraction(parts + n, parts))))
    )
    step = next(fitting, 0)
    if not step:
        trials.lowered(said(axis, size_said(axis, before, Fraction(2))))  # says why
    levels = range(parts, TIMES * parts + 1, step or parts)
    kept = tuple(k for k in levels if _suits(before, k, parts, multiples))
    share = Fraction(kept[1], parts) if len(kept) > 1 else Fraction(2)
    atoms = _atoms(trials, said(axis, size_said(axis, before, share)), share, axis)
    return Knob(axis, before, parts, kept, np.zeros(len(kept)), frozenset(atoms))


def today(trials: Trials, axis: ast.AxisRef, said: Said) -> tuple[int, ...]:
    """The distinct sizes of an axis that can change."""
    name = axis if isinstance(axis, TensorAxis) else Name(axis.name)
    return trials.lowered(said(axis, name)).summaries[-1].before


def _suits(before: Sequence[int], k: int, parts: int, multiples: int) -> bool:
    """Whether sizes are multiples, of those that are multiples today."""
    return k == parts or all(size % multiples or (size // parts * k) % multiples == 0 for size in before)


def _step(trials: Trials, axis: ast.AxisRef, said: Said, before: Sequence[int], parts: int) -> int:
    """The fewest parts that can go: the model decides (groups, runs of units that stay together)."""
    for step in (n for n in range(1, parts + 1) if parts % n == 0):
        if step < parts and trials.fits(said(axis, size_said(axis, before, Fraction(parts - step, parts)))):
            return step
    trials.lowered(said(axis, size_said(axis, before, Fraction(max(1, parts // 2), parts))))  # says why
    return parts


def _atoms(trials: Trials, statement: ast.Statement, share: Fraction, axis: ast.AxisRef) -> dict[Space, int]:
    """The atoms that change with an axis, all in its proportion."""
    found = trials.sizes(statement)
    before = trials.c.lowered.sizes
    if any(size != before.of(atom)[0] * share for atom, size in found.items()):
        message = f"the units of `{axis.name}` do not all change in one proportion"
        raise GrowError(Diagnostic("G305", message, axis.span, help="leave this axis out of the budget"))
    return found


def scored(c: Result, by: ast.Subclone) -> Lost:
    """What shares of atoms lose, by the scores of a statement's ranking: of all that the units add up to, the
    part that goes; the root of the mean of its squares where there are several atoms.
    """
    rankings = _rankings(c)

    def lost(atoms: Sequence[Space], shares: Sequence[Fraction]) -> Floats:
        squares = np.zeros(len(shares))
        for atom in atoms:
            scores = _scores(rankings, by, atom)
            sums = np.concatenate([[0.0], np.cumsum(np.sort(scores)[::-1])])
            kept = [sums[int(len(scores) * share)] for share in shares]
            squares += (1 - np.array(kept) / sums[-1]) ** 2 if sums[-1] > 0 else 0.0
        return np.asarray(np.sqrt(squares / max(len(atoms), 1)))

    return lost


def measurement(c: Result) -> ast.Measure | None:
    """The last `measure importance` of a recipe."""
    measures = [b.statement for b in c.statements if isinstance(b.statement, ast.Measure)]
    return measures[-1] if measures else None


def _rankings(c: Result) -> Rankings:
    """The rankings as they stand behind the statements of a compilation."""
    measure = measurement(c)
    rankings = Rankings(Magnitudes(c.axes, c.ties), found=lambda by: c.outside.scores(c, measure, by))
    for stage in c.lowered.stages:
        for request in stage.requests.values():
            rankings.follow(request.space, request.map)
    return rankings


def _scores(rankings: Rankings, by: ast.Subclone, atom: Space) -> Floats:
    """The scores of the units of an atom; equal ones where the ranking has none for it."""
    equal = np.ones(rankings.count([atom]))
    if RANKINGS[by.ranking.name].scores is None:
        return equal
    try:
        return np.maximum(rankings.scores(by, [atom], Draws.of(0)), 0.0)
    except GrowError:
        return equal


def depth(c: Result, axis: ast.AxisRef, order: ast.Order, bound: Bound) -> Knob:
    """The knob of the layers, which become fewer."""
    inside, counts = _runs(c, axis, bound)
    parts = math.gcd(*counts)
    scores = _of_layers(c, order)
    levels = tuple(range(1, parts + 1))
    kept, lost = [], []
    for level in levels:
        own: list[tuple[int, ...] | None] = [None] * len(c.layers.runs)
        squares = 0.0
        for k, count in zip(inside, counts, strict=True):
            n = count * level // parts
            known = None if scores is None else scores[k]
            left = arrangement(ast.SubcloneLayers(Int(n), order), count, _literal, known)
            weights = np.ones(count) if known is None else np.array(known)
            gone = weights[[layer not in left for layer in range(count)]].sum()
            squares += float(gone / weights.sum()) ** 2 if weights.sum() else 0.0
            own[k] = tuple(left)
        kept.append(tuple(own))
        lost.append(math.sqrt(squares / len(inside)))
    before = tuple(dict.fromkeys(counts))
    return Knob(axis, before, parts, levels, np.array(lost), frozenset(), tuple(kept))


def deeper(c: Result, axis: ast.AxisRef, order: ast.Order, bound: Bound) -> Knob:
    """The knob of the layers, which become more."""
    inside, counts = _runs(c, axis, bound)
    parts = math.gcd(*counts)
    levels = tuple(range(parts, TIMES * parts + 1))
    kept = []
    for level in levels:
        own: list[tuple[int, ...] | None] = [None] * len(c.layers.runs)
        for k, count in zip(inside, counts, strict=True):
            n = count * level // parts
            own[k] = tuple(arrangement(ast.Stack(Int(n), order), count, _literal))
        kept.append(tuple(own))
    before = tuple(dict.fromkeys(counts))
    return Knob(axis, before, parts, levels, np.zeros(len(levels)), frozenset(), tuple(kept))


def _runs(c: Result, axis: ast.AxisRef, bound: Bound) -> tuple[list[int], list[int]]:
    """The runs of layers that a statement moves, and how many layers each has."""
    if c.depth.changed:
        message = "this version finds numbers of layers where no statement above has moved layers"
        raise GrowError(Diagnostic("G209", message, axis.span, help="write it above the statement on layers"))
    inside = [c.layers.runs.index(run) for run in runs_in(c.layers, bound.scopes, axis.span)]
    inside = [k for k in inside if bound.scopes or k not in c.kept.runs]
    return inside, [len(c.layers.runs[k].layers) for k in inside]


def _literal(expr: Expr) -> int:
    """What an expression without names comes to."""
    return evaluate(expr, lambda axis: 0)


def _of_layers(c: Result, order: ast.Order) -> list[list[float]] | None:
    """The scores of the layers of each run, where an order goes by them."""
    if not SHALLOWER[order.name].scored:
        return None
    found = c.outside.layer_scores(c, measurement(c), order)
    return [of_places(past, own, order) for past, own in zip(c.depth.runs, found, strict=True)]
