"""A budget on a model: its axes, the model's cost, and choices of sizes as statements.

Needs: a budget, the statements above it, and plans of the model. Gives: the parts that all searches for
sizes share.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial

from growc import grammar
from growc.budgets.costs import cost_of, shares_of
from growc.budgets.expressions import value_in
from growc.budgets.knobs import BudgetAxis, StatementTrials
from growc.budgets.planning import Planning
from growc.budgets.polynomial import Cost
from growc.budgets.quantities import SequenceMemory, amount_of, parts_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.formats.compiler import fitted
from growc.passes.compilation import Result
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr
from growc.resolve.bound import Bound, BudgetRow, Decision, Resolved


@dataclass(frozen=True)
class SizeChoice:
    """A planned choice of one level for each axis.

    items: its statements. amount: the plan's cost. lost: its loss by the scores.
    """

    levels: tuple[int, ...]
    items: tuple[ast.Statement, ...]
    amount: int
    lost: float
    c: Result


class Budgeted(ABC):
    """The common base of budgets in either direction, with what they know of their model."""

    def __init__(self, planning: Planning, above: Resolved, bound: Bound) -> None:
        self.planning, self.above, self.bound = planning, above, bound
        statement = bound.statement
        assert isinstance(statement, ast.Budget | ast.Proportion)
        self.asked = statement
        self.c = planning.of(above.statements)
        self.trials = StatementTrials(self.c, bound)
        sequences = statement.limit.sequences
        sizes = (sequences.batch, sequences.length) if sequences else ()
        self.sequences = SequenceMemory(*map(self.number, sizes))
        self.notes: tuple[str, ...] = ()
        self.take(self.found_knobs())
        limit = self.value(statement.limit.value)
        self.limit = math.floor(limit) if isinstance(statement, ast.Budget) else math.ceil(limit)

    def take(self, knobs: Sequence[BudgetAxis]) -> None:
        """Set the axes of the budget, and the model's cost as a function of them."""
        self.knobs = list(knobs)
        self.shares = shares_of(self.c, self.knobs)
        self.cost = self.cost_in(self.asked.limit.quantity)

    @abstractmethod
    def found_knobs(self) -> list[BudgetAxis]:
        """The knobs of the axes that the budget is over."""

    @abstractmethod
    def said(self, axis: ast.AxisRef, size: Expr) -> ast.Statement:
        """The plain statement that gives an axis a size."""

    @property
    def multiples(self) -> int:
        """The number of which all new sizes are multiples."""
        return 1 if self.asked.multiples is None else self.number(self.asked.multiples)

    def cost_in(self, quantity: str) -> Cost:
        """The model's cost in a quantity, as a function of its sizes."""
        parts = parts_of(quantity, self.c, self.shares, self.sequences)
        return cost_of(parts, self.knobs, self.shares.count)

    def plan(self, levels: Sequence[int], lost: float = 0.0) -> SizeChoice:
        """One planned choice. Raises GrowError if the model cannot follow it."""
        items = self.items(levels)
        appended = tuple(
            replace(self.bound, number=self.bound.number + k, statement=s) for k, s in enumerate(items)
        )
        c = fitted(self.planning.of((*self.above.statements, *appended)))
        return SizeChoice(
            tuple(levels), items, amount_of(self.asked.limit.quantity, c, self.sequences), lost, c
        )

    def items(self, levels: Sequence[int]) -> tuple[ast.Statement, ...]:
        """The plain statements of a choice; axes that keep their size have none."""
        pairs = [(k, level) for k, level in zip(self.knobs, levels, strict=True) if not k.stays(level)]
        pairs.sort(key=lambda pair: bool(pair[0].kept))
        return tuple(self.said(knob.axis, knob.size(level)) for knob, level in pairs)

    def row(self, levels: Sequence[int], amount: float, lost: float, cost: str = "") -> BudgetRow:
        """A choice as a row of a table."""
        sizes = tuple("/".join(map(str, k.sizes(n))) for k, n in zip(self.knobs, levels, strict=True))
        return BudgetRow(sizes, round(amount), lost, cost)

    def decided(self, choice: SizeChoice, rows: Sequence[BudgetRow], near: Sequence[BudgetRow]) -> Decision:
        """The decision on the budget: a choice, with tables of the compared and the nearest choices."""
        return Decision(
            choice.items,
            " ".join(self.asked.span.text.split()),
            tuple(knob.axis.name for knob in self.knobs),
            self.asked.limit.quantity,
            self.limit,
            tuple(rows),
            tuple(near),
            self.notes,
            tuple(grammar.format(ast.RecipeTree(choice.items)).splitlines()),
            self.planning.done + self.trials.done,
        )

    def unmet(self, levels: Sequence[int], amount: float, most: str) -> GrowError:
        """The error if no sizes meet the budget."""
        sizes = ", ".join(
            f"{k.axis.name} {'/'.join(map(str, k.sizes(n)))}" for k, n in zip(self.knobs, levels, strict=True)
        )
        requirement = f"{self.asked.limit.quantity} {self.asked.limit.relation} {self.limit}"
        notes = (f"the {most} is {round(amount)}, with {sizes}", *self.notes)
        return GrowError(
            Diagnostic(
                "G303", f"no sizes of these axes have {requirement}", self.asked.limit.span, notes=notes
            )
        )

    # ---------------------------------------------------------------- expressions

    def number(self, expr: Expr) -> int:
        """The value of an expression as an integer. Raises GrowError (G312) if it is not whole."""
        value = self.value(expr)
        if value.denominator != 1:
            raise GrowError(Diagnostic("G312", f"{value} is no whole number", expr.span))
        return int(value)

    def value(self, expr: Expr) -> Fraction:
        """The value of an expression in the model as it is before the budget."""
        return value_in(
            expr, self.c, self.bound, {name: partial(self.today, name) for name in ast.QUANTITIES}
        )

    def today(self, quantity: str) -> Fraction:
        """The model's cost in a quantity as it is before the budget."""
        deep = next((knob for knob in self.knobs if knob.kept), None)
        level = 0 if deep is None else deep.nearest(Fraction(1))
        return self.cost_in(quantity).exact(level, self.shares.ones)
