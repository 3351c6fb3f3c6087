r"""The language: from text to growc.recipe.syntax_tree, and back.

>>> from growc.errors.source import SourceText
>>> recipe = parse(SourceText("-e", "widen   ffn to 2*ffn with tail copy"))
>>> format(recipe)
'widen ffn to 2 * ffn with tail copy\n'
"""

from __future__ import annotations

from growc.errors.diagnostic import GrowError
from growc.errors.source import SourceText
from growc.grammar.printer import depth_text, manner_text, mixture_text
from growc.grammar.printer import format_recipe as format  # noqa: A004 - growc.grammar.format is what it is
from growc.grammar.reader import read, read_expression
from growc.recipe.expression import Expr
from growc.recipe.syntax_tree import RecipeTree

__all__ = [
    "depth_text",
    "format",
    "manner_text",
    "mixture_text",
    "parse",
    "parse_expression",
    "read",
    "read_expression",
]


def parse(*sources: SourceText) -> RecipeTree:
    """The recipe in one text, or in several in sequence. Raises GrowError (G1xx) with all mistakes."""
    parts = [read(source) for source in sources]
    diagnostics = [diagnostic for _, mistakes in parts for diagnostic in mistakes]
    if diagnostics:
        raise GrowError(*diagnostics)
    return sum((recipe for recipe, _ in parts), RecipeTree())


def parse_expression(source: SourceText, start: int = 0) -> Expr:
    """The expression that forms a text from `start` on. Raises GrowError (G1xx) with every mistake in it."""
    expr, diagnostics = read_expression(source, start)
    if diagnostics or expr is None:
        raise GrowError(*diagnostics)
    return expr
