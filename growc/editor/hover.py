"""What the word under the pointer means, and where it is defined."""

from __future__ import annotations

from growc.editor import meanings
from growc.editor.models import Sizes, model_of
from growc.editor.reading import Reading
from growc.errors.printable import printable
from growc.errors.source import Source, Span
from growc.grammar.messages import FORMS
from growc.grammar.parser import keywords, tokenize
from growc.recipe.expression import Name
from growc.recipe.syntax_tree import AXES, Comment, NamedAxis, Statement, Text


def hover(reading: Reading, offset: int, sizes: Sizes) -> tuple[str, Span] | None:
    """What stands at an offset, in words, and where it begins and ends; an axis with its size in the model
    that the recipe names.
    """
    nodes = reading.around(offset)
    model = model_of(reading)
    if model and isinstance(nodes[-1] if nodes else None, Comment) and nodes[-1].span == model.span:
        return printable(sizes.all(model)), model.span
    statement = next((node for node in reversed(nodes) if isinstance(node, Statement)), None)
    for node in reversed(nodes):
        said = _name(reading, node.name, sizes) if isinstance(node, Name | NamedAxis) else ""
        if said := said or meanings.of_node(node, statement):
            return said, node.span
    if (word := word_at(reading.source, offset)) is None:
        return None
    said = meanings.of_verb(word.text) if word.text in FORMS else _name(reading, word.text, sizes)
    return (said, word) if said else None


def _name(reading: Reading, name: str, sizes: Sizes) -> str:
    """What an axis or a `let` is; nothing for another word."""
    if name in AXES:
        model = model_of(reading)
        size = sizes.one(model, name) if model else ""
        return "\n".join(filter(None, (meanings.of_axis(name), printable(size))))
    if name in reading.resolved.defined:
        return meanings.of_let(name, reading.resolved.parameters)
    return ""


def definition(reading: Reading, offset: int) -> Span | None:
    """Where what stands at an offset is defined: a `let`, or the recipe that is included."""
    for node in reversed(reading.around(offset)):
        if isinstance(node, Text) and any(node is include.file for include in reading.includes):
            path = node.path.as_posix()
            return next((_start(s) for s in reading.resolved.included if s.name == path), None)
    word = word_at(reading.source, offset)
    return reading.resolved.defined.get(word.text) if word else None


def _start(source: Source) -> Span:
    return Span(source, 0, 0)


def word_at(source: Source, offset: int) -> Span | None:
    """The word that an offset lies in or stands behind, as the language parts words."""
    line, column = source.position(offset)
    first, found = offset - column + 1, None
    for token in tokenize(source.line(line)):
        start, end = first + (token.start_pos or 0), first + (token.end_pos or 0)
        if start <= offset <= end and (token.type in ("NAME", "ROLE") or token in keywords().values()):
            found = Span(source, start, end)
    return found
