"""What of the language this version does; the one place to change when it does more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic
from growc.errors.source import Span
from growc.recipe.syntax_tree import (
    Arrange,
    Drop,
    Expect,
    Match,
    Measure,
    Reorder,
    RoleScope,
    Stack,
    Statement,
    Subclone,
    SubcloneLayers,
    Untie,
    Widen,
)

if TYPE_CHECKING:
    from growc.resolve.bound import Bound

STATEMENTS: tuple[type[Statement], ...] = (
    Widen,
    Subclone,
    Reorder,
    Stack,
    SubcloneLayers,
    Arrange,
    Drop,
    Match,
    Measure,
    Untie,
    Expect,
)
"""Statements that are done, besides `let` and `include`, which are gone once a recipe is resolved."""


def unsupported(bound: Bound) -> Iterator[Diagnostic]:
    """What this version cannot do yet of a resolved statement."""
    statement = bound.statement
    if not isinstance(statement, STATEMENTS):
        yield _not_yet(f"`{_verb(statement)}`", statement.span)
    elif isinstance(statement, Match) and not all(isinstance(s, RoleScope) for s in bound.scopes):
        yield _not_yet("`match` in `in layers` or in a glob", statement.span)


def _verb(statement: Statement) -> str:
    """`SubcloneLayers` is spelled `subclone layers`."""
    words = "".join(f" {c.lower()}" if c.isupper() else c for c in type(statement).__name__)
    return words.strip()


def _not_yet(what: str, span: Span) -> Diagnostic:
    message = f"this version does not do {what} yet"
    return Diagnostic("G209", message, span, help="`growc explain G209` lists what it does")
