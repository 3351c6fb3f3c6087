"""Sizes of models, and the expansion of `match` to plain statements.

Needs: the resolved statements, the analysed model. Gives: the statements without `match`. Raises GrowError
(G310) for a file that gives no sizes, and what growc.resolve.match raises.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import parsing_foreign_file
from growc.errors.source import Span
from growc.ir.lowered_statement import Sizes
from growc.passes.compilation import Analysis, Request
from growc.passes.layers.layer_runs import DepthChange, Layers
from growc.passes.lowering.lower_depth import depth_of
from growc.passes.lowering.lower_recipe import lowered
from growc.passes.new_layers.zero_branches import Branches
from growc.passes.roles.name_axes import Roles
from growc.recipe import syntax_tree as ast
from growc.resolve.bound import Bound
from growc.resolve.checks import check
from growc.resolve.config_fields import sizes_of_config
from growc.resolve.match import SizesByPart, matched

PARTS = ("encoder", "decoder")
"""Scopes whose sizes are matched separately."""
Inspect = Callable[[Path], Analysis]


def match_pass(c: Request) -> Request:
    """Plain statements in the place of `match`, by the sizes that the ones before it leave.

    Raises GrowError: G310 if the file gives no sizes, G2xx if a statement contradicts itself.
    """
    if not any(isinstance(b.statement, ast.Match) for b in c.statements):
        return c
    plain: list[Bound] = []
    for bound in c.statements:
        if not isinstance(bound.statement, ast.Match):
            plain.append(bound)
            continue
        file = bound.statement.file
        expanded = matched(bound, sizes_after(c, plain), sizes_in(file.path, file.span, c.outside.inspect))
        problems = [d for b in expanded for d in check(b.statement, b.scopes)]
        if problems:
            raise GrowError(*dict.fromkeys(problems))
        plain += expanded
    return Request(**vars(c) | {"statements": plain})


def sizes_after(c: Request, statements: Sequence[Bound]) -> SizesByPart:
    """The sizes of the model after these statements."""
    sizes = lowered(c, statements, DepthChange()).sizes
    depth = depth_of(c, statements, Branches(c.axes, c.layers))
    return known_sizes(c.roles, sizes, c.layers, [run.count_before(None) for run in depth.runs])


def known_sizes(roles: Roles, sizes: Sizes, layers: Layers, counts: Sequence[int]) -> SizesByPart:
    """The sizes of a model's axes, in all of it and in each part.

    counts: the number of layers of each run.
    """
    grouped = any(group.size[0] > 1 or sizes.of(group)[0] > 1 for group in roles.groups())
    sizes_by_part: dict[str, dict[str, tuple[int, ...]]] = {}
    for part in ("", *(p for p in PARTS if p in roles.scopes.names)):
        sizes_by_role: dict[str, tuple[int, ...]] = {}
        for role, axes in roles.axes.items():
            inside = [a for a in axes if not part or roles.scopes.of(a.spaces) == {part}]
            if inside:
                sizes_by_role[role] = tuple(dict.fromkeys(sizes.product(a.spaces) for a in inside))
        runs = zip(layers.runs, counts, strict=True)
        numbers = tuple(dict.fromkeys(n for run, n in runs if part in ("", run.scope)))
        sizes_by_part[part] = sizes_by_role | ({"layers": numbers} if numbers else {})
    return SizesByPart(sizes_by_part, grouped)


def sizes_in(path: Path, span: Span, inspect: Inspect) -> SizesByPart:
    """The sizes of a model file or a config.json. Raises GrowError (G310) if a config gives none."""
    config = path / "config.json" if path.is_dir() else path
    try:
        if config.suffix != ".json":
            analysis = inspect(path)
            counts = [len(run.layers) for run in analysis.layers.runs]
            return known_sizes(analysis.roles, Sizes(), analysis.layers, counts)
        with parsing_foreign_file(config, "a config"):
            fields = json.loads(config.read_text(encoding="utf-8"))
            known = sizes_of_config(fields) if isinstance(fields, dict) else SizesByPart({})
    except GrowError as error:
        raise GrowError(*(replace(d, span=span) for d in error.diagnostics)) from error
    if not known.of.get(""):
        message = f"`{config}` says nothing of sizes"
        raise GrowError(Diagnostic("G310", message, span, help="a config.json has `hidden_size` or the like"))
    return known
