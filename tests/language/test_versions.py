"""`language VERSION`: what a recipe may say of the version that it is written in, and what that changes."""

from __future__ import annotations

import json

import pytest
from graphs import STREAM, save

import growc
from growc import api, grammar
from growc.errors.diagnostic import GrowError
from growc.errors.source import SourceText
from growc.formats.provenance import recipe_of
from growc.grammar.parser import keywords, later_words
from growc.recipe import versions
from growc.recipe.syntax_tree import ROLES, Untie
from growc.recipe.versions import ADDITIONS, FIRST_WORDS, VERSIONS, Addition
from growc.resolve.resolve import load


def refused(text: str) -> list[tuple[str, str]]:
    with pytest.raises(GrowError) as caught:
        api.recipe(text)
    return [(problem.code, problem.help) for problem in caught.value.diagnostics]


@pytest.fixture
def untying_is_new(monkeypatch):
    """As if `untie head` had come with 1.1."""
    added = Addition("1.1", "untie head", lambda node: isinstance(node, Untie))
    monkeypatch.setattr(versions, "ADDITIONS", (added,))


@pytest.mark.parametrize(("said", "read"), [("1", "1"), ("1.0", "1"), ("1.1", "1.1")])
def test_a_recipe_says_its_version_first(said, read):
    text = f"# a comment\n\nlanguage {said}\nuntie head\n"
    assert api.recipe(text).language == read
    assert (
        grammar.format(grammar.parse(SourceText("-e", text)))
        == f"# a comment\n\nlanguage {read}\nuntie head\n"
    )


def test_a_recipe_without_a_version_is_read_in_the_latest():
    assert api.recipe("untie head").language == VERSIONS[-1]


@pytest.mark.parametrize(
    "text",
    [
        "untie head\nlanguage 1",
        "in encoder {\n    language 1\n}",
        "language 1\nlanguage 1",
        'include "a.grow"\nlanguage 1',
    ],
)
def test_a_version_behind_a_statement_is_an_error(text):
    assert ("G104", "move it to the top of the recipe") in refused(text)


def test_a_version_that_growc_lacks_is_an_error_that_names_those_it_has():
    [(code, remedy)] = refused("language 7.5\nuntie head")
    assert code == "G209"
    assert all(f"{version}" in remedy for version in VERSIONS)


@pytest.mark.usefixtures("untying_is_new")
def test_a_later_statement_is_an_error_in_a_recipe_of_an_earlier_version():
    assert refused("language 1\nuntie head") == [("G209", "write `language 1.1`")]
    assert api.recipe("language 1.1\nuntie head").statements == api.recipe("untie head").statements


@pytest.mark.usefixtures("untying_is_new")
@pytest.mark.parametrize(
    ("outer", "inner", "good"), [("1", "1.1", True), ("1.1", "1", False), ("1", "", True)]
)
def test_a_version_holds_for_the_text_that_says_it(outer, inner, good):
    included = f"language {inner}\nuntie head" if inner else "untie head"
    source = SourceText("a.grow", f'language {outer}\ninclude "b.grow"\nwiden ffn to 8 with zero fill')
    if good:
        assert load([source], {}, lambda path: included).language == "1.1"
        return
    with pytest.raises(GrowError, match=r"came with language 1\.1"):
        load([source], {}, lambda path: included)


def test_the_first_words_are_words_of_the_language_and_later_ones_are_all_others():
    words = {word for word in keywords().values() if word.isidentifier()}
    assert words >= FIRST_WORDS
    assert {keywords()[name] for name in later_words()} == words - FIRST_WORDS


@pytest.mark.parametrize("word", sorted(keywords()[name] for name in later_words()))
def test_a_later_word_is_still_a_name(word):
    first = f"let {word} = 8\nlet twice = ({word} +\n  {word})\n"
    first += f"widen ffn to {word} * twice with zero fill seed {word}"
    other = first.replace(word, "plenty")
    assert api.recipe(first).statements == api.recipe(other).statements
    assert api.recipe(first, {word: "2"}).statements == api.recipe(other, {"plenty": "2"}).statements
    assert word not in ROLES


def test_every_addition_names_a_version_behind_the_first():
    assert all(addition.version in VERSIONS[1:] for addition in ADDITIONS)


@pytest.mark.parametrize(("text", "said"), [("", "1.1"), ("language 1\n", "1")])
def test_the_record_has_the_version_and_is_read_in_it(tmp_path, text, said):
    model = save(tmp_path / "m.onnx", STREAM)
    growc.apply(f"{text}widen ffn to 2 * ffn with tail copy", model, tmp_path / "wide.onnx")
    record = json.loads((tmp_path / "wide.grown.json").read_text())
    assert record["language"] == said
    assert record["recipe"] == ["widen ffn to 2 * ffn with tail copy"]
    assert recipe_of(record).language == said
    assert recipe_of({**record, "language": "1"}).language == "1"
    del record["language"]  # those of earlier versions of growc have none
    assert recipe_of(record).language == VERSIONS[-1]
