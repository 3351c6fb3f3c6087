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


@pytest.mark.parametrize("text", [DECLARED, COUNTED, READ], ids=["declared", "counted", "read"])
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
