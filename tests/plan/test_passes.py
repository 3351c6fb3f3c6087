"""Passes as values: their contracts, and what runs them."""

from __future__ import annotations

import importlib
from dataclasses import fields, replace
from pathlib import Path
from types import ModuleType

import pytest
from graphs import ROOT, STREAM, save
from test_printed_passes import CASES
from watching import watched

from growc import api
from growc.dialects.onnx.model import OnnxModel
from growc.formats.compiler import outside
from growc.passes import PIPELINE, PLANNING, Pass, run
from growc.passes.compilation import Source
from growc.passes.runner import ContractError

GIVEN = tuple(field.name for field in fields(Source))


def test_every_file_of_passes_is_imported_as_a_module():
    for file in (ROOT / "passes").glob("*.py"):
        name = "growc.passes" if file.stem == "__init__" else f"growc.passes.{file.stem}"
        importlib.import_module(name)
        owner, _, last = name.rpartition(".")
        assert isinstance(getattr(importlib.import_module(owner), last), ModuleType), name


def test_a_pass_requires_what_is_given_or_ensured_before():
    there = set(GIVEN)
    for one in PLANNING:
        assert [name for name in one.requires if name not in there] == [], one.name
        there |= set(one.ensures)


def test_a_pass_says_what_it_does_in_a_line():
    assert len({one.name for one in PIPELINE}) == len([*PIPELINE])
    assert all(one.does.endswith(".") for one in PIPELINE)


def test_a_pass_that_changes_what_it_does_not_ensure_is_refused(tmp_path):
    renamed = Pass("rename", lambda c: replace(c, path=Path("other")), (), ("graph",))
    model = OnnxModel.open(save(tmp_path / "stream.onnx", STREAM))
    with pytest.raises(ContractError, match="the pass rename changes `path`"):
        run(renamed, Source(Path("model"), model, outside()))


@pytest.mark.parametrize("name", CASES)
def test_a_pass_reads_what_it_requires(name, tmp_path):
    case = CASES[name]
    save(tmp_path / "other.onnx", STREAM.replace("12", "20"))
    model = OnnxModel.open(save(tmp_path / "model.onnx", case.graph, opset=case.opset, **case.weights))
    recipe = case.recipe.replace("other.onnx", str(tmp_path / "other.onnx"))
    made = Source(tmp_path / "model.onnx", model, outside(), api.recipe(recipe).statements)
    for one in PLANNING:
        read: set[str] = set()
        before, made = made, one.function(watched(made, read))
        assert read <= {*one.requires}, one.name
        changed = {k for k, v in vars(made).items() if vars(before).get(k, read) is not v}
        assert changed <= {*one.ensures, *one.remakes}
        assert {*one.ensures} <= vars(made).keys()
