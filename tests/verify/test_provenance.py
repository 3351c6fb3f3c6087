"""Models that are verified after they were grown: what their outputs hold follows from their provenance."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from graphs import STREAM, save

from growc import api
from growc.cli import main

RECIPE = "let more = 5\nwiden vocab to vocab + more with uniform copy seed 3"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A model whose vocabulary is an axis of its output."""
    return save(tmp_path / "source.onnx", STREAM)


def outcome(source: Path, result: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, float]:
    """The exit status of `growc verify`, and the relative difference."""
    status = main(["verify", str(source), str(result), "--json"])
    return status, json.loads(capsys.readouterr().out)["relative"]


def spoil(model: Path) -> None:
    """Change one entry of a weight."""
    proto = onnx.load(model)
    tensor = next(t for t in proto.graph.initializer if t.name == "up_weight")
    array = onnx.numpy_helper.to_array(tensor).copy()
    array[0, 0] += 1
    tensor.CopyFrom(onnx.numpy_helper.from_array(array, tensor.name))
    onnx.save(proto, model)


def test_a_grown_output_is_compared_through_the_map_of_its_recipe(source, tmp_path, capsys):
    done = api.apply(RECIPE, source, tmp_path / "grown.onnx", {"more": "3"})
    assert outcome(source, done.written, capsys) == (0, done.verification.relative)


def test_a_spoilt_weight_is_seen_behind_a_grown_output(source, tmp_path, capsys):
    grown = api.apply(RECIPE, source, tmp_path / "grown.onnx").written
    spoil(grown)
    status, relative = outcome(source, grown, capsys)
    assert (status, relative > 1e-3) == (1, True)


def test_a_recipe_that_does_not_make_these_outputs_of_this_source_explains_nothing(source, tmp_path, capsys):
    half = api.apply(RECIPE, source, tmp_path / "half.onnx").written
    grown = api.apply(RECIPE, half, tmp_path / "grown.onnx").written
    status = main(["verify", str(source), str(grown)])
    assert (status, "differ in kind" in capsys.readouterr().err) == (1, True)


def test_units_that_stand_elsewhere_are_a_difference(source, tmp_path, capsys):
    grown = api.apply(RECIPE, source, tmp_path / "grown.onnx").written
    proto = onnx.load(grown)
    tensor = next(t for t in proto.graph.initializer if t.name == "table")
    turned = np.roll(onnx.numpy_helper.to_array(tensor), 1, axis=0)
    tensor.CopyFrom(onnx.numpy_helper.from_array(turned, tensor.name))
    onnx.save(proto, grown)
    assert outcome(source, grown, capsys)[0] == 1
