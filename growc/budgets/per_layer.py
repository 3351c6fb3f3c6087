"""Sizes that differ by layer: the units of all layers compete for a total.

Needs: `subclone AXIS to total LIMIT by RANKING`, and plans of the model. Gives: a `Decision` with a plain
statement for each layer. A unit counts by its part of the sum of its layer's scores. Raises GrowError (G303)
if the total is too small or too large. If the model's class refuses layers of several sizes, the error names
the nearest uniform statement.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Literal

from growc import grammar
from growc.budgets.expressions import value_in
from growc.budgets.knobs import BudgetAxis, Said, StatementTrials, scored, width
from growc.budgets.planning import Planning
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.formats.compiler import fitted
from growc.passes.compilation import Result
from growc.passes.lowering.scopes import runs_in
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Expr, Int
from growc.resolve.bound import Bound, BudgetRow, Decision, Resolved

ROLES: tuple[Literal["encoder"], Literal["decoder"]] = ("encoder", "decoder")


@dataclass(frozen=True)
class LayerKnob:
    """One layer: the scopes that lead to it, and the knob of its axis."""

    scopes: tuple[ast.Scope, ...]
    layer: int
    knob: BudgetAxis

    def size(self, level: int) -> int:
        """The number of units at a level, summed over its axes."""
        return sum(self.knob.sizes(level))


def decided(planning: Planning, above: Resolved, bound: Bound, statement: ast.SubcloneTotal) -> Decision:
    """The decision with the statements of each layer."""
    c = planning.of(above.statements)
    places = list(_places(c, bound, statement))
    total = math.floor(value_in(statement.size, c, bound, {}))
    levels = shared_out(places, total, statement)
    items = tuple(_items(places, levels, statement))
    plain = [_plain(place, level, statement) for place, level in zip(places, levels, strict=True)]
    appended = [
        replace(bound, number=bound.number + k, scopes=(*bound.scopes, *scopes), statement=layer_statement)
        for k, (scopes, layer_statement) in enumerate(p for p in plain if p is not None)
    ]
    _held(planning, above, appended, places, total, statement)
    sizes = tuple(str(place.size(level)) for place, level in zip(places, levels, strict=True))
    kept_units = sum(place.size(level) for place, level in zip(places, levels, strict=True))
    shares = [float(place.knob.lost[level]) for place, level in zip(places, levels, strict=True)]
    lost = math.sqrt(sum(share**2 for share in shares) / len(shares))
    names = tuple(" ".join([*map(_named, place.scopes), str(place.layer)]) for place in places)
    text = " ".join(statement.span.text.split())
    lines = tuple(grammar.format(ast.RecipeTree(items)).splitlines())
    return Decision(
        items, text, names, statement.axis.name, total, (BudgetRow(sizes, kept_units, lost),), plain=lines
    )


def _named(scope: ast.Scope) -> str:
    return scope.role if isinstance(scope, ast.RoleScope) else ""


def _places(c: Result, bound: Bound, statement: ast.SubcloneTotal) -> Iterator[LayerKnob]:
    """Every layer that has the axis."""
    lost = scored(c, ast.Subclone(statement.axis, statement.size, statement.ranking, span=statement.span))
    runs = list(runs_in(c.layers, bound.scopes, statement.axis.span))
    if len(runs) > 1 and any(run.scope not in ROLES for run in runs):
        message = "this version shares out a total in models with one run of layers, or encoder and decoder"
        raise GrowError(Diagnostic("G209", message, statement.axis.span))
    for run in runs:
        role = next((role for role in ROLES if role == run.scope), None)
        scopes: tuple[ast.Scope, ...] = () if len(runs) == 1 or role is None else (ast.RoleScope(role),)
        for layer in range(len(run.layers)):
            layer_scopes = (*bound.scopes, *scopes, ast.LayerScope(ast.LayerNumber(Int(layer))))
            trials = StatementTrials(c, replace(bound, scopes=layer_scopes))
            try:
                knob = width(trials, statement.axis, _saying(statement), lost, 1)
            except GrowError as error:
                raise _of_layer(error, layer, run.scope, statement) from error
            yield LayerKnob(scopes, layer, knob)


def _of_layer(error: GrowError, layer: int, scope: str, statement: ast.SubcloneTotal) -> GrowError:
    """The error about an axis in one layer, placed on the statement."""
    first = error.diagnostics[0]
    where = f"layer {layer}{f' of the {scope}' if scope else ''}"
    cause = "units reach out of it" if first.code == "G307" else first.message
    message = f"`{statement.axis.name}` in {where} has no size of its own: {cause}"
    remedy = "give all layers one size: `subclone AXIS to SIZE by RANKING`"
    return GrowError(Diagnostic(first.code, message, statement.axis.span, notes=first.notes, help=remedy))


def _saying(statement: ast.SubcloneTotal) -> Said:
    def said(axis: ast.AxisRef, size: Expr) -> ast.Statement:
        return ast.Subclone(axis, size, statement.ranking, statement.options, span=statement.span)

    return said


def shared_out(places: Sequence[LayerKnob], total: int, statement: ast.SubcloneTotal) -> list[int]:
    """The level of each layer. Units with the largest part of their layer's scores stay.

    Raises GrowError (G303) if the total is out of range.
    """
    levels = [0] * len(places)
    remaining = total - sum(place.size(0) for place in places)
    units_today = sum(place.size(len(place.knob.levels) - 1) for place in places)
    if remaining < 0 or total > units_today:
        relation = (
            "less than one for each layer" if remaining < 0 else f"more than the {units_today} of today"
        )
        message = f"a total of {total} is {relation}"
        raise GrowError(Diagnostic("G303", message, statement.size.span))
    queue = [_gain(place, k, 0) for k, place in enumerate(places) if len(place.knob.levels) > 1]
    heapq.heapify(queue)
    while queue:
        _, k = heapq.heappop(queue)
        step = places[k].size(levels[k] + 1) - places[k].size(levels[k])
        if step > remaining:
            continue
        levels[k] += 1
        remaining -= step
        if levels[k] + 1 < len(places[k].knob.levels):
            heapq.heappush(queue, _gain(places[k], k, levels[k]))
    return levels


def _gain(place: LayerKnob, k: int, level: int) -> tuple[float, int]:
    """Sort key of a layer: the loss per unit that its next step avoids, largest first, and its number."""
    step = place.size(level + 1) - place.size(level)
    return float(place.knob.lost[level + 1] - place.knob.lost[level]) / step, k


def _plain(
    place: LayerKnob, level: int, statement: ast.SubcloneTotal
) -> tuple[tuple[ast.Scope, ...], ast.Statement] | None:
    """The statement of one layer with its scopes; None if the layer keeps its size."""
    if place.knob.stays(level):
        return None
    scope = ast.LayerScope(ast.LayerNumber(Int(place.layer)))
    return (*place.scopes, scope), _saying(statement)(statement.axis, place.knob.size(level))


def _items(
    places: Sequence[LayerKnob], levels: Sequence[int], statement: ast.SubcloneTotal
) -> Iterator[ast.Item]:
    """The statements of all layers as items of a recipe."""
    for place, level in zip(places, levels, strict=True):
        scoped_statement = _plain(place, level, statement)
        if scoped_statement is not None:
            item: ast.Item = scoped_statement[1]
            for scope in reversed(scoped_statement[0]):
                item = ast.Scoped(scope, (item,), span=statement.span)
            yield item


def _held(
    planning: Planning,
    above: Resolved,
    behind: Sequence[Bound],
    places: Sequence[LayerKnob],
    total: int,
    statement: ast.SubcloneTotal,
) -> None:
    """Raise GrowError if the model cannot have layers of these sizes.

    The error names the uniform statement that is nearest to the total.
    """
    c = planning.of((*above.statements, *behind))
    try:
        fitted(c)
    except GrowError as error:
        each = uniform(places, total)
        axis = statement.axis.name
        remedy = f"`subclone {axis} to {each} by {statement.ranking.name}` has {each} in every layer"
        raise GrowError(*(replace(d, span=statement.span, help=remedy) for d in error.diagnostics)) from error


def uniform(places: Sequence[LayerKnob], total: int) -> int:
    """The largest size that all layers can have within a total."""
    each = Fraction(total, len(places))
    sizes = [{place.size(level) for level in range(len(place.knob.levels))} for place in places]
    common = set.intersection(*sizes)
    return max((size for size in common if size <= each), default=min(common, default=1))
