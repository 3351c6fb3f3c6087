"""Errors as data, and the one renderer of every error that growc shows."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import groupby
from typing import NamedTuple

from growc.errors.codes import CODES
from growc.errors.json_data import Json
from growc.errors.printable import UNPRINTABLE, printable
from growc.errors.source import SourceText, Span

TAB = 4


@dataclass(frozen=True)
class Diagnostic:
    """One thing that is wrong.

    code: a key of CODES, which says what kind of mistake it is and with which status the program ends.
    message: the fact, in one sentence, in lower case and without a full stop.
    span: the words meant; `label` stands beside their caret.
    notes: the path to the fact, or what there is to choose from.
    help: the one remedy, where there is one.
    related: other places that have a part in it, each with a label.
    """

    code: str
    message: str
    span: Span | None = None
    label: str = ""
    notes: tuple[str, ...] = ()
    help: str = ""
    related: tuple[tuple[Span, str], ...] = ()


class Attempt:
    """A context that catches every exception of foreign code; afterwards `error` holds the exception."""

    error: Exception | None = None

    def __enter__(self) -> Attempt:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        self.error = error if isinstance(error, Exception) else None
        return self.error is not None


class GrowError(Exception):
    """All problems found in one go: at least one diagnostic, in the order of reading."""

    def __init__(self, *diagnostics: Diagnostic) -> None:
        if not diagnostics:
            raise ValueError("a GrowError carries at least one diagnostic")
        super().__init__(*map(concealed, diagnostics))

    @property
    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """The problems, in the order of reading."""
        return self.args

    @property
    def exit_status(self) -> int:
        """The exit status of the command line; of several, the lowest of 2 and 3."""
        statuses = [CODES[diagnostic.code].status for diagnostic in self.diagnostics]
        return min((status for status in statuses if status in (2, 3)), default=statuses[0])

    def __str__(self) -> str:
        return "\n\n".join(map(render, self.diagnostics))


def concealed(diagnostic: Diagnostic) -> Diagnostic:
    """The diagnostic without words of a private text, and without their length."""
    title, span = CODES[diagnostic.code].title, diagnostic.span
    if span is None or not span.source.private or diagnostic.message == title:
        return diagnostic
    remedy = "the name of a recipe ends in `.grow`; of other files no text is shown"
    place = replace(span, end=span.start)
    return replace(diagnostic, message=title, span=place, label="", notes=(), help=remedy)


def explain(code: str) -> str:
    """The text that `growc explain CODE` prints. Raises GrowError (G200) if there is no such code."""
    if code not in CODES:
        note = f"the codes are {', '.join(sorted(CODES))}"
        raise GrowError(Diagnostic("G200", f"there is no error code `{code}`", notes=(note,)))
    entry = CODES[code]
    return f"{code}: {entry.title} (exit status {entry.status})\n\n{entry.explanation}"


def nearest(word: str, candidates: Iterable[str]) -> str | None:
    """The candidate that was probably meant, or None; capitals make no difference.

    >>> nearest("Widht", ["depth", "width"])
    'width'
    """
    close = get_close_matches(word.lower(), sorted(candidates), n=1, cutoff=0.65)
    return close[0] if close else None


def to_json(diagnostic: Diagnostic) -> dict[str, Json]:
    """The diagnostic in the command line's `--json` output; related places become notes.

    The end is the place behind the last character that is meant.
    """
    span = diagnostic.span
    end_line, end_column = span.source.position(span.end) if span else (None, None)
    return {
        "code": diagnostic.code,
        "message": diagnostic.message,
        "file": span.source.name if span else None,
        "line": span.line if span else None,
        "column": span.column if span else None,
        "end_line": end_line,
        "end_column": end_column,
        "notes": [*diagnostic.notes, *(f"{place}: {label}" for place, label in diagnostic.related)],
        "help": diagnostic.help,
    }


def error_object(error: GrowError) -> dict[str, Json]:
    """The `--json` output of a command that failed: the first error, and all errors."""
    errors = [to_json(diagnostic) for diagnostic in error.diagnostics]
    return {"error": errors[0], "errors": errors}


class Ink(NamedTuple):
    """The escape sequences of a rendering; all are empty without colour."""

    bold: str = ""
    error: str = ""
    frame: str = ""
    off: str = ""


COLORS = Ink("\033[1m", "\033[1;31m", "\033[1;34m", "\033[0m")

SpanMark = tuple[Span, str, str]
"""A place, the label beside it, and the sign that underlines it."""


LONGEST = 400
"""The most characters of a line that are shown; people write shorter lines."""


def render(diagnostic: Diagnostic, color: bool = False) -> str:
    """The diagnostic as text for people, in the form that rustc made familiar.

    The words meant are underlined with `^`, related places with `-`; lines between them are left out.
    """
    ink = COLORS if color else Ink()
    marks = [(diagnostic.span, diagnostic.label, "^")] if diagnostic.span else []
    marks += [(span, label, "-") for span, label in diagnostic.related]
    gutter = " " * len(str(max((span.line for span, _, _ in marks), default=1)))
    lines = [
        f"{ink.error}error[{diagnostic.code}]{ink.bold}: {printable(_short(diagnostic.message))}{ink.off}"
    ]
    for source, group in groupby(_in_order(marks), key=lambda mark: mark[0].source):
        lines += _snippet(source, list(group), diagnostic.span, gutter, ink)
    remarks = [("note", note) for note in diagnostic.notes]
    remarks += [("help", diagnostic.help)] if diagnostic.help else []
    for kind, text in remarks:
        hanging = printable(text, "\n").replace("\n", "\n" + " " * len(f"{gutter} = {kind}: "))
        lines.append(f"{gutter} {ink.frame}={ink.off} {ink.bold}{kind}{ink.off}: {hanging}")
    return "\n".join(lines)


def _in_order(marks: list[SpanMark]) -> list[SpanMark]:
    """The marks with the primary mark's source first, and within a source in the order of reading."""
    names = [span.source.name for span, _, _ in marks]
    return sorted(marks, key=lambda mark: (names.index(mark[0].source.name), mark[0].start, mark[2] == "-"))


