"""Where the rows of a result stood in front of an operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save

from growc.dialects.onnx.model import OnnxModel
from growc.passes.dataflow.trace_rows import above_of

GRAPH = """
rows (float[N] x) => (float[N] y)
<float[{rows}, 6] t, float[{rows}, 6] u>
{{
    one = Constant <value = int64[1] {{1}}> ()
    zero = Constant <value = int64[1] {{0}}> ()
    back = Constant <value = int64[1] {{-1}}> ()
    first = Constant <value = int64[1] {{-9}}> ()
    turned = Constant <value = int64[2] {{6, {rows}}}> ()
    all = Constant <value = int64[{rows}] {{{all}}}> ()
    split = Constant <value = int64[3] {{{rows}, 2, 3}}> ()
    pads = Constant <value = int64[4] {{0, 1, 0, 1}}> ()
    r = {made}
    s = ReduceSum <keepdims = 0> (r)
    y = Add(x, s)
}}
"""

CASES = [
    ("Transpose <perm = [1, 0]> (t)", 1, [{0: 0}]),
    ("Transpose <perm = [1, 0]> (t)", 0, [{0: 1}]),
    ("Unsqueeze(t, zero)", 1, [{0: 0}]),
    ("Unsqueeze(t, zero)", 0, []),
    ("Concat <axis = 1> (t, u)", 0, [{0: 0, 1: 0}]),
    ("Concat <axis = 0> (t, u)", 0, []),
    ("Gather <axis = 1> (t, one)", 0, [{0: 0}]),
    ("Gather <axis = 0> (t, zero)", 0, []),
    ("Gather <axis = 0> (t, all)", 0, []),  # more rows would need more numbers
    ("Slice(t, zero, one, one)", 0, [{0: 0}]),
    ("Slice(t, back, first, zero, back)", 0, []),  # the rows stand in another order
    ("Reshape(t, split)", 0, [{0: 0}]),
    ("Reshape(t, turned)", 1, []),
    ("Pad(t, pads)", 0, [{0: 0}]),
    ("Tanh(t)", 0, [{0: 0}]),
    ("Exp(t)", 0, []),  # zeros do not stay
    ("Add(t, u)", 0, []),
]
"""What is made of a table of rows, an axis of that, and where the rows along it stand."""


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize(("made", "axis", "wanted"), CASES)
def test_rows_stand_where_they_did(
    made: str, axis: int, wanted: list[dict[int, int]], rows: int, tmp_path: Path
):
    if rows == 1 and ("turned" in made or "back" in made):
        pytest.skip("a single row has no order")
    text = GRAPH.format(made=made, rows=rows, all=", ".join(map(str, range(rows))))
    model = OnnxModel.open(save(tmp_path / "m.onnx", text))
    graph = model.capture()
    model.simulate(graph)
    result = next(v for node in graph.nodes for v in node.outputs if v.name == "r")
    assert list(above_of(graph, result, axis)) == wanted
