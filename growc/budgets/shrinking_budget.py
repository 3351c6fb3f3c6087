"""The sizes that a budget leaves: searched by scores, planned, and measured if several candidates are asked
for.

Needs: `subclone to QUANTITY <= LIMIT over …`, and plans of the model. Gives: a `Decision`. Raises GrowError
(G303) if no sizes meet the budget, and for what a model cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from growc.budgets.budgeted import Budgeted, SizeChoice
from growc.budgets.coupled_axes import coupled
from growc.budgets.knobs import BudgetAxis, Lost, depth, scored, width
from growc.budgets.measure_choices import MeasuredCost, measured
from growc.budgets.planning import Planning
from growc.budgets.search import NEAR, Axis, Candidate, Search
from growc.errors.diagnostic import GrowError
from growc.errors.progress import quiet
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, Int
from growc.resolve.bound import Bound, Decision, Resolved
from growc.resolve.budget_checks import options_on, order_of

TRIES, OF_CLASS = 24, 6
"""Choices that are planned before a budget is given up. For a class fewer, since each needs a search for a
config.
"""


@dataclass(frozen=True)
class _Tried:
    choice: SizeChoice
    measured: MeasuredCost | None


class Shrinking(Budgeted):
    """`subclone to QUANTITY <= LIMIT over AXIS, … by RANKING`."""

    def __init__(self, planning: Planning, above: Resolved, bound: Bound, statement: ast.Budget) -> None:
        self.statement = statement
        super().__init__(planning, above, bound)

    def take(self, knobs: Sequence[BudgetAxis]) -> None:
        """Set the axes of the budget, and the search over their sizes."""
        super().take(knobs)
        axes = [
            Axis(np.array([float(k.share(n)) for n in range(len(k.levels))]), k.lost, bool(k.kept))
            for k in self.knobs
        ]
        self.search = Search(axes, self.cost)

    def found_knobs(self) -> list[BudgetAxis]:
        """The knobs of the budget's axes."""
        s, knobs = self.statement, []
        order = order_of(s)
        for axis in s.axes:
            if axis.name == "layers":
                assert order is not None
                knobs.append(depth(self.c, axis, order, self.bound))
            else:
                knobs.append(width(self.trials, axis, self.said, self.lost(axis), self.multiples))
        return knobs

    def lost(self, axis: ast.AxisRef) -> Lost:
        """The loss function for the atoms of an axis."""
        return scored(self.c, ast.Subclone(axis, Int(0), self.statement.ranking, span=self.statement.span))

    def said(self, axis: ast.AxisRef, size: Expr) -> ast.Statement:
        """The plain statement that gives an axis a size."""
        s = self.statement
        if axis.name == "layers":
            order = order_of(s)
            assert order is not None
            return ast.SubcloneLayers(size, order, span=s.span)
        return ast.Subclone(axis, size, s.ranking, options_on(axis, s.options), span=s.span)

    def decide(self) -> Decision:
        """The decision with the choice that loses least."""
        candidates = self.statement.candidates
        tried = [
            _Tried(trial, None)
            for trial in self.planned(1 if candidates is None else self.number(candidates))
        ]
        if candidates is not None:
            progress = self.planning.options.get("progress", quiet)
            costs = [(trial.choice, measured(trial.choice.c, candidates.span, progress)) for trial in tried]
            tried = [_Tried(*pair) for pair in sorted(costs, key=lambda pair: pair[1].cost)]
        first = tried[0].choice
        chosen = Candidate(first.levels, first.amount, first.lost)
        met = first.amount >= (1 - NEAR) * self.limit
        near = () if met else self.search.around(chosen, self.limit)
        rows = [
            self.row(
                trial.choice.levels,
                trial.choice.amount,
                trial.choice.lost,
                trial.measured.text if trial.measured else "",
            )
            for trial in tried
        ]
        return self.decided(
            first, rows, [self.row(n.levels, n.amount, n.lost) for n in near if n is not None]
        )

    def without(self, candidate: Candidate, error: GrowError, *, first: bool) -> None:
        """Continue without a choice that the model cannot follow.

        The first choice that a class refuses leads to a search for the axes that the class ties to each
        other.
        """
        if first and self.planning.has_class(self.c) and not self.c.depth.changed:
            context = (self.planning, self.above, self.bound, self.c)
            coupling = coupled(*context, self.knobs, self.said, self.lost)
            if all(len(knob.levels) < 2 for knob in coupling.knobs):
                raise error
            self.notes = coupling.notes
            self.take(coupling.knobs)
        else:
            self.search.barred.add(candidate.levels)

    def planned(self, count: int) -> list[SizeChoice]:
        """The best choices, each planned.

        The search continues without choices that the model cannot follow. If a plan costs more than the
        search computed, the budget is reduced by the difference. Raises GrowError if nothing is left: the
        error of the first refused choice, or else G303.
        """
        limit = float(self.limit)
        refused: list[GrowError] = []
        for _ in range(OF_CLASS if self.planning.has_class(self.c) else TRIES):
            candidates = self.search.different(self.search.best(limit), count)
            choices: list[SizeChoice] = []
            for candidate in candidates:
                try:
                    choices.append(self.plan(candidate.levels, candidate.lost))
                except GrowError as error:
                    self.without(candidate, error, first=not refused)
                    refused.append(error)
                    break
            excess = max((choice.amount - self.limit for choice in choices), default=0)
            if not candidates:
                break
            if len(choices) == len(candidates) and excess <= 0:
                return choices
            limit -= max(excess, 0)
        lowest = [0] * len(self.knobs)
        amount = self.search.amounts(np.array([lowest], dtype=np.int64))[0]
        raise refused[0] if refused else self.unmet(lowest, float(amount), "least")
