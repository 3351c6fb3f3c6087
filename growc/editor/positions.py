"""Places in a text as the language server protocol counts them: lines, and units of an encoding, from 0."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from dataclasses import dataclass
from functools import cached_property

from lsprotocol.types import Position, PositionEncodingKind, Range

from growc.errors.source import LINE_END

CODECS = {
    PositionEncodingKind.Utf8: ("utf-8", 1),
    PositionEncodingKind.Utf16: ("utf-16-le", 2),
    PositionEncodingKind.Utf32: ("utf-32-le", 4),
}
"""Python's name of each encoding, and the bytes of one of its units."""


@dataclass(frozen=True)
class Positions:
    """Offsets in a text as positions, and back. Lines end where the protocol says, which is where a recipe's
    do; a byte order mark is a character as any other.

    >>> Positions("# 🌱\\r\\nwiden ffn").position(4)
    Position(line=0, character=4)
    """

    text: str
    encoding: PositionEncodingKind | str = PositionEncodingKind.Utf16

    @cached_property
    def _lines(self) -> list[tuple[int, int]]:
        """The start of each line, and the end of its text."""
        ends = list(LINE_END.finditer(self.text))
        starts = [0, *(end.end() for end in ends)]
        return list(zip(starts, [*(end.start() for end in ends), len(self.text)], strict=True))

    def _units(self, start: int, end: int) -> int:
        """The number of encoding units between two offsets."""
        codec, size = CODECS[PositionEncodingKind(self.encoding)]
        return len(self.text[start:end].encode(codec, "surrogatepass")) // size

    def position(self, offset: int) -> Position:
        """The position of an offset; an offset inside a line's end is moved to the end of the line."""
        line = bisect_right(self._lines, offset, key=lambda bounds: bounds[0]) - 1
        start, end = self._lines[line]
        return Position(line, self._units(start, min(offset, end)))

    def offset(self, position: Position) -> int:
        """The offset of a position; a position outside of the text is moved to the nearest one in it."""
        if position.line >= len(self._lines):
            return len(self.text)
        start, end = self._lines[position.line]
        offsets = range(start, end)
        return start + bisect_left(offsets, position.character, key=lambda offset: self._units(start, offset))

    def range(self, start: int, end: int) -> Range:
        """The range between two offsets."""
        return Range(self.position(start), self.position(end))

    @property
    def whole(self) -> Range:
        """The range of the whole text."""
        return self.range(0, len(self.text))
