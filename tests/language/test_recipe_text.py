"""From text to recipe and back: nothing is lost, nothing crashes, and whatever is wrong has a place."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recipes import expressions, recipes

from growc import grammar as language
from growc.errors.diagnostic import GrowError, render, to_json
from growc.errors.source import SourceText
from growc.grammar import parse, parse_expression
from growc.grammar.messages import FORMS, KINDS, NAMED
from growc.grammar.parser import grammar, keywords
from growc.recipe.expression import SizeName, evaluate, replaced, spell
from growc.recipe.syntax_tree import ROLES, Blank, Comment, RecipeTree, Scoped, Widen

ROOT = Path(__file__).parents[2]

SAMPLE = """\
# A bit of everything.
let width = 1024  # the default
in encoder { widen ffn to 4 * width with tail copy noise 1e-2 on copies }

in layers 0..6 {  # the lower half
    widen heads to (heads +
        4) with average fill in blocks of 2
    in "*.attn" { untie head }
}
measure importance on "data.npz" samples 1K
subclone ffn to ffn / 2 by importance rescaled in norms
arrange layers as 0..8, 4..12, -1 \\
    with zero outputs
match "large.json" with zero fill seed 3 layers by top 3 smaller by random seed 4
expect parameters <= 355M
expect preserved within 1e-5
"""


def text(string: str) -> SourceText:
    return SourceText("recipe.grow", string)


def contract_examples() -> list[str]:
    """The examples of the two pages of the language: fenced as recipes, or fenced and begin like one."""
    pages = (ROOT / "docs" / name for name in ("language.md", "language-details.md"))
    fenced = [block for page in pages for block in page.read_text(encoding="utf-8").split("```")[1::2]]
    return [block.partition("\n")[2] for block in fenced if block.startswith(("\n#", "grow\n"))]


@given(recipes)
def test_a_printed_recipe_reads_back_as_itself(recipe):
    assert parse(text(language.format(recipe))) == recipe


@given(recipes)
def test_formatting_twice_is_formatting_once(recipe):
    once = language.format(recipe)
    assert language.format(parse(text(once))) == once


@given(expressions)
def test_a_printed_expression_reads_back_as_itself(expr):
    assert parse_expression(text(spell(expr))) == expr


@given(st.lists(st.sampled_from([*SAMPLE.splitlines(), "", "  ", "# note", "untie head # why", "\t"])))
def test_formatting_loses_no_comment_and_no_paragraph(lines):
    source = text("\n".join(lines))
    try:
        recipe = parse(source)
    except GrowError:
        return
    shown = language.format(recipe)
    assert shown.count("#") == source.text.count("#")
    assert "\n\n\n" not in shown
    assert parse(text(shown)) == recipe
    assert language.format(parse(text(shown))) == shown


def judged(source: SourceText) -> None:
    """Parse; whatever is wrong has a place, and can be shown."""
    try:
        parse(source)
    except GrowError as error:
        for diagnostic in error.diagnostics:
            assert diagnostic.span is not None
            assert diagnostic.span.source == source
            assert 0 <= diagnostic.span.start <= diagnostic.span.end <= len(source.text)
            assert render(diagnostic)
            assert to_json(diagnostic)["line"] >= 1


@given(st.text())
def test_any_text_is_a_recipe_or_has_mistakes_with_a_place(string):
    judged(text(string))


WORDS = sorted(
    {*keywords().values(), *ROLES, "1", "0.5", "9" * 30, "12x", '"a"', '"', "x", "\n", "\r", "#", "\\\n"}
)


@given(st.lists(st.sampled_from(WORDS)))
def test_any_words_are_a_recipe_or_have_mistakes_with_a_place(words):
    judged(text(" ".join(words)))


@settings(max_examples=300)
@given(st.data())
def test_a_recipe_with_a_slip_has_mistakes_with_a_place(data):
    start = data.draw(st.integers(0, len(SAMPLE)))
    end = data.draw(st.integers(start, min(len(SAMPLE), start + 8)))
    inserted = data.draw(st.sampled_from([*WORDS, ""]) | st.text(max_size=3))
    judged(text(SAMPLE[:start] + inserted + SAMPLE[end:]))


@pytest.mark.parametrize("line_end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("mark", ["", "\ufeff"])
def test_line_ends_and_a_byte_order_mark_make_no_difference(line_end, mark):
    assert parse(text(mark + SAMPLE.replace("\n", line_end))) == parse(text(SAMPLE))
    assert parse(text(mark + SAMPLE.rstrip().replace("\n", line_end))) == parse(text(SAMPLE))


@pytest.mark.parametrize("string", ["", "\n", "\ufeff", "   ", "\n\n# only words", "\\", "# a\\\n"])
def test_a_text_without_statements_is_the_identity(string):
    assert all(isinstance(item, Comment | Blank) for item in parse(text(string)).body)


def test_several_texts_are_read_one_after_the_other():
    recipe = parse(SourceText("-e", "untie head"), SourceText("-e", "expect exact"))
    assert recipe == parse(text("untie head\nexpect exact"))


def test_neighbours_are_aligned_and_everything_else_has_single_spaces():
    source = """
