"""The sizes that a budget asks for: all axes times the smallest common factor that reaches it.

Needs: `widen to QUANTITY >= LIMIT over … in proportion with FILL`, and plans of the model. Gives: a
`Decision`. Raises GrowError (G303) if no factor up to 16 reaches the budget, and for what a model cannot
follow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from growc.budgets.budgeted import Budgeted, SizeChoice
from growc.budgets.coupled_axes import OUTSIDE
from growc.budgets.knobs import BudgetAxis, deeper, wider
from growc.budgets.planning import Planning
from growc.errors.diagnostic import GrowError
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr
from growc.resolve.bound import Bound, Decision, Resolved
from growc.resolve.budget_checks import options_on

TRIES = 4
"""Plans that are made until one reaches the budget."""


class Growing(Budgeted):
    """`widen to QUANTITY >= LIMIT over AXIS, … in proportion with FILL`."""

    def __init__(self, planning: Planning, above: Resolved, bound: Bound, statement: ast.Proportion) -> None:
        self.statement = statement
        super().__init__(planning, above, bound)

    def found_knobs(self) -> list[BudgetAxis]:
        """The knobs of the budget's axes."""
        knobs = []
        for axis in self.statement.axes:
            if axis.name == "layers":
                assert self.statement.order is not None
                knobs.append(deeper(self.c, axis, self.statement.order, self.bound))
            else:
                knobs.append(wider(self.trials, axis, self.said, self.multiples))
        return knobs

    def said(self, axis: ast.AxisRef, size: Expr) -> ast.Statement:
        """The plain statement that gives an axis a size."""
        s = self.statement
        if axis.name == "layers":
            assert s.order is not None
            return ast.Stack(size, s.order, s.layer_fill, s.zero_outputs, span=s.span)
        return ast.Widen(axis, size, s.fill, options_on(axis, s.options), span=s.span)

    def decide(self) -> Decision:
        """The statements of the smallest sizes in proportion that reach the budget."""
        if not self.planning.has_class(self.c):
            return self.reached(self.knobs)
        wide = [size for knob in self.knobs if not knob.kept for size in knob.before]
        roles = self.c.roles
        sizes = [size for name in roles.axes if name not in OUTSIDE for size in roles.sizes(name)]
        try:
            return self.reached(in_steps(self.knobs, math.gcd(*wide)))
        except GrowError:
            return self.reached(in_steps(self.knobs, math.gcd(*sizes)))

    def reached(self, knobs: Sequence[BudgetAxis]) -> Decision:
        """The decision with these axes. A plan may cost more than its axes show, if other axes follow
        them. Raises GrowError (G303) if no plan reaches the budget.
        """
        self.take(knobs)
        limit, excess = self.limit, 0
        best: SizeChoice | None = None
        for _ in range(TRIES):
            levels = self.reaching(limit - excess)
            if best is not None and levels == best.levels:
                break
            choice = self.plan(levels)
            excess = choice.amount - round(self.amount(levels))
            if choice.amount >= limit and (best is None or choice.amount < best.amount):
                best = choice
            elif best is not None:
                break
        if best is None:
            raise self.unmet(choice.levels, choice.amount, "most that was planned")
        below = self.beneath(best.levels)
        near = [] if below is None else [self.row(below, float(self.amount(below)) + excess, 0.0)]
        return self.decided(best, [self.row(best.levels, best.amount, 0.0)], near)

    def amount(self, levels: tuple[int, ...]) -> Fraction:
        """The model's cost at one level for each axis."""
        pairs = list(zip(self.knobs, levels, strict=True))
        shares = (knob.share(level) for knob, level in pairs if not knob.kept)
        return self.cost.exact(next((level for knob, level in pairs if knob.kept), 0), shares)

    def at(self, factor: Fraction) -> tuple[int, ...]:
        """The level of each axis that is nearest to a factor."""
        return tuple(knob.nearest(factor) for knob in self.knobs)

    def reaching(self, limit: int) -> tuple[int, ...]:
        """The levels of the smallest factor that reaches a budget. Raises GrowError (G303) if none does."""
        factors = sorted({f for knob in self.knobs for f in knob.turns()})
        low, high = 0, len(factors) - 1
        if self.amount(self.at(factors[high])) < limit:
            most = self.at(factors[high])
            raise self.unmet(most, float(self.amount(most)), "most")
        while low < high:
            middle = (low + high) // 2
            if self.amount(self.at(factors[middle])) >= limit:
                high = middle
            else:
                low = middle + 1
        return self.at(factors[low])

    def beneath(self, levels: tuple[int, ...]) -> tuple[int, ...] | None:
        """The next smaller levels in proportion; None if there are none."""
        factors = [knob.turn(n - 1) for knob, n in zip(self.knobs, levels, strict=True) if n]
        smaller = [
            lower
            for lower in map(self.at, sorted(factors, reverse=True))
            if self.amount(lower) < self.amount(levels)
        ]
        return max(smaller, key=self.amount, default=None)


def in_steps(knobs: Sequence[BudgetAxis], parts: int) -> list[BudgetAxis]:
    """The knobs with only widths that are multiples of an equal part of each width.

    Relations that a class demands between sizes then hold for all of them.
    """
    stepped = []
    for knob in knobs:
        fitting = [k for k in range(len(knob.levels)) if (knob.share(k) * parts).denominator == 1]
        levels = tuple(knob.levels[k] for k in fitting)
        stepped.append(knob if knob.kept else replace(knob, levels=levels, lost=knob.lost[fitting]))
    return stepped
