"""The sizes that a budget comes to: searched by scores, planned, measured where several are asked for.

Needs: a budget, what stands above it, plans of the model. Gives: a `Decision`. Raises GrowError (G302) where
no sizes meet the budget, and for what a model cannot follow.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from growc import grammar
from growc.budgets.costs import cost_of, shares_of
from growc.budgets.coupled import coupled
from growc.budgets.knobs import Knob, Lost, Trials, depth, scored, width
from growc.budgets.planning import Planning
from growc.budgets.polynomial import Cost
from growc.budgets.quantities import amount_in, parts_of
from growc.budgets.search import NEAR, Axis, Found, Search
from growc.budgets.tried import measured
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import quiet
from growc.passes.compilation import Result
from growc.passes.lowering.resolve_axis import named
from growc.passes.lowering.scopes import numbers, region_of, runs_in
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, Named, evaluate
from growc.resolve.bound import Bound, Decision, Resolved, Row
from growc.resolve.budget_checks import options_on, order_of

TRIES, OF_CLASS = 24, 6
"""Choices that are planned before a budget is given up; of a class, whose config is looked for each time."""


def decision(planning: Planning, above: Resolved, bound: Bound) -> Decision:
    """The plain statements of one budget."""
    c = planning.of(above.statements)
    statement = bound.statement
    assert isinstance(statement, ast.Budget)
    return _Shrinking(planning, above, bound, statement, c).decide()


@dataclass(frozen=True)
class Choice:
    """Sizes that were planned."""

    found: Found
    items: tuple[ast.Item, ...]
    amount: int
    c: Result


class _Shrinking:
    def __init__(
        self, planning: Planning, above: Resolved, bound: Bound, statement: ast.Budget, c: Result
    ) -> None:
        self.planning, self.above, self.bound, self.statement, self.c = planning, above, bound, statement, c
        self.trials = Trials(c, bound)
        lost = scored(c, statement.ranking)
        coupling = coupled(planning, above, bound, c, self.found_knobs(lost), self.said, lost)
        self.knobs, self.notes = coupling.knobs, coupling.notes
        self.shares = shares_of(c, self.knobs)
        self.cost = self.cost_in(statement.quantity)
        self.limit = value(statement.limit, self)
        axes = [
            Axis(np.array([float(k.share(n)) for n in range(len(k.levels))]), k.lost, bool(k.kept))
            for k in self.knobs
        ]
        self.search = Search(axes, self.cost)

    def found_knobs(self, lost: Lost) -> list[Knob]:
        """The knobs of the axes that the budget is over."""
        s = self.statement
        multiples = 1 if s.multiples is None else value(s.multiples, self)
        order = order_of(s)
        made = []
        for axis in s.axes:
            if axis.name == "layers":
                assert order is not None
                made.append(depth(self.c, axis, order, self.bound))
            else:
                made.append(width(self.trials, axis, self.said, lost, multiples))
        return made

    def said(self, axis: ast.AxisRef, size: Expr) -> ast.Statement:
        """The plain statement that gives an axis a size."""
        s = self.statement
        if axis.name == "layers":
            order = order_of(s)
            assert order is not None
            return ast.SubcloneLayers(size, order, span=s.span)
        return ast.Subclone(axis, size, s.ranking, options_on(axis, s.options), span=s.span)

    def cost_in(self, quantity: ast.Quantity) -> Cost:
        """What the model costs, as a function of its sizes."""
        return cost_of(parts_of(quantity, self.c, self.shares, self), self.knobs, self.shares.count)

    def decide(self) -> Decision:
        """The statements of the choice that loses least."""
        wanted = 1 if self.statement.candidates is None else value(self.statement.candidates, self)
        choices = self.planned(wanted)
        costs = {}
        if self.statement.candidates is not None:
            progress = self.planning.options.get("progress", quiet)
            costs = {id(one): measured(one.c, self.statement.candidates.span, progress) for one in choices}
            choices.sort(key=lambda one: costs[id(one)].cost)
        first = choices[0]
        below, above = self.search.around(first.found, self.limit)
        met = first.amount >= (1 - NEAR) * self.limit
        return Decision(
            first.items,
            self.text,
            tuple(knob.axis.name for knob in self.knobs),
            self.statement.quantity,
            self.limit,
            tuple(self.row(one.found, one.amount, costs[id(one)].text if costs else "") for one in choices),
            () if met else tuple(self.row(one) for one in (below, above) if one is not None),
            self.notes,
            tuple(grammar.format(ast.Recipe(first.items)).splitlines()),
        )

    @property
    def text(self) -> str:
        """The statement as it is written."""
        return grammar.format(ast.Recipe((self.statement,))).strip()

    def planned(self, wanted: int) -> list[Choice]:
        """The best choices, each planned; the search goes on without those that the model cannot follow, and
        under a budget that is smaller by what the plan has beyond the search's number.
        """
        limit = float(self.limit)
        refused: list[GrowError] = []
        for _ in range(OF_CLASS if self.planning.has_class(self.c) else TRIES):
            found = self.search.different(self.search.best(limit), wanted)
            if not found:
                raise refused[0] if refused else self.unmet()
            choices, beyond = [], 0.0
            for one in found:
                try:
                    choice = self.plan(one)
                except GrowError as error:
                    refused.append(error)
                    self.search.barred.add(one.levels)
                    break
                choices.append(choice)
                beyond = max(beyond, choice.amount - self.limit)
            else:
                if beyond <= 0:
                    return choices
                limit -= beyond
        raise refused[0] if refused else self.unmet()

    def plan(self, found: Found) -> Choice:
        """One choice, planned. Raises GrowError where the model cannot follow."""
        items = self.items(found)
        behind = tuple(
            replace(self.bound, number=self.bound.number + k, statement=s) for k, s in enumerate(items)
        )
        c = self.planning.of((*self.above.statements, *behind))
        c = self.planning.held(c)
        return Choice(found, items, amount_in(self.statement.quantity, c, self), c)

    def items(self, found: Found) -> tuple[ast.Statement, ...]:
        """The plain statements of a choice; axes that keep their size have none."""
        pairs = [
            (knob, level)
            for knob, level in zip(self.knobs, found.levels, strict=True)
            if not knob.stays(level)
        ]
        pairs.sort(key=lambda pair: bool(pair[0].kept))
        return tuple(self.said(knob.axis, knob.size(level)) for knob, level in pairs)

    def row(self, found: Found, amount: int | None = None, cost: str = "") -> Row:
        """A choice as a line of a table."""
        sizes = tuple("/".join(map(str, k.sizes(n))) for k, n in zip(self.knobs, found.levels, strict=True))
        return Row(sizes, round(found.amount) if amount is None else amount, found.lost, cost)

    def unmet(self) -> GrowError:
        """No sizes are small enough."""
        least = self.search.amounts(np.zeros((1, len(self.knobs)), dtype=np.int64))[0]
        sizes = ", ".join(f"{k.axis.name} {'/'.join(map(str, k.sizes(0)))}" for k in self.knobs)
        message = f"no sizes of these axes have {self.statement.quantity} <= {self.limit}"
        notes = (f"the least is {round(float(least))}, with {sizes}",)
        return GrowError(Diagnostic("G303", message, self.statement.limit.span, notes=notes))


def value(expr: Expr, budget: _Shrinking) -> int:
    """What an expression of a budget comes to, by the model as it stands before it."""
    c, bound = budget.c, budget.bound
    region = region_of(bound.scopes, c.roles.scopes, c.axes, c.layers, bound.number)

    def one(axis: Named) -> int:
        name, span = axis.name, axis.span
        if name in ast.QUANTITIES:
            return int(budget.cost_in(name).exact(-1, budget.shares.ones))
        sizes = c.lowered.sizes if axis.moment is None else c.lowered.before(axis.moment)
        if name == "layers":
            have = numbers(runs_in(c.layers, bound.scopes, span), sizes.moment)
        else:
            found = region.of(named(name, span, c.roles, c.axes), name, span)
            have = list(dict.fromkeys(sizes.product(a.spaces) for a in found))
        if len(have) > 1:
            listed = ", ".join(map(str, have))
            raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))
        return have[0]

    return evaluate(expr, one)
