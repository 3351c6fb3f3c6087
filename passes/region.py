"""What lies inside the scopes around a statement.

Needs: the scopes of the statement and of the model, the axis graph. Gives: `Region`: the axes that the
statement sees, and which of them reach out of its scopes, so that it may not change them. Raises GrowError
(G306, G307) for scopes that the model does not have.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from growc import recipe as ast
from growc.axes import leaves
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import readers
from growc.passes.roles import RoleAxis
from growc.passes.scopes import Scopes
from growc.passes.spaces import Axes
from growc.passes.targets import glob
from growc.source import Span


@dataclass(frozen=True)
class Region:
    """Part of a model. `inside`: ids of the atoms in it (None: all); `beyond`: of those elsewhere too."""

    scopes: tuple[ast.Scope, ...] = ()
    inside: frozenset[int] | None = None
    beyond: frozenset[int] = frozenset()

    def of(self, axes: Sequence[RoleAxis], name: str, span: Span) -> list[RoleAxis]:
        """The axes of which anything lies inside. Raises GrowError (G307) where that is none."""
        inside = self.inside
        if inside is None:
            return list(axes)
        found = [a for a in axes if any(id(x) in inside for s in a.spaces for x in leaves(s))]
        if not found:
            raise GrowError(Diagnostic("G307", f"no `{name}` lies in {self.text}", span))
        return found

    @property
    def text(self) -> str:
        """The scopes as a recipe writes them."""
        return " and ".join(f"`{scope.span.text}`" for scope in self.scopes)

    def require(self, axes: Sequence[RoleAxis], name: str, span: Span) -> None:
        """Raise GrowError (G307) unless all of the axes lie inside, and inside only."""
        inside = self.inside
        for axis in axes if inside is not None else ():
            atoms = [id(x) for s in axis.spaces for x in leaves(s)]
            if any(x in self.beyond or x not in inside for x in atoms):  # type: ignore[operator]
                message = f"`{name}` ({axis.size}) reaches out of {self.text}"
                remedy = "write the statement outside of the scope"
                raise GrowError(Diagnostic("G307", message, span, "only in part inside", (), remedy))


def region_of(scopes: Sequence[ast.Scope], known: Scopes, axes: Axes) -> Region:
    """What lies in all of these scopes."""
    region = Region(tuple(scopes))
    for scope in scopes:
        inside, beyond = _named(scope, known) if isinstance(scope, ast.RoleScope) else _under(scope, axes)
        inside = inside if region.inside is None else inside & region.inside
        region = replace(region, inside=inside, beyond=region.beyond | beyond)
    return region


def _named(scope: ast.RoleScope, known: Scopes) -> tuple[frozenset[int], frozenset[int]]:
    if scope.role not in known.names:
        have = ", ".join(f"`{name}`" for name in known.names)
        note = f"its scopes are {have}" if have else "it has one part: no stream reads another one"
        raise GrowError(Diagnostic("G307", f"the model has no `{scope.role}`", scope.span, notes=(note,)))
    inside = frozenset(a for a, names in known.of_atom.items() if scope.role in names)
    return inside, frozenset(a for a in inside if len(known.of_atom[a]) > 1)


def _under(scope: ast.Scope, axes: Axes) -> tuple[frozenset[int], frozenset[int]]:
    """Atoms of weights under names that match, and of weights under others."""
    assert isinstance(scope, ast.GlobScope)
    pattern = re.compile("/?" + glob(scope.pattern) + "([./].*)?")
    inside: set[int] = set()
    elsewhere: set[int] = set()
    for use in axes.graph.uses():
        assert use.weight is not None
        names = [use.weight.name, *(n.name for n in readers(use))]
        (inside if any(map(pattern.fullmatch, names)) else elsewhere).update(
            id(x) for s in axes.of(use) for x in leaves(s)
        )
    if not inside:
        message = f"no parameter or node of the model lies under `{scope.pattern}`"
        raise GrowError(Diagnostic("G306", message, scope.span))
    return frozenset(inside), frozenset(inside & elsewhere)
