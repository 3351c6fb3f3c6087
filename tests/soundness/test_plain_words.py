"""Names and prose: no name for two classes, no sentence that begins with a clause for a subject."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from graphs import ROOT

INVERTED = re.compile(r"(?:^|[.:!?]\s+|\n\n)\s*(?P<start>What|Those that|Of which|Whatever|Who)\b")
"""The beginning of a sentence that has a clause for its subject."""

TREES = {
    "growc": "growc/**/*.py",
    "passes": "passes/**/*.py",
    "grammar": "grammar/**/*.py",
    "tests": "tests/**/*.py",
    "benchmarks": "benchmarks/**/*.py",
    "examples": "examples/**/*.py",
    "docs": "docs/**/*.md",
    "pages of examples": "examples/**/*.md",
    "pages of errors": "growc/errors/*.md",
    "pages at the root": "*.md",
}


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """The docstrings and comments of a file, with their lines; a page whole."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        yield 1, text
        return
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                yield node.lineno, said
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")


@pytest.mark.parametrize("tree", TREES.values(), ids=TREES)
def test_no_sentence_begins_with_a_clause_for_a_subject(tree: str) -> None:
    inside = sorted(ROOT.glob(tree))
    places = [
        f"{path.relative_to(ROOT)}:{line + text.count(chr(10), 0, match.start())}: {match['start']}"
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


def types_named(path: Path) -> Iterator[str]:
    """The classes of a module, and its names for types that have none. Variables of types are neither."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name):
                yield name
            case ast.Assign(value=ast.Call(func=ast.Name(id="TypeVar"))):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) if name[0].isupper() and not name.isupper():
                yield name


def test_no_name_of_a_type_stands_for_two_things() -> None:
    homes: dict[str, list[str]] = defaultdict(list)
    for tree in ("growc", "passes", "grammar"):
        for path in sorted(ROOT.glob(TREES[tree])):
            for name in types_named(path):
                homes[name].append(str(path.relative_to(ROOT)))
    assert len(homes) > 500
    assert {name: paths for name, paths in homes.items() if len(paths) > 1} == {}