widen   hidden to 2*(hidden) with tail copy
widen ffn to 12 with zero fill# why

in   encoder{widen ffn to 8 with zero fill}
subclone hidden to 12 by first
subclone layers to 2 by middle


expect hidden==12
"""
    assert language.format(parse(text(source))) == (
        "widen hidden to 2 * hidden with tail copy\n"
        "widen ffn    to 12         with zero fill  # why\n"
        "\n"
        "in encoder {\n"
        "    widen ffn to 8 with zero fill\n"
        "}\n"
        "subclone hidden to 12 by first\n"
        "subclone layers to 2 by middle\n"
        "\n"
        "expect hidden == 12\n"
    )


def test_a_comment_inside_a_statement_moves_in_front_of_it():
    source = "expect ffn == (1 + # one\n    2)  # three\n"
    assert language.format(parse(text(source))) == "# one\nexpect ffn == 1 + 2  # three\n"


def test_numbers_keep_the_spelling_of_integers_and_the_shortest_of_others():
    source = "expect parameters <= 1.5B\nexpect preserved within 0.00001\n"
    assert language.format(parse(text(source))) == "expect parameters <= 1.5B\nexpect preserved within 1e-5\n"
    assert parse_expression(text("1.5B")) == parse_expression(text("1500M"))


@pytest.mark.parametrize(
    ("string", "value"),
    [
        ("7 - 2 - 1", 4),
        ("24 / 4 / 2", 3),
        ("2 + 3 * 4", 14),
        ("(2 + 3) * 4", 20),
        ("-2 * 3", -6),
        ("2 * -3", -6),
        ("--2", 2),
        ("-7 / 7", -1),
        ("min(3, max(1, 2)) + 1K", 1002),
        ("2 * hidden / 3", 512),
        ('axis 0 of "a" - 1', 767),
    ],
)
def test_expressions_come_to_what_arithmetic_says(string, value):
    assert evaluate(parse_expression(text(string)), lambda axis: 768) == value


def test_a_quotient_that_the_model_decides_is_the_model_s_affair():
    def status(string: str) -> int:
        with pytest.raises(GrowError) as caught:
            evaluate(parse_expression(text(string)), lambda axis: 10)
        return caught.value.exit_status

    assert [status("10 / 3"), status("hidden / 3"), status("hidden / (hidden - 10)")] == [2, 3, 3]


def test_an_expression_is_read_from_where_it_starts():
    source = SourceText("-p", "width=2 * hiddn")
    expr = parse_expression(source, 6)
    assert [expr.span.text, expr.span.column] == ["2 * hiddn", 7]


@given(expressions)
def test_putting_names_in_the_place_of_themselves_changes_nothing(expr):
    assert replaced(expr, SizeName, lambda axis: axis) == expr


def test_statements_know_where_they_stand():
    source = text("\ufeff# x\r\n  widen ffn to 8 \\\r\n with zero fill # y\r\n")
    statement = parse(source).body[1]
    assert isinstance(statement, Widen)
    assert str(statement.span) == "recipe.grow:2:3"
    assert [statement.axis.span.text, statement.size.span.text, statement.fill.span.text] == [
        "ffn",
        "8",
        "zero fill",
    ]


def test_comments_stand_where_they_were_written():
    body = parse(text("in encoder { # a\n# b\n\nuntie head # c\n} # d\n")).body
    assert isinstance(body[0], Scoped)
    kinds = [(item.text, item.trailing) for item in body[0].body if isinstance(item, Comment)]
    assert kinds == [(" a", True), (" b", False), (" c", True)]
    assert Blank() in body[0].body
    assert body[1] == Comment(" d", True)


def test_messages_speak_of_terminals_that_there_are():
    terminals = {terminal.name for terminal in grammar().terminals} | {"$END"}
    assert {name for kind in KINDS for name in kind.terminals} <= terminals
    assert NAMED.keys() <= terminals
    assert {verb.upper() for verb in FORMS} <= terminals


@pytest.mark.parametrize("example", contract_examples(), ids=lambda example: example.splitlines()[0])
def test_the_examples_of_the_reference_are_recipes(example):
    written = example.replace("\\\n", "")  # a line that goes on
    assert "".join(language.format(parse(text(example))).split()) == "".join(written.split())


def test_there_are_examples_in_the_reference():
    assert len(contract_examples()) >= 29


def test_an_empty_recipe_prints_as_nothing():
    assert language.format(RecipeTree()) == ""
