"""Decide a statement on a budget, by its kind."""

from __future__ import annotations

from growc.budgets.growing import Growing
from growc.budgets.per_layer import decided
from growc.budgets.planning import Planning
from growc.budgets.shrinking_budget import Shrinking
from growc.recipe import syntax_tree as ast
from growc.resolve.bound import Bound, Decision, Resolved


def decision(planning: Planning, above: Resolved, bound: Bound) -> Decision:
    """The plain statements for one budget. Raises GrowError if no sizes meet it."""
    match bound.statement:
        case ast.Budget() as statement:
            return Shrinking(planning, above, bound, statement).decide()
        case ast.Proportion() as statement:
            return Growing(planning, above, bound, statement).decide()
        case ast.SubcloneTotal() as statement:
            return decided(planning, above, bound, statement)
    raise AssertionError(f"no budget: {bound.statement}")
