"""Numbers and columns as readable text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from growc.errors.display import colored
from growc.errors.printable import printable


def on_terminal(line: str) -> str:
    """Return the line as a terminal shows it."""
    return colored(line, lambda start, terminal, _: f"{terminal}{start}\033[0m")


SNIPPET = re.compile(r"^ *(\x1b\[[0-9;]*m)*[0-9]* *\|")
"""The start of a line that quotes a recipe: carets below it mark a place."""


def fitted(line: str, width: int) -> list[str]:
    """Return a line as several lines of at most `width` characters. Longer words stay whole.

    All lines but the first are indented. Rows of tables break between their columns.
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
    """Return a row as lines, broken between words."""
    return wrap(row, width, subsequent_indent=behind, break_long_words=False, break_on_hyphens=False)


def count(n: int) -> str:
    """Return a number of parameters, decimal: 124.4M; in full below ten thousand."""
    units = (("B", 10**9), ("M", 10**6), ("K", 10**3)) if n >= 10**4 else ()
    return next((f"{n / size:.1f}{unit}" for unit, size in units if n >= size), str(n))


def short(x: float) -> str:
    """Return a difference: 1.1e-06, or 0."""
    return f"{x:.1e}" if x else "0"


def many(n: int, what: str) -> str:
    """Return `1 weight`, `3 weights`."""
    return f"{n} {what}" if n == 1 else f"{n} {what}s"


def table(rows: Iterable[Sequence[str]], align: str = "") -> Iterator[str]:
    """Yield rows with aligned columns. `align` has `<` or `>` for each column."""
    rows = list(rows)
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = [f"{cell:{align[i : i + 1] or '<'}{widths[i]}}" for i, cell in enumerate(row)]
        yield "   ".join(cells).rstrip()


def cut(text: str, room: int) -> str:
    """Return a text as it is printed, with its middle left out if it is longer than `room`."""
    text = printable(text)
    behind = (room - 1) // 2
    return text if len(text) <= room else f"{text[: room - 1 - behind]}…{text[len(text) - behind :]}"
