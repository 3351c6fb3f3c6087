"""Every mistake in a recipe, and what a person is told: golden/NAME.grow beside golden/NAME.txt."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from growc.errors.codes import CODES
from growc.errors.diagnostic import Diagnostic, GrowError, error_object, explain, render
from growc.errors.source import SourceText, Span
from growc.resolve.resolve import load

GOLDEN = Path(__file__).parent / "golden"
RECIPES = sorted(GOLDEN.glob("*.grow"))
ELSEWHERE = {"G200", "G213"}
"""Codes of the command line, which has tests of its own."""


def read(path: Path) -> str:
    """A text with its line ends as they are; growc reads relative to where the recipe stands."""
    with (GOLDEN / path).open(encoding="utf-8", newline="") as file:
        return file.read()


def mistakes(path: Path) -> GrowError:
    """The errors of a golden recipe; a first line `#: NAME=EXPR …` stands for `-p`."""
    text = read(Path(path.name))
    given = re.match(r"#: (.*)", text)
    params = dict(item.split("=") for item in given[1].split()) if given else {}
    with pytest.raises(GrowError) as caught:
        load([SourceText(path.name, text)], params, read)
    return caught.value


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_mistake_is_explained_as_agreed(path, golden):
    golden(path.with_suffix(".txt"), f"{mistakes(path)}\n")


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_a_mistake_in_a_recipe_has_a_place_and_exits_with_2(path):
    error = mistakes(path)
    assert error.exit_status == 2
    for diagnostic in error.diagnostics:
        span = diagnostic.span
        assert span is not None
        assert 0 <= span.start <= span.end <= len(span.source.text)


def test_every_code_that_a_recipe_can_raise_has_a_golden_file():
    seen = {diagnostic.code for path in RECIPES for diagnostic in mistakes(path).diagnostics}
    assert seen == {code for code in CODES if code < "G3"} - ELSEWHERE


def test_every_golden_file_belongs_to_a_recipe():
    assert {path.stem for path in GOLDEN.glob("*.txt")} == {path.stem for path in RECIPES}


def test_several_mistakes_come_in_the_order_of_reading():
    lines = [diagnostic.span.line for diagnostic in mistakes(GOLDEN / "many-mistakes.grow").diagnostics]
    assert lines == sorted(lines)
    assert len(set(lines)) == 7


def test_texts_of_the_command_line_are_judged_one_after_the_other():
    sources = [SourceText("-e", "widen hiden to 8 with tail copy"), SourceText("-e", "untie haed")]
    with pytest.raises(GrowError) as caught:
        load(sources, {})
    assert [d.span.source for d in caught.value.diagnostics] == sources


def test_json_shows_the_first_error_and_all():
    found = error_object(mistakes(GOLDEN / "option-twice.grow"))
    assert found["error"] == found["errors"][0]
    assert json.loads(json.dumps(found)) == found
    assert found["error"] == {
        "code": "G204",
        "message": "`seed 1` stands here twice",
        "file": "option-twice.grow",
        "line": 1,
        "column": 54,
        "end_line": 1,
        "end_column": 60,
        "notes": ["option-twice.grow:1:34: the first one"],
        "help": "",
    }


def test_the_end_of_an_error_in_json_may_stand_in_another_line():
    with pytest.raises(GrowError) as caught:
        load([SourceText("r.grow", "\ufeffwiden ffn to (8 -\r\n  8) / 0 with tail copy\n")], {})
    error = error_object(caught.value)["error"]
    assert [error[key] for key in ("line", "column", "end_line", "end_column")] == [2, 8, 2, 9]
    with pytest.raises(GrowError) as caught:
        load([SourceText("r.grow", "widen ffn to (3 -\r\n  8) with tail copy\n")], {})
    error = error_object(caught.value)["error"]
    assert [error[key] for key in ("line", "column", "end_line", "end_column")] == [1, 15, 2, 4]


def test_of_several_errors_the_status_is_the_lowest_of_2_and_3():
    def status(*codes: str) -> int:
        return GrowError(*(Diagnostic(code, "…") for code in codes)).exit_status

    assert [status("G302", "G101"), status("G302", "G401"), status("G401")] == [2, 3, 1]
    assert [status("G501"), status("G900")] == [4, 70]


def test_a_diagnostic_without_a_place_is_a_line_and_its_remarks():
    diagnostic = Diagnostic(
        "G501", "`out.onnx` exists", notes=("growc did not make it",), help="use `--force`"
    )
    assert render(diagnostic).splitlines() == [
        "error[G501]: `out.onnx` exists",
        "  = note: growc did not make it",
        "  = help: use `--force`",
    ]


def test_colours_change_nothing_but_colours():
    for path in RECIPES:
        for diagnostic in mistakes(path).diagnostics:
            assert re.sub(r"\x1b\[[0-9;]*m", "", render(diagnostic, color=True)) == render(diagnostic)


def test_the_caret_stands_under_the_words_whatever_their_width():
    source = SourceText("wide.grow", 'include\t"模型" now\n')
    start = source.text.index("now")
    shown = render(Diagnostic("G104", "…", Span(source, start, start + 3))).splitlines()
    assert shown[3:] == ['1 | include "模型" now', "  |                ^^^"]


def test_related_places_stand_in_the_same_snippet_or_in_one_of_their_own():
    here, there = SourceText("a.grow", "one\ntwo\nthree\n"), SourceText("b.grow", "four\n")
    related = ((Span(here, 0, 3), "first"), (Span(there, 0, 4), "elsewhere"))
    shown = render(Diagnostic("G301", "…", Span(here, 8, 13), "this", related=related))
    assert shown.splitlines()[1:] == [
        "  --> a.grow:3:1",
        "  |",
        "1 | one",
        "  | --- first",
        "...",
        "3 | three",
        "  | ^^^^^ this",
        "  ::: b.grow:1:1",
        "  |",
        "1 | four",
        "  | ---- elsewhere",
    ]


def test_control_characters_never_reach_the_terminal():
    source = SourceText("x.grow", "untie \x1b[31mhead")
    with pytest.raises(GrowError) as caught:
        load([source], {})
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("code", CODES)
def test_every_code_can_be_explained(code):
    page = explain(code)
    assert page.startswith(f"{code}: {CODES[code].title} (exit status {CODES[code].status})\n\n")
    assert CODES[code].explanation.strip()


def test_a_code_that_is_none_is_a_mistake_on_the_command_line():
    with pytest.raises(GrowError) as caught:
        explain("G999")
    assert caught.value.exit_status == 2


def test_an_unread_include_does_not_blame_parameters():
    with pytest.raises(GrowError) as caught:
        load([SourceText("a.grow", 'include "none.grow"')], {"width": "3"})
    assert [d.code for d in caught.value.diagnostics] == ["G207"]


def test_a_recipe_that_is_no_text_cannot_be_included(tmp_path):
    (tmp_path / "binary.grow").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(GrowError, match="is not text in UTF-8"):
        load([SourceText(str(tmp_path / "a.grow"), 'include "binary.grow"')], {})
