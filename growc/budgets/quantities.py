"""The quantities of budgets: what each counts of a model, and of a plan."""

from __future__ import annotations

from growc.budgets.costs import Parts, parameters
from growc.budgets.polynomial import Shares
from growc.passes.compilation import Result


def parts_of(quantity: str, c: Result, shares: Shares, budget: object) -> Parts:
    return parameters(c, shares)


def amount_in(quantity: str, c: Result, budget: object) -> int:
    return c.plan.parameters[1]
