"""Edits that statements need in the model: untied heads, separate key/value heads, experts, grafted layers.

Needs: the statements, the analysed model. Gives: the edited model, analysed again. Raises GrowError: G307 if
a scope of `untie head` holds no tied head; for `stack layers from`, G209, G302, G303 and G314.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from growc.algebra.space import atoms_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.passes.analysis import ANALYSIS
from growc.passes.axes.infer import Axes
from growc.passes.axes.ties import tied_heads
from growc.passes.compilation import Analysis, Kept, Model, Request, Source
from growc.passes.heads.insert_groups import averages, groups_of_one
from growc.passes.heads.unpack_qkv import packed_heads
from growc.passes.layers.layer_runs import KeptPlaces, Layers, RunPlaces
from growc.passes.lowering.scopes import region_of, text_of
from growc.passes.roles.model_parts import Scopes
from growc.passes.runner import run
from growc.passes.upcycling.networks import mixtures
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import Name, parts_of
from growc.recipe.layer_orders import Depth
from growc.resolve.bound import Bound


def edit_pass(c: Analysis) -> Request:
    """Heads without tables, groups of one for `by mean`, networks as mixtures; if any, the analysis again."""
    untie_statements = [b for b in c.statements if isinstance(b.statement, ast.Untie)]
    untied = (
        heads_to_untie(untie_statements, c.axes, c.roles.scopes, c.layers)
        if untie_statements
        else frozenset()
    )
    model = grafted(c)
    if any(averages(bound.statement) for bound in c.statements):
        edit = replace(groups_of_one(c.axes, c.roles, c.ties), packed=packed_heads(c.axes, c.roles))
        model = model.edit(edit) if edit.repeats or edit.packed else model
    edited = c
    if untied or model is not c.model:
        edited = run(ANALYSIS, replace(c.part(Source), model=model, untied=untied))
    if new_mixtures := mixtures(edited, [b for b in c.statements if isinstance(b.statement, ast.Upcycle)]):
        upcycled = edited.model.upcycle(new_mixtures)
        places = KeptPlaces(tuple(map(RunPlaces.of, edited.layers.runs)), upcycled.counterpart)
        mixed = run(ANALYSIS, replace(edited.part(Source), model=upcycled.model, places=places))
        require_same_layers(edited.layers, mixed.layers, c.statements)
        edited = mixed
    return Request(**vars(edited), first=c, edited=edited)


def require_same_layers(before: Layers, after: Layers, statements: Sequence[Bound]) -> None:
    """Raise GrowError (G304) if layers end inside of new mixtures, and a statement counts layers.

    This happens in models without residual sums, where a network may be made of two layers.
    """
    counts, new_counts = ([(run.scope, len(run.layers)) for run in one.runs] for one in (before, after))
    counting = next((bound for bound in statements if counts_layers(bound)), None)
    if counts != new_counts and counting is not None:
        message = "layers of this model end inside networks that become experts, and cannot be counted then"
        remedy = "let a recipe of its own make the mixtures"
        raise GrowError(Diagnostic("G304", message, counting.statement.span, help=remedy))


def counts_layers(bound: Bound) -> bool:
    """Whether a statement depends on the numbers or the count of layers.

    `upcycle` itself is placed before; `reset` and `in M parts` act behind it.
    """
    statement = bound.statement
    plain = isinstance(statement, ast.Upcycle) and not (statement.parts or statement.reset)
    numbered = any(isinstance(scope, ast.LayerScope) for scope in bound.scopes)
    named = any(
        isinstance(part, Name | ast.NamedAxis) and part.name == "layers" for part in parts_of(statement)
    )
    return (numbered and not plain) or named or isinstance(statement, Depth)


def grafted(c: Analysis) -> Model:
    """The model with the layers of a template, if a statement asks for them.

    Raises GrowError: G303 if the model already has layers, G302 if the template has no run or several. Also
    G314 if the template is another model, and G209 if the recipe also measures or matches.
    """
    stack_statements = [b.statement for b in c.statements if isinstance(b.statement, ast.StackFrom)]
    if not stack_statements:
        return c.model
    first, span = stack_statements[0], stack_statements[0].file.span
    if c.layers.runs or len(stack_statements) > 1:
        message = "`stack layers to N from` is for a model without layers"
        remedy = "`stack layers to N by ORDER` deepens a model that has some"
        raise GrowError(Diagnostic("G303", message, stack_statements[-1].span, help=remedy))
    for bound in c.statements:
        if isinstance(bound.statement, ast.Measure | ast.Match):
            message = "this version does not measure or match a model whose layers come from a template"
            raise GrowError(
                Diagnostic("G209", message, bound.statement.span, help="do it in a recipe for the result")
            )
    template = c.outside.inspect(first.file.path)
    if len(template.layers.runs) != 1:
        count = "no layers" if not template.layers.runs else "several runs of layers"
        raise GrowError(Diagnostic("G302", f"the template has {count}", span))
    return c.model.graft(template.model, template.layers.runs[0], span)


def asked_again(c: Request, statements: Sequence[Bound], inside: bool, kept: Kept) -> Request:
    """The edited model of a request with other statements, of which less or nothing may change.

    It is analysed again if `inside` changes, which says whether heads count in each part.
    """
    edited = c.edited
    if inside != c.inside:
        edited = run(ANALYSIS, replace(edited.part(Source), inside=inside))
    return Request(**vars(edited) | {"statements": statements, "kept": kept}, first=c.first, edited=edited)


def heads_to_untie(bounds: Sequence[Bound], axes: Axes, scopes: Scopes, layers: Layers) -> frozenset[int]:
    """The numbers of the tied heads in the scopes of these statements.

    Raises GrowError (G307) if a scope has none.
    """
    heads = [set(atoms_of(axes.of(tie.uses[0]))) for tie in tied_heads(axes)]
    untied: set[int] = set()
    for bound in bounds:
        region = region_of(bound.scopes, scopes, axes, layers, bound.number)
        inside = region.inside
        heads_inside = {k for k, atoms in enumerate(heads) if inside is None or atoms <= inside}
        if not heads_inside and inside is not None:
            message = f"no head that is tied to a table lies in {text_of(bound.scopes)}"
            raise GrowError(Diagnostic("G307", message, bound.statement.span))
        untied |= heads_inside
    return frozenset(untied)
