"""Which heads part from the tables that they are tied to.

Needs: the statements `untie head`, the analysed model. Gives: the numbers of the ties to cut. Raises
GrowError (G307) where a scope holds no tied head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from growc.algebra.space import atoms_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.analysis import ANALYSIS
from growc.passes.axes.infer import Axes
from growc.passes.axes.ties import tied_heads
from growc.passes.compilation import Analysis, Request, Source
from growc.passes.layers.layer_runs import Layers
from growc.passes.lowering.scopes import region_of, text_of
from growc.passes.roles.submodels import Scopes
from growc.passes.runner import run
from growc.recipe import syntax_tree as ast
from growc.resolve.bound import Bound


def untie_pass(c: Analysis) -> Request:
    """Which heads part from their tables; if any does, the model is analysed again."""
    first = c
    asked = [b for b in c.statements if isinstance(b.statement, ast.Untie)]
    untied = heads_to_untie(asked, c.axes, c.roles.scopes, c.layers) if asked else frozenset()
    if untied:
        c = run(ANALYSIS, replace(c.part(Source), untied=untied))
    return Request(**vars(c), first=first)


def heads_to_untie(asked: Sequence[Bound], axes: Axes, scopes: Scopes, layers: Layers) -> frozenset[int]:
    """The numbers of the tied heads that lie in the scopes of a statement."""
    heads = [set(atoms_of(axes.of(tie.uses[0]))) for tie in tied_heads(axes)]
    untied: set[int] = set()
    for bound in asked:
        region = region_of(bound.scopes, scopes, axes, layers, bound.number)
        inside = region.inside
        found = {k for k, atoms in enumerate(heads) if inside is None or atoms <= inside}
        if not found and inside is not None:
            message = f"no head that is tied to a table lies in {text_of(bound.scopes)}"
            raise GrowError(Diagnostic("G307", message, bound.statement.span))
        untied |= found
    return frozenset(untied)
