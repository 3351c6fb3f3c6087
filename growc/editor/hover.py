"""The meaning of the word under the pointer, and the place of its definition."""

from __future__ import annotations

from growc.editor import meanings
from growc.editor.models import AxesByModel, model_of
from growc.editor.reading import Reading
from growc.errors.printable import printable
from growc.errors.source import SourceText, Span
from growc.grammar.messages import FORMS
from growc.grammar.parser import keywords, tokenize
from growc.recipe.expression import Name
from growc.recipe.syntax_tree import AXES, Comment, NamedAxis, Statement, Text


def hover(reading: Reading, offset: int, sizes: AxesByModel) -> tuple[str, Span] | None:
    """The meaning of the word at an offset, and its span; None if there is none.

    An axis is shown with its size in the model that the recipe names.
    """
    nodes = reading.around(offset)
    model = model_of(reading)
    if model and isinstance(nodes[-1] if nodes else None, Comment) and nodes[-1].span == model.span:
        return printable(sizes.all(model)), model.span
    statement = next((node for node in reversed(nodes) if isinstance(node, Statement)), None)
    for node in reversed(nodes):
        meaning = _name(reading, node.name, sizes) if isinstance(node, Name | NamedAxis) else ""
        if meaning := meaning or meanings.of_node(node, statement):
            return meaning, node.span
    if (word := word_at(reading.source, offset)) is None:
        return None
    meaning = meanings.of_verb(word.text) if word.text in FORMS else _name(reading, word.text, sizes)
    return (meaning, word) if meaning else None


def _name(reading: Reading, name: str, sizes: AxesByModel) -> str:
    """A description of an axis or a `let`; empty for any other word."""
    if name in AXES:
        model = model_of(reading)
        size = sizes.one(model, name) if model else ""
        return "\n".join(filter(None, (meanings.of_axis(name), printable(size))))
    if name in reading.resolved.defined:
        return meanings.of_let(name, reading.resolved.parameters)
    return ""


def definition(reading: Reading, offset: int) -> Span | None:
    """The definition of the word at an offset: a `let`, or the included recipe; None if there is none."""
    for node in reversed(reading.around(offset)):
        if isinstance(node, Text) and any(node is include.file for include in reading.includes):
            path = node.path.as_posix()
            return next((_start(s) for s in reading.resolved.included if s.name == path), None)
    word = word_at(reading.source, offset)
    return reading.resolved.defined.get(word.text) if word else None


def _start(source: SourceText) -> Span:
    return Span(source, 0, 0)


def word_at(source: SourceText, offset: int) -> Span | None:
    """The word that contains an offset or ends at it, as the language splits words; None if there is none."""
    line, column = source.position(offset)
    first, span = offset - column + 1, None
    for token in tokenize(source.line(line)):
        start, end = first + (token.start_pos or 0), first + (token.end_pos or 0)
        if start <= offset <= end and (token.type in ("NAME", "ROLE") or token in keywords().values()):
            span = Span(source, start, end)
    return span
