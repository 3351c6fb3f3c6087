"""A short description of each word of the language, from the tables that define the words."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from growc.grammar.messages import FORMS
from growc.recipe import syntax_tree as rc
from growc.recipe.expression import UNKNOWN, Expr, Name, spell
from growc.recipe.fills import FILLS, FillRule
from growc.recipe.layer_orders import DEEPER, SHALLOWER, OrderRule
from growc.recipe.option_rules import OPTIONS, OptionRule
from growc.recipe.ranking_rules import RANKINGS, RankingRule
from growc.recipe.words import Word

TABLES: dict[str, tuple[Mapping[str, Word], ...]] = {
    "fill": (FILLS,),
    "option": (OPTIONS,),
    "ranking": (RANKINGS,),
    "order": (DEEPER, SHALLOWER),
}
"""The tables of each kind of word."""

VERBS: dict[str, tuple[type, ...]] = {
    verb: tuple(
        node for node in (*get_args(rc.Statement), rc.Scoped) if (node.__doc__ or "").startswith(f"`{verb} ")
    )
    for verb in FORMS
}
"""The statements that begin with each verb; their docstrings describe them."""


def of_statement(node: type) -> str:
    """The description of a kind of statement: its docstring."""
    return " ".join((node.__doc__ or "").split())


def of_verb(verb: str) -> str:
    """The descriptions of the statements with a verb."""
    return "\n".join(map(of_statement, VERBS[verb])) or f"`{FORMS[verb]}`"


def of_axis(name: str) -> str:
    """The description of an axis."""
    return f"`{name}`: {rc.AXES[name]}"


def of_word(kind: str, name: str) -> str:
    """The meaning of a fill, option, ranking or order; for an order, in both directions if it has two."""
    return "\n".join(_line(table[name]) for table in TABLES[kind] if name in table)


def _line(word: Word) -> str:
    match word:
        case FillRule():
            heading = f"`{word.spelling}` ({word.source}). New units: {word.making}."
            return f"{heading}\nWhat reads them: {word.reading}."
        case OptionRule() | RankingRule():
            return f"`{word.spelling}`: {word.meaning}"
        case OrderRule():
            direction = "deeper" if word in DEEPER.values() else "shallower"
            return f"`{word.spelling}` ({direction}): {word.meaning}"
        case _:
            return f"`{word.spelling}`"


def of_node(node: object, statement: object) -> str:
    """The meaning of a part of a statement; empty if there is none."""
    match node:
        case rc.Fill() | rc.LayerFill():
            return of_word("fill", node.name)
        case rc.Option():
            return of_word("option", node.name)
        case rc.Ranking():
            return of_word("ranking", node.name)
        case rc.LayerOrder():
            tables = {rc.Stack: DEEPER, rc.SubcloneLayers: SHALLOWER}
            table = tables.get(type(statement))
            return _line(table[node.name]) if table else of_word("order", node.name)
        case rc.NamedAxis() | Name() if node.name in rc.AXES:
            return of_axis(node.name)
        case (
            rc.RoleScope() | rc.LayerScope() | rc.GlobScope() | rc.Parameters() | rc.Exact() | rc.Preserved()
        ):
            return of_statement(type(node))
    return of_statement(type(node)) if isinstance(node, rc.Statement) else ""


def of_let(name: str, values: Mapping[str, Expr]) -> str:
    """A name with its value."""
    value = values.get(name, UNKNOWN)
    return f"`let {name}`" if value == UNKNOWN else f"`let {name} = {spell(value)}`"
