"""Positions of the language server protocol: every offset of a text has one, and comes back."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol.types import Position

from growc.editor.positions import CODECS, Positions
from growc.errors.source import LINE_END

TEXTS = st.text(st.sampled_from("a\r\n\t\f\v\u2028\x85é🌱\ufeff\ud800\udc00"), max_size=30)


@given(TEXTS, st.sampled_from(list(CODECS)))
def test_every_offset_comes_back(text, encoding):
    places = Positions(text, encoding)
    inside = {end.start() + 1 for end in LINE_END.finditer(text) if end[0] == "\r\n"}
    for offset in range(len(text) + 1):
        if offset not in inside:
            assert places.offset(places.position(offset)) == offset


@given(TEXTS, st.integers(0, 40), st.integers(0, 40))
def test_every_position_is_in_the_text(text, line, character):
    assert 0 <= Positions(text).offset(Position(line, character)) <= len(text)


@pytest.mark.parametrize(
    ("text", "offset", "line", "character"),
    [
        ("", 0, 0, 0),
        ("🌱a", 1, 0, 2),
        ("\ufeffa", 1, 0, 1),
        ("a\r\nb", 2, 0, 1),
        ("a\rb", 2, 1, 0),
        ("a\u2028b", 3, 0, 3),
        ("a\n", 2, 1, 0),
    ],
)
def test_lines_and_columns_are_those_of_the_protocol(text, offset, line, character):
    assert Positions(text).position(offset) == Position(line, character)


def test_amid_a_character_is_at_its_end():
    assert Positions("🌱a").offset(Position(0, 1)) == 1
