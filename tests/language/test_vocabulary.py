"""The words of the tables stand in the language and in its page."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
from graphs import ROOT

from growc import grammar
from growc.errors.source import SourceText
from growc.recipe.fills import FILLS, LAYER_FILLS
from growc.recipe.layer_orders import DEEPER, SHALLOWER
from growc.recipe.option_rules import GROWING, SHRINKING, OptionRule
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.syntax_tree import ROLES
from growc.recipe.versions import ADDITIONS

PAGE = ROOT / "docs/language.md"


def with_table(text: str, first: str, rows: list[tuple[str, ...]]) -> str:
    """A page with these rows in the table whose first column has this head."""
    lines = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    head = rf"(^\| {first} \|.*\n\|[ |-]*\|\n)(?:\|.*\n)*"
    made, found = re.subn(head, lambda table: table[1] + lines, text, flags=re.M)
    assert found == 1
    return made


def _filled(option: OptionRule) -> str:
    return " ".join("2" if word == option.takes else word for word in option.spelling.split())


LINES = [
    *(f"expect {role} == 8" for role in ROLES),
    *(f"widen ffn to 8 with {fill.spelling}" for fill in FILLS.values()),
    *(f"widen ffn to 8 with tail copy {_filled(option)}" for option in GROWING.values()),
    *(f"subclone ffn to 8 by magnitude {_filled(option)}" for option in SHRINKING.values()),
    *(f"subclone kv_heads to 8 by {ranking.spelling}" for ranking in RANKINGS.values()),
    *(f"stack layers to 8 by {order.spelling}" for order in DEEPER.values()),
    *(f"stack layers to 8 by last with {fill.spelling} seed 3" for fill in LAYER_FILLS.values()),
    *(f"subclone layers to 8 by {order.spelling}" for order in SHALLOWER.values()),
    *(
        f'match "a.onnx" with zero fill layers by {order.spelling}'
        for order in {**SHALLOWER, **DEEPER}.values()
    ),
]


@pytest.mark.parametrize("line", LINES)
def test_every_word_of_the_tables_is_read_and_printed(line):
    assert grammar.format(grammar.parse(SourceText("-e", line))) == f"{line}\n"


def compared(path: Path) -> set[str]:
    """The names of fills in a file, and the words of other tables that it compares a name with."""
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    found = {n.value for n in nodes if isinstance(n, ast.Constant) and n.value in FILLS}
    for node in nodes:
        if (
            isinstance(node, ast.Compare)
            and isinstance(node.left, ast.Attribute)
            and node.left.attr == "name"
        ):
            strings = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant)}
            found |= strings & {*RANKINGS, *DEEPER, *SHALLOWER}
    return found


def test_rows_alone_know_words_by_their_names():
    files = (path for folder in ("growc", "passes", "grammar") for path in (ROOT / folder).rglob("*.py"))
    named = {path.relative_to(ROOT).as_posix() for path in files if compared(path)}
    assert named == {"growc/recipe/fills.py"}


def test_a_word_would_be_seen(tmp_path):
    text = """if fill == "zero fill" or ranking.name in ("first", "keep") or node.name == "to": pass"""
    (tmp_path / "pass.py").write_text(text)
    assert compared(tmp_path / "pass.py") == {"zero fill", "first", "keep"}


def test_the_page_of_the_language_lists_the_words(golden):
    text = PAGE.read_text(encoding="utf-8")
    fills = [(f"`{fill.name}`", fill.making, fill.reading, fill.source) for fill in FILLS.values()]
    up, down = (
        [(f"`{order.spelling}`", order.meaning) for order in orders.values()]
        for orders in (DEEPER, SHALLOWER)
    )
    rankings = [(f"`{ranking.spelling}`", ranking.meaning) for ranking in RANKINGS.values()]
    text = with_table(text, "fill", fills)
    text = with_table(text, "deeper", up)
    text = with_table(text, "shallower", down)
    text = with_table(text, "ranking", rankings)
    additions = [(f"`{addition.name}`", addition.version) for addition in ADDITIONS]
    golden(PAGE, with_table(text, "what came later", additions))
