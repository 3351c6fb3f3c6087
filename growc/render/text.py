"""Numbers and columns as a person reads them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from growc.errors.printable import printable
from growc.errors.shown import colored


def on_terminal(line: str) -> str:
    """The line as a terminal shows it."""
    return colored(line, lambda start, terminal, _: f"{terminal}{start}\033[0m")


SNIPPET = re.compile(r"^ *(\x1b\[[0-9;]*m)*[0-9]* *\|")
"""How a line begins that shows a recipe: carets below it say a place."""


def fitted(line: str, width: int) -> list[str]:
    """A line as several of at most `width` characters, but for words that are longer; those behind the first
    are indented. Rows of tables break between their columns.
    """
    if len(line) <= width or SNIPPET.match(line):
        return [line]
    indent = " " * (len(line) - len(line.lstrip()))
    rows, behind = [""], indent + " " * 4
    for cell in re.split(r" {3,}", line.strip()):
        joined = f"{rows[-1]}   {cell}" if rows[-1] else indent + cell
        rows = [*rows[:-1], joined] if len(joined) <= width or not rows[-1] else [*rows, behind + cell]
    return [part for row in rows for part in _wrapped(row, width, behind)]


def _wrapped(row: str, width: int, behind: str) -> list[str]:
    """A row by its words."""
    return wrap(row, width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False)


def count(n: int) -> str:
    """A number of parameters, decimal: 124.4M; in full below ten thousand."""
    units = (("B", 10**9), ("M", 10**6), ("K", 10**3)) if n >= 10**4 else ()
    return next((f"{n / size:.1f}{unit}" for unit, size in units if n >= size), str(n))


def short(x: float) -> str:
    """A difference: 1.1e-06, or 0."""
    return f"{x:.1e}" if x else "0"


def many(n: int, what: str) -> str:
    """`1 weight`, `3 weights`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def table(rows: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    """Rows with their columns under each other; `align` has `<` or `>` for each column."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{align[i : i + 1] or '<'}{widths[i]}}" for i, cell in enumerate(row)]
        yield "   ".join(cells).rstrip()


def cut(text: str, room: int) -> str:
    """A text with its middle left out, where it is longer than there is room for; as it is printed."""
    text = printable(text)
    behind = (room - 1) // 2
    return text if len(text) <= room else f"{text[: room - 1 - behind]}…{text[len(text) - behind :]}"
