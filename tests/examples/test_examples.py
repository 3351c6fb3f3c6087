"""Every example does what its folder says: it plans as plan.txt shows, applies, and is measured."""

from __future__ import annotations

import re
import shutil

import pytest
from published import ALL, EXAMPLES, ROOT

import growc
from growc.cli.main import main
from growc.errors.source import SourceText
from growc.grammar import format as formatted
from growc.grammar import parse

NAMES = [example.folder.name for example in ALL]


@pytest.mark.sampled(7)
@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_an_example_plans_as_its_folder_shows(example, capsys, monkeypatch, golden):
    monkeypatch.chdir(ROOT)
    arguments = [example.recipe.relative_to(ROOT), example.model.relative_to(ROOT)]
    assert main(["plan", *map(str, arguments)]) == 0
    golden(example.plan, capsys.readouterr().out)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_an_example_applies_and_its_certificate_holds(example, tmp_path):
    model = shutil.copy(example.model, tmp_path)
    applied = growc.apply(example.recipe, model)
    assert applied.verification is not None
    exact = applied.plan.certificate.exact
    assert exact == (applied.verification.relative <= applied.verification.limit)


@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_a_recipe_is_in_canonical_form(example):
    text = example.recipe.read_text(encoding="utf-8")
    assert formatted(parse(SourceText("recipe.grow", text))) == text


@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_an_explanation_says_what_is_exact(example):
    text = (example.folder / "README.md").read_text(encoding="utf-8")
    assert re.search(r"\*\*[^*]*(Exact|Not exact|exact\*\*)", text)


@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_an_explanation_names_the_statements_of_its_recipe(example):
    text = (example.folder / "README.md").read_text(encoding="utf-8")
    recipe = example.recipe.read_text(encoding="utf-8")
    verbs = set(re.findall(r"^ *(widen|subclone|reorder|nest|stack|arrange|merge|upcycle) ", recipe, re.M))
    assert verbs
    assert {verb for verb in verbs if f"`{verb} " not in text} == set()


@pytest.mark.parametrize("example", ALL, ids=NAMES)
def test_the_index_lists_every_example(example):
    index = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert f"]({example.folder.name}/README.md)" in index


def test_models_of_examples_are_small():
    for example in ALL:
        assert example.model.stat().st_size < 2_300_000
