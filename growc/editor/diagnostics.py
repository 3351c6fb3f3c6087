"""The problems of a recipe, in the form in which an editor shows them."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types

from growc.editor.positions import Positions
from growc.editor.reading import Reading
from growc.errors.diagnostic import Diagnostic
from growc.errors.printable import printable
from growc.errors.source import SourceText, Span
from growc.resolve.resolve import included_at

Encoding = types.PositionEncodingKind | str
AddressOf = Callable[[SourceText], str | None]
"""Returns the URI of a text; None if it is no file."""


def diagnostics(reading: Reading, encoding: Encoding, address: AddressOf) -> list[types.Diagnostic]:
    """All problems of a recipe. A problem in an included recipe is shown at the `include` that leads
    there.
    """
    places = Positions(reading.source.text, encoding)
    return [
        types.Diagnostic(
            _range(reading, problem, places),
            printable(message_of(problem), "\n"),
            severity=types.DiagnosticSeverity.Error,
            code=problem.code,
            source="growc",
            related_information=_related(reading, problem, encoding, address) or None,
        )
        for problem in reading.problems
    ]


def message_of(problem: Diagnostic) -> str:
    """The message with its notes and help on lines of their own."""
    fact = f"{problem.message}: {problem.label}" if problem.label else problem.message
    notes = [f"note: {note}" for note in problem.notes]
    return "\n".join([fact, *notes, *([f"help: {problem.help}"] if problem.help else [])])


def location(span: Span, encoding: Encoding, address: AddressOf) -> types.Location | None:
    """A place in any file; None if the file has no URI."""
    uri = address(span.source)
    places = Positions(span.source.text, encoding)
    return types.Location(uri, places.range(span.start, span.end)) if uri else None


def _range(reading: Reading, problem: Diagnostic, places: Positions) -> types.Range:
    span = problem.span
    if span is None:
        return places.range(0, 0)
    if span.source == reading.source:
        return places.range(span.start, span.end)
    include_spans = {included_at(include.file.span): include.file.span for include in reading.includes}
    include_span = next(
        (include_spans[note] for note in reversed(problem.notes) if note in include_spans), None
    )
    return places.range(include_span.start, include_span.end) if include_span else places.range(0, 0)


def _related(
    reading: Reading, problem: Diagnostic, encoding: Encoding, address: AddressOf
) -> list[types.DiagnosticRelatedInformation]:
    marks = list(problem.related)
    if problem.span and problem.span.source != reading.source:
        marks.insert(0, (problem.span, problem.message))
    locations = [(location(span, encoding, address), printable(label)) for span, label in marks]
    return [types.DiagnosticRelatedInformation(place, label) for place, label in locations if place]
