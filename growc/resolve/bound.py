"""A resolved recipe: its statements in order, with everything in the place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from growc.errors.source import Source, Span
from growc.recipe.expression import Expr
from growc.recipe.syntax_tree import Scope, Statement
from growc.recipe.versions import LATEST


@dataclass(frozen=True)
class Bound:
    """A statement of the flat list, with numbers and axes in the place of every `let`.

    number: its place among the statements that are neither `let`, `include` nor `expect`, from 1: what random
        draws are keyed by. Those of `expect` are one more than the last, for they judge the final model.
    scopes: the scopes around it, outermost first.
    """

    number: int
    scopes: tuple[Scope, ...]
    statement: Statement


@dataclass(frozen=True)
class Resolved:
    """All that a recipe says, in order.

    parameters: every `let`, with the value that it has here; included: the recipes that were read; defined:
        where the name of each `let` stands; language: the version that the recipe is read in.
    """

    statements: tuple[Bound, ...]
    parameters: Mapping[str, Expr] = field(default_factory=dict)
    included: tuple[Source, ...] = ()
    defined: Mapping[str, Span] = field(default_factory=dict)
    language: str = LATEST


@dataclass(frozen=True)
class Reading:
    """Texts, and the recipe that they come to."""

    sources: tuple[Source, ...]
    recipe: Resolved
