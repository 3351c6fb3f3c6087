"""The origin of text: named sources, and spans in them."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

RECIPE_SUFFIX = ".grow"
"""The ending of a recipe's file."""

BOM = "\ufeff"
LINE_END = re.compile(r"\r\n?|\n")


@dataclass(frozen=True)
class SourceText:
    r"""A text and the name that a person knows it by: a path as it was given, `<stdin>`, `-e`, `-p`.

    >>> source = SourceText("double.grow", "widen ffn to 2 * ffn with tail copy\nuntie head\n")
    >>> source.line(2)
    'untie head'
    """

    name: str
    text: str = field(repr=False)
    private: bool = False
    """Whether no part of the text may be shown, since an include may lead to a file that is no recipe."""

    @property
    def folder(self) -> Path:
        """The folder to which paths in the text are relative; the working directory if it is no file."""
        return Path(self.name).parent

    def position(self, offset: int) -> tuple[int, int]:
        """The line and the column of an offset, both from 1; a byte order mark takes no column."""
        line = max(bisect_right(self._starts, offset), 1)
        return line, max(offset - self._starts[line - 1], 0) + 1

    def line(self, number: int) -> str:
        """The text of a line, counted from 1, without its end."""
        start = self._starts[number - 1]
        end = LINE_END.search(self.text, start)
        return self.text[start : end.start() if end else len(self.text)]

    @cached_property
    def _starts(self) -> Sequence[int]:
        first = len(BOM) if self.text.startswith(BOM) else 0
        return [first, *(end.end() for end in LINE_END.finditer(self.text))]


@dataclass(frozen=True)
class Span:
    """A range of characters in a source, by offsets; an empty one is between two characters."""

    source: SourceText
    start: int
    end: int

    @property
    def line(self) -> int:
        """The line on which the span starts, from 1."""
        return self.source.position(self.start)[0]

    @property
    def column(self) -> int:
        """The column in which the span starts, from 1, counted in characters."""
        return self.source.position(self.start)[1]

    @property
    def text(self) -> str:
        """The characters in the span."""
        return self.source.text[self.start : self.end]

    def __str__(self) -> str:
        return f"{self.source.name}:{self.line}:{self.column}"


NOWHERE = Span(SourceText("", ""), 0, 0)
"""The span of a node that no user wrote, but a program made."""
