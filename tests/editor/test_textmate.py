"""The colours of words: the grammar of the VS Code extension is made of the language's own words."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from graphs import ROOT

from growc.editor.textmate import textmate
from growc.grammar.messages import FORMS
from growc.grammar.parser import keywords, tokenize
from growc.recipe.syntax_tree import ROLES

FOLDER = ROOT / "growc/editor/vscode"
FILE = FOLDER / "syntaxes/grow.tmLanguage.json"
COLORS = {
    "COMMENT": "comment.line.number-sign.grow",
    "STRING": "string.quoted.double.grow",
    "OPEN_STRING": "invalid.illegal.unclosed.grow",
    "INT": "constant.numeric.grow",
    "FLOAT": "constant.numeric.grow",
    "NAME": "variable.other.grow",
    "ROLE": "support.type.axis.grow",
    "MIN": "support.function.grow",
    "MAX": "support.function.grow",
}
RECIPES = [*sorted(ROOT.glob("examples/*/*.grow")), *sorted(ROOT.glob("tests/language/golden/*.grow"))]


def test_the_grammar_of_the_extension_is_up_to_date(golden):
    golden(FILE, textmate())


def colored(line: str) -> Iterator[tuple[int, str, str]]:
    """Where each part of a line begins, the part, and its colour, as an editor finds them."""
    patterns = [(re.compile(one["match"]), one) for one in json.loads(FILE.read_text("utf-8"))["patterns"]]
    place = 0
    while found := [
        (match.start(), number, match, one)
        for number, (pattern, one) in enumerate(patterns)
        if (match := pattern.search(line, place)) and match.end() > place
    ]:
        _, _, match, one = min(found, key=lambda each: each[:2])
        for group, capture in one.get("captures", {"0": one}).items():
            yield match.start(int(group)), match[int(group)], capture["name"]
        place = match.end()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_every_word_has_the_colour_of_its_kind(path: Path):
    for line in re.split(r"\r\n?|\n", path.read_text(encoding="utf-8")):
        colors = {start: (part, color) for start, part, color in colored(line)}
        for token in tokenize(line):
            if token.type in ("STRAY", "BAD_NUMBER") or not token.strip("\ufeff") or token in "(){},=":
                continue
            part, color = colors[token.start_pos]
            assert part == token
            if color.startswith("entity.name"):
                assert line.split()[0] == "let"
            elif token.type in COLORS:
                assert color == COLORS[token.type]
            elif token in FORMS:
                assert color == "keyword.control.grow"
            elif token.isidentifier() and token in keywords().values() and token not in ROLES:
                assert color == "keyword.other.grow"


def test_the_extension_names_files_that_are_there():
    package = json.loads((FOLDER / "package.json").read_text("utf-8"))
    (language,), (grammar,) = package["contributes"]["languages"], package["contributes"]["grammars"]
    for name in (package["main"], language["configuration"], grammar["path"]):
        assert (FOLDER / name).is_file()
    assert json.loads((FOLDER / language["configuration"]).read_text("utf-8"))["comments"]
    assert grammar["scopeName"] == json.loads(FILE.read_text("utf-8"))["scopeName"]
