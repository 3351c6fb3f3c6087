"""How many layers a recipe means by `layers`.

Needs: the runs of a model, the scopes around a statement. Gives: the runs inside, and their number of layers.
Raises GrowError (G302, G307, G312) where there is none, or not one.
"""

from __future__ import annotations

from collections.abc import Sequence

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.passes.layers.layer_runs import Layers, Run
from growc.passes.lowering.resolve_axis import lies_under
from growc.recipe import syntax_tree as ast


def runs_in(layers: Layers, scopes: Sequence[ast.Scope], span: Span | None) -> list[Run]:
    """The runs that lie in all of these scopes."""
    if not layers.runs:
        raise GrowError(Diagnostic("G302", "no layers were found in the model", span))
    found = [r for r in layers.runs if all(lies_in(r, scope) for scope in scopes)]
    if not found:
        inside = " and ".join(f"`{scope.span.text}`" for scope in scopes)
        raise GrowError(Diagnostic("G307", f"no `layers` lie in {inside}", span))
    return found


def lies_in(run: Run, scope: ast.Scope) -> bool:
    """Whether a run lies in a scope: of a glob, any of its weights or nodes does."""
    if isinstance(scope, ast.RoleScope):
        return run.scope == scope.role
    if isinstance(scope, ast.GlobScope):
        under = lies_under(scope.pattern)
        nodes = [n for layer in run.layers for n in layer.nodes]
        names = (v.weight.name for n in nodes for v in n.operands if v.weight is not None)
        return any(map(under, (*names, *(n.name for n in nodes))))
    return True


def numbers(runs: Sequence[Run], moment: int | None = None) -> list[int]:
    """The distinct numbers of layers before a statement, or after the last one, in order."""
    return list(dict.fromkeys(r.count_before(moment) for r in runs))


def number_of_layers(layers: Layers, scopes: Sequence[ast.Scope], span: Span, moment: int | None) -> int:
    """The number of layers in these scopes before a statement, or after the last one."""
    have = numbers(runs_in(layers, scopes, span), moment)
    if len(have) > 1:
        listed = ", ".join(map(str, have))
        raise GrowError(Diagnostic("G312", f"`layers` has several sizes here: {listed}", span))
    return have[0]
