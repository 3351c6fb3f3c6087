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
from growc.algebra.indexmap import IndexMap
from growc.cli.main import main
from growc.passes.finish.interface import Ports
from growc.passes.finish.interface_json import from_json, to_json

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
    array[0] += 1
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


@pytest.fixture
def twice(source: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The source grown once, and that result changed again: its vocabulary grew, and then shrank."""
    half = api.apply(RECIPE, source, tmp_path / "half.onnx").written
    return half, api.apply("subclone vocab to 18 by first", half, tmp_path / "grown.onnx").written


def test_after_two_growths_the_source_and_the_model_between_are_compared(source, twice, capsys):
    half, grown = twice
    assert outcome(half, grown, capsys) == outcome(source, grown, capsys) == (0, 0.0)


def test_a_model_between_that_lost_its_record_is_compared(twice, capsys):
    half, grown = twice
    proto = onnx.load(half)
    del proto.metadata_props[:]
    onnx.save(proto, half)
    assert outcome(half, grown, capsys)[0] == 0


def test_a_weight_that_was_spoilt_between_two_growths_is_seen(source, tmp_path, capsys):
    half = api.apply(RECIPE, source, tmp_path / "half.onnx").written
    spoil(half)
    grown = api.apply(RECIPE, half, tmp_path / "grown.onnx").written
    assert outcome(half, grown, capsys)[0] == 0
    status, relative = outcome(source, grown, capsys)
    assert (status, relative > 1e-3) == (1, True)


def test_recipes_that_do_not_lead_from_this_source_explain_nothing(source, tmp_path, capsys):
    grown = api.apply(RECIPE, source, tmp_path / "grown.onnx").written
    other = api.apply("widen ffn to 2 * ffn with zero fill", source, tmp_path / "other.onnx").written
    status = main(["verify", str(other), str(grown)])
    assert (status, "differ in kind" in capsys.readouterr().err) == (1, True)


def test_units_that_stand_elsewhere_are_a_difference(source, tmp_path, capsys):
    grown = api.apply(RECIPE, source, tmp_path / "grown.onnx").written
    proto = onnx.load(grown)
    tensor = next(t for t in proto.graph.initializer if t.name == "table")
    turned = np.roll(onnx.numpy_helper.to_array(tensor), 1, axis=0)
    tensor.CopyFrom(onnx.numpy_helper.from_array(turned, tensor.name))
    onnx.save(proto, grown)
    assert outcome(source, grown, capsys)[0] == 1


@pytest.fixture
def kept(source: Path, tmp_path: Path) -> Path:
    """A model of some tokens of another one; the file that lists them is gone."""
    tokens, recipe = tmp_path / "tokens.txt", tmp_path / "r.grow"
    tokens.write_text("9\n3\n5\n0\n")
    recipe.write_text('subclone vocab to 4 by keep "tokens.txt"\n')
    grown = api.apply(recipe, source, tmp_path / "grown.onnx").written
    tokens.unlink()
    return grown


def test_tokens_that_a_file_listed_are_known_without_the_file(source, kept, capsys):
    status, relative = outcome(source, kept, capsys)
    assert (status, relative < 1e-6) == (0, True)
    spoil(kept)
    assert outcome(source, kept, capsys)[0] == 1


def test_a_growth_behind_one_that_read_a_file_is_followed(source, kept, tmp_path, capsys):
    wider = api.apply("widen vocab to 6 with uniform copy seed 3", kept, tmp_path / "wider.onnx").written
    assert outcome(source, wider, capsys)[0] == outcome(kept, wider, capsys)[0] == 0


@pytest.mark.parametrize(
    "state",
    [
        IndexMap.of(5, [3, 4, 0, 1, -1, 2]),
        IndexMap.of(3, [0, 1, 2, -1, 2], [1, 1, 0.5, 0, 0.5], [0, 0, 0, 1, 0]),
        IndexMap.of(4, [0, -1, -1], None, None, [False, True, False]),
        IndexMap.of(4, []),
    ],
)
def test_maps_of_inputs_and_outputs_come_back_from_json(state):
    ports = Ports({("y", 1): state}, {"p": ("q", {0, 2})}, {"ids": np.array([3, 4, 9])}, {"a": None}, True)
    found = from_json(json.loads(json.dumps(to_json(ports))))
    assert found.outputs["y", 1].same(state)
    assert (found.numbers["ids"] == [3, 4, 9]).all()
    assert found.states == {"p": ("q", {0, 2})}
    assert (found.renamed, found.narrower) == ({"a": None}, True)
