"""A resolved recipe: its statements in order, with everything in the place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from growc.errors.source import Source, Span
from growc.recipe.expression import Expr
from growc.recipe.syntax_tree import Item, Scope, Statement
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
class Row:
    """One choice of sizes for a budget. sizes: of each axis, as a statement says them. amount: of the
    quantity; lost: by the scores; cost: what was measured of it, or why it was not.
    """

    sizes: tuple[str, ...]
    amount: int
    lost: float
    cost: str = ""


@dataclass(frozen=True)
class Decision:
    """The plain statements that a statement on a budget stands for in a model.

    text: that statement; axes: what it is over; quantity, limit: the budget, in numbers; rows: the choices
    that were compared, the one that was taken first; near: the next sizes, below and above the budget; plain:
    the statements as text; plans: how many were made, as far as the sizes of axes or to the end.
    """

    items: tuple[Item, ...]
    text: str = ""
    axes: tuple[str, ...] = ()
    quantity: str = ""
    limit: int = 0
    rows: tuple[Row, ...] = ()
    near: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    plans: int = 0


@dataclass(frozen=True)
class Resolved:
    """All that a recipe says, in order.

    parameters: every `let`, with the value that it has here; included: the recipes that were read; defined:
        where the name of each `let` stands; language: the version that the recipe is read in; decided: what
        budgets came to, in order.
    """

    statements: tuple[Bound, ...]
    parameters: Mapping[str, Expr] = field(default_factory=dict)
    included: tuple[Source, ...] = ()
    defined: Mapping[str, Span] = field(default_factory=dict)
    language: str = LATEST
    decided: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class Reading:
    """Texts, and the recipe that they come to."""

    sources: tuple[Source, ...]
    recipe: Resolved
