"""The prose of the code: no sentence begins with a word that puts its subject last."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest
from graphs import ROOT

INVERTED = re.compile(r"(?:^|[.:!?]\s+|\n\n)\s*(?P<start>What|Those that|Of which|Whatever)\b")
"""The beginning of a sentence that has a clause for its subject."""

FILES = [path for folder in ("growc", "passes", "grammar") for path in sorted((ROOT / folder).rglob("*.py"))]


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file, with their lines."""
    text = path.read_text(encoding="utf-8")
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield node.lineno, said
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("folder", ["growc", "passes", "grammar"])
def test_no_sentence_of_the_code_begins_with_a_clause_for_a_subject(folder: str) -> None:
    inside = [path for path in FILES if path.is_relative_to(ROOT / folder)]
    places = [
        f"{path.relative_to(ROOT)}:{line}: {match['start']}"
        for path in inside
        for line, text in prose(path)
        for match in INVERTED.finditer(text)
    ]
    assert inside
    assert not places


def test_an_inverted_sentence_is_found() -> None:
    assert INVERTED.search("A map. What is read stays.")
    assert INVERTED.search("Those that grow are copied.")
    assert not INVERTED.search("It says what is read.")
