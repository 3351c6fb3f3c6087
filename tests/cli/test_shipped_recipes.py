"""`growc recipes`: what growc brings along, listed, printed and copied."""

from __future__ import annotations

import pytest
from graphs import ROOT

import growc as library

FOLDERS = sorted(path.parent.name for path in ROOT.glob("examples/*/recipe.grow"))


def test_every_recipe_of_the_examples_is_listed_with_its_title_and_paper_in_eighty_columns(growc):
    lines = growc("recipes").out.splitlines()
    assert [line.split()[0] for line in lines] == FOLDERS
    assert max(map(len, lines)) <= 80
    assert lines[0].split("   ")[-1].strip() == "Chen et al. 2016"
    listed = growc("recipes", "--json").json
    assert [one["name"] for one in listed["recipes"]] == FOLDERS
    assert all(one.title and one.paper for one in library.recipes())


@pytest.mark.parametrize("name", ["14-lemon", "lemon"])
def test_a_recipe_is_printed_by_its_name_with_its_number_or_without(growc, name):
    printed, path = growc("recipes", name).out.splitlines(), "examples/14-lemon/recipe.grow"
    lines = (ROOT / path).read_text().splitlines()
    assert lines[2] == f"#   growc apply {path} examples/models/tiny-gpt.onnx"
    assert printed == [*lines[:2], "#   growc apply RECIPE MODEL", *lines[3:]]


@pytest.mark.parametrize("command", [("init", "stream.onnx"), ("recipes", "lemon")])
def test_a_recipe_does_not_replace_a_model(growc, tmp_path, command):
    before = (tmp_path / "stream.onnx").read_bytes()
    (tmp_path / "link.grow").symlink_to(tmp_path / "stream.onnx")
    for out in ("stream.onnx", "link.grow"):
        assert growc(*command, "-o", out, "--force").status != 0
    (tmp_path / "old.grow").write_text("# mine\n")
    assert growc(*command, "-o", "old.grow", "--force").status == 0
    assert (tmp_path / "stream.onnx").read_bytes() == before


def test_a_dash_is_no_file_to_write(growc, tmp_path):
    refused = growc("recipes", "lemon", "-o", "-")
    assert refused.status == 2
    assert "`-o -` names no file" in refused.err
    assert not (tmp_path / "-").exists()


def test_an_unknown_name_gets_a_near_one(growc):
    refused = growc("recipes", "lemmon")
    assert refused.status == 2
    assert "did you mean `lemon`?" in refused.err


def test_a_copy_has_the_files_that_the_recipe_reads_beside_it(growc, tmp_path):
    copied = growc("recipes", "subcloning", "-o", "half.grow")
    assert copied.status == 0
    assert "copied `calibration.npz`, which the recipe reads" in copied.out
    assert "#   growc apply half.grow MODEL\n" in (tmp_path / "half.grow").read_text()
    assert growc("plan", "half.grow", ROOT / "examples/models/tiny-gpt.onnx").status == 0
    assert growc("recipes", "subcloning", "-o", "half.grow").status == 4
    assert growc("recipes", "subcloning", "-o", "half.grow", "--force").status == 0
    (tmp_path / "calibration.npz").write_text("mine")
    refused = growc("recipes", "subcloning", "-o", "other.grow")
    assert refused.status == 4
    assert (tmp_path / "calibration.npz").read_text() == "mine"
    assert not (tmp_path / "other.grow").exists()
    assert growc("recipes", "subcloning", "-o", "calibration.npz").status == 2
    assert growc("recipes", "-o", "x.grow").status == 2
