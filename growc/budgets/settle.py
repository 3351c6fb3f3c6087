"""Recipes with budgets: each budget is settled on the model, in order, and becomes plain statements.

Needs: the texts of a recipe, and a model. Gives: the flat list of statements, with sizes in place of
budgets. Statements above a budget are carried out first. `growc.budgets.choose` searches its sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Unpack

from growc.formats.compiler import CompileOptions
from growc.recipe.syntax_tree import Undecided
from growc.resolve.bound import Decision, Resolved, ResolvedTexts
from growc.resolve.resolve import load

if TYPE_CHECKING:
    from growc.formats.compiler import Model


def settled(
    reading: ResolvedTexts,
    params: Mapping[str, str],
    model: Model,
    **options: Unpack[CompileOptions],
) -> Resolved:
    """The plain statements that a recipe makes for a model.

    Raises GrowError: the errors of `load`, and those of budgets in this model.
    """
    resolved, decided = reading.recipe, list[Decision]()
    if _first_budget(resolved) is None:
        return resolved
    from growc.budgets.choose import decision  # it imports all passes
    from growc.budgets.planning import Planning

    planning = Planning(model, options)
    while (place := _first_budget(resolved)) is not None:
        above = Resolved(resolved.statements[:place])
        decided.append(decision(planning, above, resolved.statements[place]))
        resolved = load(reading.sources, params, decided=decided)
    return resolved


def _first_budget(resolved: Resolved) -> int | None:
    """The place of the first statement without sizes; None if all have sizes."""
    statements = (bound.statement for bound in resolved.statements)
    return next((k for k, statement in enumerate(statements) if isinstance(statement, Undecided)), None)
