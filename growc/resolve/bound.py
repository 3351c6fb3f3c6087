"""A resolved recipe: its statements in order, with values in place of names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from growc.errors.source import SourceText, Span
from growc.recipe.expression import Expr
from growc.recipe.syntax_tree import Item, Scope, Statement
from growc.recipe.versions import LATEST


@dataclass(frozen=True)
class Bound:
    """A statement of the flat list, with numbers and axes in place of every `let`.

    number: its place from 1 among the statements other than `let`, `include` and `expect`. It is a key of
        random draws. An `expect` has one more than the last number, since it judges the final model.
    scopes: the scopes around it, outermost first.
    """

    number: int
    scopes: tuple[Scope, ...]
    statement: Statement


@dataclass(frozen=True)
class BudgetRow:
    """One choice of sizes for a budget.

    sizes: the size of each axis, as a statement spells it. amount: the amount of the quantity. lost: the loss
    by the scores. cost: the measured cost, or the cause why it was not measured.
    """

    sizes: tuple[str, ...]
    amount: int
    lost: float
    cost: str = ""


@dataclass(frozen=True)
class Decision:
    """The plain statements that a statement on a budget stands for in a model.

    items: the plain statements; plain: these as text. text: the statement on the budget. axes: its axes.
    quantity, limit: the budget, in numbers. rows: the choices that were compared, the chosen one first. near:
    the next sizes, below and above the budget. plans: the number of plans that were made, up to the sizes of
    axes or completely.
    """

    items: tuple[Item, ...]
    text: str = ""
    axes: tuple[str, ...] = ()
    quantity: str = ""
    limit: int = 0
    rows: tuple[BudgetRow, ...] = ()
    near: tuple[BudgetRow, ...] = ()
    notes: tuple[str, ...] = ()
    plain: tuple[str, ...] = ()
    plans: int = 0


@dataclass(frozen=True)
class Resolved:
    """A resolved recipe: all its statements, in order.

    parameters: every `let`, with its value; included: the recipes that were included; defined: the place of
        the name of each `let`; language: the version that the recipe is read in; decided: the decisions of
        budgets, in order.
    """

    statements: tuple[Bound, ...]
    parameters: Mapping[str, Expr] = field(default_factory=dict)
    included: tuple[SourceText, ...] = ()
    defined: Mapping[str, Span] = field(default_factory=dict)
    language: str = LATEST
    decided: tuple[Decision, ...] = ()


@dataclass(frozen=True)
class ResolvedTexts:
    """Texts, and the recipe that they are resolved to."""

    sources: tuple[SourceText, ...]
    recipe: Resolved
