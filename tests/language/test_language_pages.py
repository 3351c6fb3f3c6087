"""The two pages of the language: examples are planned, statements have some, sections lead to each other."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest
from graphs import ROOT

from growc import api, grammar
from growc.errors.source import SourceText
from growc.recipe.syntax_tree import Blank, Comment, Item, Scoped, Statement

REFERENCE, DETAILS = "language.md", "language-details.md"
EXAMPLE = re.compile(r"^(?:<!-- on (?P<model>\S+) -->\n)?```grow\n(?P<text>.*?)^```$", re.S | re.M)
HEADING = re.compile(r"^#+ (.+)$", re.M)
FILES = (
    "demo.grow",
    "24-subcloning/calibration.npz",
    "26-reorder/digits.npz",
    *(f"models/{path.name}" for path in (ROOT / "examples/models").glob("*.onnx")),
)
"""Files that examples read, in examples/."""
PLANNED = [
    found for found in EXAMPLE.finditer((ROOT / "docs" / REFERENCE).read_text("utf-8")) if found["model"]
]


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def anchors(text: str) -> list[str]:
    """The addresses of the sections of a page, as GitHub and the site make them."""
    titles = HEADING.findall(re.sub(r"^```.*?^```$", "", text, flags=re.S | re.M))
    return [re.sub(r"\s+", "-", re.sub(r"[^\w\s-]", "", title.lower())) for title in titles]


@pytest.mark.parametrize("example", PLANNED, ids=lambda found: found["text"].splitlines()[0])
def test_an_example_of_the_reference_is_planned(example: re.Match[str], tmp_path: Path, monkeypatch):
    for file in FILES:
        (tmp_path / Path(file).name).symlink_to(ROOT / "examples" / file)
    monkeypatch.chdir(tmp_path)
    Path("recipe.grow").write_text(example["text"])
    plan = api.plan(Path("recipe.grow"), Path(f"{example['model']}.onnx"))
    assert plan.certificate.exact or "expect exact" not in example["text"]


def test_every_statement_has_an_example_that_is_planned():
    assert {kind for example in PLANNED for kind in kinds(example["text"])} == {*get_args(Statement), Scoped}


def kinds(text: str) -> set[type]:
    """The classes of the statements of a recipe, inside of scopes too."""
    found: set[type] = set()
    waiting: list[Item] = list(grammar.parse(SourceText("-e", text)).body)
    while waiting:
        item = waiting.pop()
        found |= set() if isinstance(item, Comment | Blank) else {type(item)}
        waiting += item.body if isinstance(item, Scoped) else ()
    return found


def test_sections_lead_to_their_details_and_back():
    reference, details = page(REFERENCE), page(DETAILS)
    assert len(anchors(reference)) == len(set(anchors(reference)))
    there, told = anchors(reference), anchors(details)[1:]
    assert re.findall(r"^\[Details\]\(language-details\.md#(.+)\)$", reference, re.M) == told
    assert re.findall(r"^\[Reference\]\(language\.md#(.+)\)$", details, re.M) == told
    assert set(told) <= set(there)


@pytest.mark.parametrize("name", [REFERENCE, DETAILS])
def test_lines_are_short_but_for_tables(name: str):
    assert [line for line in page(name).splitlines() if len(line) > 120 and not line.startswith("|")] == []
