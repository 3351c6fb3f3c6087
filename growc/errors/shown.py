"""What a person sees of a result in Python: the lines that the command line prints.

Results are of all floors, and their lines are made on the topmost one: growc's `__init__` names the module.
"""

from __future__ import annotations

import html
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
"""What stands at the start of a line, its colour on a terminal, and that on a page, light or dark; the first
that fits is taken.
"""

rendered_in: list[str] = []
"""The modules that say how results look; they register them with `lines_of`."""


@singledispatch
def lines_of(result: object) -> Iterable[str]:
    """A result as lines of text."""
    return [repr(result)]


class Shown:
    """A result that a person looks at: as text, and in a notebook."""

    def __str__(self) -> str:
        """What the command line prints of it."""
        return "\n".join(_lines(self))

    def _repr_html_(self) -> str:
        """The same for a notebook. Names come from models and files: none of them is markup."""
        lines = "\n".join(map(_marked, _lines(self)))
        return f'<pre style="white-space:pre;overflow-x:auto">{lines}</pre>'


def _lines(result: object) -> Iterable[str]:
    for module in rendered_in:
        import_module(module)
    return map(printable, lines_of(result))


def colored(line: str, ink: Callable[[str, str, str], str], plain: Callable[[str], str] = str) -> str:
    """A line whose start has a colour. ink: makes it of the start, and its two colours; plain: the rest."""
    for pattern, terminal, page in INKS:
        if found := pattern.match(line):
            return ink(found[0], terminal, page) + plain(line[found.end() :])
    return plain(line)


def _marked(line: str) -> str:
    """A line as HTML."""
    return colored(
        line, lambda start, _, page: f'<span style="color:{page}">{html.escape(start)}</span>', html.escape
    )
