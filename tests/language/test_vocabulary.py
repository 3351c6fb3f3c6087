"""What tables of words say stands in the language and in its page."""

from __future__ import annotations

import re

import pytest
from graphs import ROOT

from growc import grammar
from growc.fills import FILLS
from growc.source import Source

PAGE = ROOT / "docs/language.md"


def table(text: str, first: str, rows: list[tuple[str, ...]]) -> str:
    """A page with other rows in the table of which this is the first column's head."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    head = rf"(^\| {first} \|.*\n\|[ |-]*\|\n)(?:\|.*\n)*"
    made, found = re.subn(head, lambda table: table[1] + lines, text, flags=re.M)
    assert found == 1
    return made


@pytest.mark.parametrize("fill", FILLS)
def test_a_fill_is_read_and_printed(fill):
    line = f"widen ffn to 8 with {fill}\n"
    assert grammar.format(grammar.parse(Source("-e", line))) == line


def test_the_page_of_the_language_lists_the_fills(golden):
    rows = [(f"`{fill.name}`", fill.making, fill.reading, fill.source) for fill in FILLS.values()]
    golden(PAGE, table(PAGE.read_text(encoding="utf-8"), "fill", rows))
