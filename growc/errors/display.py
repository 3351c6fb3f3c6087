"""The display of a result in Python: the lines that the command line prints.

Results come from all floors. Their lines are made on the topmost floor; growc's `__init__` names the module.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import singledispatch
from importlib import import_module

from growc.errors.printable import printable

INKS = (
    (re.compile(r"^  ~ "), "\033[33m", "#b58900"),
    (re.compile(r"^  \+ "), "\033[32m", "#2e9e44"),
    (re.compile(r"^  - "), "\033[31m", "#d9534f"),
    (re.compile(r"^  > "), "\033[36m", "#2f9fb0"),
    (re.compile(r"^Certificate: exact"), "\033[1;32m", "#2e9e44"),
    (re.compile(r"^(Certificate: not exact|  gap )"), "\033[1;31m", "#d9534f"),
    (re.compile(r"^  [├└]─ [^ ]+( ×)?"), "\033[36m", "#2f9fb0"),
    (re.compile(r"^warning:"), "\033[1;33m", "#b58900"),
    (re.compile(r"^( *help:|note:|[A-Z]\w+:)"), "\033[1m", "inherit;font-weight:bold"),
)
"""Starts of lines with their colours on a terminal and on a page, light or dark; the first match is used."""

HINT = " (--all)"
"""The end of a line that says how many lines are left out: the command line's option for these."""

rendered_in: list[str] = []
"""The modules that define how results are shown; they register functions with `lines_of`."""


@singledispatch
def lines_of(result: object) -> Iterable[str]:
    """A result as lines of text."""
    return [repr(result)]


@singledispatch
def all_lines_of(result: object) -> Iterable[str]:
    """A result as lines of text, with those that `lines_of` leaves out; none if it leaves out none."""
    return []


class Shown:
    """A result for people: shown as text, and in a notebook."""

    def __str__(self) -> str:
        """The text that the command line prints for the result."""
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        """The result for a notebook; lines that the text leaves out can be unfolded.

        Names from models and files are escaped.
        """
        lines = list(_lines(self))
        page = _block(line.removesuffix(HINT) for line in lines)
        if not any(line.endswith(HINT) for line in lines):
            return page
        whole = _block(map(printable, all_lines_of(self)))
        return f"{page}<details><summary>All lines</summary>{whole}</details>"


def _lines(result: object) -> Iterable[str]:
    for module in rendered_in:
        import_module(module)
    return map(printable, lines_of(result))


def _block(lines: Iterable[str]) -> str:
    """Lines as HTML."""
    text = "\n".join(map(_marked, lines))
    return f'<pre style="white-space:pre;overflow-x:auto">{text}</pre>'


def colored(line: str, ink: Callable[[str, str, str], str], plain: Callable[[str], str] = str) -> str:
    """A line with a coloured start.

    ink: formats the start with its two colours. plain: formats the rest.
    """
    for pattern, terminal, page in INKS:
        if match := pattern.match(line):
            return ink(match[0], terminal, page) + plain(line[match.end() :])
    return plain(line)


def _marked(line: str) -> str:
    """A line as HTML."""
    import html

    return colored(
        line, lambda start, _, page: f'<span style="color:{page}">{html.escape(start)}</span>', html.escape
    )