def _snippet(
    source: SourceText, marks: list[SpanMark], primary: Span | None, gutter: str, ink: Ink
) -> list[str]:
    has_primary = primary is not None and primary.source == source
    bar = f"{gutter} {ink.frame}|{ink.off}"
    place = printable(str(primary if has_primary else marks[0][0]))
    lines = [f"{gutter} {ink.frame}{'-->' if has_primary else ':::'}{ink.off} {place}", bar]
    if source.private:
        return lines[:1]
    shown_line, shown_text = 0, ""
    for span, label, sign in marks:
        text, first = _around(source.line(span.line), span.column - 1)
        if shown_line and span.line > shown_line + 1:
            lines.append(f"{ink.frame}...{ink.off}")
        if (span.line, text) != (shown_line, shown_text):
            shown_line, shown_text = span.line, text
            lines.append(f"{ink.frame}{shown_line:>{len(gutter)}} |{ink.off} {_visible(text)}".rstrip())
        before = _width(text[:first])
        under = sign * max(1, _width(text[: first + span.end - span.start]) - before)
        tint = ink.error if sign == "^" else ink.frame
        words = " ".join(filter(None, (under, printable(label))))
        lines.append(f"{bar} {' ' * before}{tint}{words}{ink.off}")
    return lines


def _short(message: str) -> str:
    """A message, cut if it is very long; it may contain names from a file."""
    return message if len(message) <= 2 * LONGEST else f"{message[: 2 * LONGEST]} …"


def _around(line: str, first: int) -> tuple[str, int]:
    """A line and a column in it; a line that is too long is cut around the column."""
    start = max(0, first - LONGEST // 2) if len(line) > LONGEST else 0
    shown = line[start : start + LONGEST]
    dots = "… " if start else ""
    return dots + shown + (" …" if len(line) > start + LONGEST else ""), first - start + len(dots)


def _visible(text: str) -> str:
    """The text with tabs expanded, and with a sign in place of characters that control a terminal."""
    cells = ""
    for character in text:
        if character == "\t":
            cells += " " * (TAB - sum(map(_cell, cells)) % TAB)
        else:
            cells += "\ufffd" if unicodedata.category(character) in UNPRINTABLE else character
    return cells


def _width(text: str) -> int:
    return sum(map(_cell, _visible(text)))


def _cell(character: str) -> int:
    """The number of terminal columns of a character: wide ones take two, combining ones none."""
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def wrong(message: str, remedy: str = "") -> GrowError:
    """The error for a mistake in the command line."""
    return GrowError(Diagnostic("G200", message, help=remedy))
