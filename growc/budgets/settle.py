"""Recipes with budgets: each budget is settled on the model, in order, and becomes plain statements.

Needs: the texts of a recipe, a model. Gives: the flat list of statements, with sizes in the place of budgets.
What stands above a budget is done first; its sizes are searched by `growc.budgets.choose`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Unpack

from growc.budgets.choose import decision
from growc.budgets.planning import Planning
from growc.errors.source import Source
from growc.formats.compiler import Options
from growc.recipe.syntax_tree import Undecided
from growc.resolve.bound import Decision, Resolved
from growc.resolve.resolve import load

if TYPE_CHECKING:
    from growc.formats.compiler import Model


def settled(
    sources: Sequence[Source],
    params: Mapping[str, str],
    model: Model,
    **options: Unpack[Options],
) -> Resolved:
    """What a recipe says of a model, in plain statements. Raises GrowError: what `load` raises, and what is
    wrong with a budget in this model.
    """
    decided: list[Decision] = []
    planning = Planning(model, options)
    while True:
        resolved = load(sources, params, decided=decided)
        place = next(
            (k for k, b in enumerate(resolved.statements) if isinstance(b.statement, Undecided)), None
        )
        if place is None:
            return resolved
        above = Resolved(resolved.statements[:place])
        decided.append(decision(planning, above, resolved.statements[place]))
