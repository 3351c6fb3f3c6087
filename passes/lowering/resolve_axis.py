"""Resolution of a statement's axis to role axes or parameters of the model.

Needs: the roles, the axis graph. Raises GrowError (G302, G306) for axes and parameters that the model lacks.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import islice

from growc.algebra.space import Space, atoms_of, factors, find
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.source import Span
from growc.passes.axes.infer import Axes
from growc.passes.roles.name_axes import RoleAxis, Roles
from growc.recipe import syntax_tree as ast
from growc.recipe.expression import TensorAxis
from growc.recipe.option_rules import CHOSEN


def lacks(name: str, span: Span | None, roles: Roles, axes: Axes) -> Diagnostic:
    """The error for a name that no axis of the model has."""
    known_axes = ", ".join(f"{n} {'/'.join(map(str, roles.sizes(n)))}" for n in roles.axes)
    note = f"its axes are: {known_axes}" if known_axes else "none of its axes has a name of its own"
    grouped = [(r, s) for r, s in axes.ranked.items() if len(factors(s)) > 1 and name in CHOSEN]
    notes = [
        f"`{ranking.name or ranking.kind}` chooses from {' x '.join(str(f.size[0]) for f in factors(space))} "
        "units that come in groups, whose number of units stays"
        for ranking, space in grouped[:1]
    ]
    return Diagnostic("G302", f"the model has no `{name}`", span, notes=(note, *notes))


def named(name: str, span: Span | None, roles: Roles, axes: Axes) -> list[RoleAxis]:
    """The axes with a name as expressions spell it: a role, or `axis N of "GLOB"`.

    Raises GrowError (G302, G306).
    """
    if name.startswith("axis "):
        number, glob_text = name.removeprefix("axis ").split(" of ", 1)
        axis = TensorAxis(int(number), glob_text.strip('"'))
        return targets_of(axis if span is None else replace(axis, span=span), roles, axes)
    if name not in roles.axes:
        raise GrowError(lacks(name, span, roles, axes))
    return roles.axes[name]


def only_size(name: str, sizes: Iterable[int], span: Span) -> int:
    """The one size that a name has in an expression. Raises GrowError (G312) if there are several."""
    distinct = list(dict.fromkeys(sizes))
    if len(distinct) > 1:
        listed = ", ".join(map(str, distinct))
        raise GrowError(Diagnostic("G312", f"`{name}` has several sizes here: {listed}", span))
    return distinct[0]


def targets_of(axis: ast.AxisRef, roles: Roles, axes: Axes) -> list[RoleAxis]:
    """The axes that a statement names. Raises GrowError (G302, G306) if there are none."""
    if isinstance(axis, ast.NamedAxis):
        role_axes = roles.axes.get(axis.name, [])
        if not role_axes:
            raise GrowError(lacks(axis.name, axis.span, roles, axes))
        return role_axes
    pattern = re.compile(glob(axis.glob))
    spaces: dict[Space, None] = {}
    for use in axes.graph.uses():
        weight = use.weight
        if weight is not None and weight.floating and pattern.fullmatch(weight.name):
            if axis.number >= len(weight.shape):
                message = f"`{weight.name}` has {len(weight.shape)} axes, and no axis {axis.number}"
                raise GrowError(Diagnostic("G306", message, axis.span))
            spaces[find(axes.of(use)[axis.number])] = None
    if not spaces:
        raise GrowError(_no_parameter(axis, axes))
    return [RoleAxis((s,)) for s in spaces]


def glob(pattern: str) -> str:
    """The regular expression of a glob: `*` matches between dots, `**` across them."""
    pieces = re.split(r"(\*\*|\*|\?)", pattern)
    table = {"**": ".*", "*": "[^.]*", "?": "[^.]"}
    return "".join(table.get(p, re.escape(p)) for p in pieces)


def lies_under(pattern: str) -> Callable[[str], bool]:
    """A predicate: whether the name of a node or parameter matches a glob, or lies below a name that does."""
    compiled = re.compile("/?" + glob(pattern) + "([./].*)?")
    return lambda name: compiled.fullmatch(name) is not None


def _no_parameter(axis: TensorAxis, axes: Axes) -> Diagnostic:
    import difflib

    names = sorted({w.name for w in axes.graph.weights if w.floating and w.elements > 1})
    literal = max(re.split(r"[*?]+", axis.glob), key=len).strip("._/")
    near = [n for n in names if literal and literal in n] + difflib.get_close_matches(
        axis.glob, names, 3, 0.4
    )
    listed = ", ".join(list(dict.fromkeys(near or names))[:3])
    notes = (f"near names: {listed}",) if listed else ()
    return Diagnostic("G306", f"no parameter of the model matches `{axis.glob}`", axis.span, notes=notes)


def why_same(axes: Axes, space: Space) -> Iterable[str]:
    """Notes on the operators that tie an axis to itself under two names."""
    bearing = (i.node for i in axes.instances if find(space) in atoms_of(i.spaces.values()))
    nodes = [node.name or node.op for node in islice(bearing, 3)]
    return [f"tied by {', '.join(nodes)}"] if nodes else []
