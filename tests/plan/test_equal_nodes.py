"""Nodes that are equal but for names: their results at the sample points follow from their operands alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest
from graphs import ROOT

from growc.dialects.onnx.model import OnnxModel
from growc.dialects.onnx.shapes import simulator

MODELS = sorted((ROOT / "examples/models").glob("*.onnx"))

DECLARED = """<ir_version: 9, opset_import: ["": 18, "own": 1]>
g (float[n, 4] x) => (float[n, 4] a, float[n, 6] b) {
  a = own.Unknown (x)
  b = own.Unknown (x)
}"""
"""Two equal nodes of an unknown operator: only the file tells their sizes."""

COUNTED = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 4] x, float[n, 4] y) => (int64[2, p] a, int64[2, q] b, float[n, 4] c, float[n, 4] d) {
  a = NonZero (x)
  b = NonZero (y)
  c = Add (x, y)
  d = Add (x, y)
}"""
"""Two equal nodes whose results have lengths of their own, and two whose results have none."""

READ = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 4] x, int64[2] given) =>
  (float[m, k] a, float[n, 4] b, float[n, 4] c, int64[2] unknown, int64[2] twice) {
  unknown = Add (given, given)
  sizes = Shape (x)
  twice = Add (sizes, sizes)
  a = Reshape (x, given)
  b = Reshape (x, sizes)
  c = Reshape (x, sizes)
}"""
"""Equal nodes, of which some have operands with values."""

VALUES = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 4] x) => (int64[2] a, int64[2] b, int64[2] c, string[2] d, string[2] e, bool[2] f, bool[2] g)
<int64[2] one = {1, 1}, int64[2] two = {2, 2}> {
  sizes = Shape (x)
  a = Add (sizes, one)
  b = Add (sizes, two)
  c = Add (sizes, one)
  d = Cast <to = 8> (one)
  e = Cast <to = 8> (two)
  d1 = Cast <to = 7> (d)
  e1 = Cast <to = 7> (e)
  f = Equal (d1, one)
  g = Equal (e1, one)
}"""
"""Equal nodes of which all operands have values, numbers and texts."""

RANDOM = """<ir_version: 9, opset_import: ["": 18]>
g (float[n, 4] x) => (float[1] a, float[1] b, float[1] c, float[2] d, float[1] e)
<float[1] half = {0.5}> {
  a = RandomUniformLike (half)
  b = RandomNormalLike (half)
  c = Bernoulli (half)
  d = RandomUniform <shape = [2]> ()
  e = Add (a, half)
}"""
"""Nodes that draw other numbers in each run."""


class Forgetful(dict[Any, Any]):
    """A cache that keeps nothing."""

    def __setitem__(self, key: Any, value: Any) -> None:
        pass


def simulated(path: Path) -> dict[str, Any]:
    """The sizes, element type and known values of each value of a model."""
    model = OnnxModel.open(path)
    graph = model.capture()
    model.simulate(graph)
    return {
        value.name: (
            value.sizes,
            value.dtype,
            None if value.known is None else [k.tolist() for k in value.known],
        )
        for value in graph.values()
    }


def unlike(path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The same, each node run by itself."""
    kind = simulator.NodeClass
    with monkeypatch.context() as patch:
        patch.setattr(simulator, "NodeClass", lambda proto: kind(proto, results=Forgetful()))
        return simulated(path)


@pytest.mark.parametrize("path", MODELS, ids=[path.stem for path in MODELS])
def test_results_of_equal_nodes_are_those_of_each_by_itself(path, monkeypatch):
    assert simulated(path) == unlike(path, monkeypatch)


@pytest.mark.parametrize(
    "text", [DECLARED, COUNTED, READ, VALUES], ids=["declared", "counted", "read", "values"]
)
def test_equal_nodes_with_other_results_are_told_apart(text, tmp_path, monkeypatch):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(text), path)
    found = simulated(path)
    assert found == unlike(path, monkeypatch)
    if text is DECLARED:
        assert [found[name][0][1] for name in "ab"] == [(4, 4), (6, 6)]
    if text is COUNTED:
        assert found["c"] == found["d"]
        assert found["a"][0][1] != found["b"][0][1]
    if text is READ:
        assert found["b"] == found["c"] != found["a"]
        assert found["twice"][2]
        assert found["unknown"][2] is None
    if text is VALUES:
        assert found["a"] == found["c"] != found["b"]
        assert [found[name][2][0] for name in "fg"] == [[True, True], [False, False]]


def test_drawn_numbers_are_not_known(tmp_path):
    path = tmp_path / "model.onnx"
    onnx.save(onnx.parser.parse_model(RANDOM), path)
    found = simulated(path)
    assert found["half"][2] == [[0.5], [0.5]]
    assert {name: found[name][2] for name in "abcde"} == dict.fromkeys("abcde")
