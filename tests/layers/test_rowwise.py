"""Where the rows of a result stood in front of an operator."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save

from growc.dialects.onnx.model import OnnxModel
from growc.ir.graph import Graph, Value
from growc.passes.dataflow.trace_rows import RowPlace, above_of

GRAPH = """
rows (float[N] x) => (float[N] y)
<float[{rows}, 6] t, float[{rows}, 6] u, float[6, 6] square>
{{
    one = Constant <value = int64[1] {{1}}> ()
    zero = Constant <value = int64[1] {{0}}> ()
    back = Constant <value = int64[1] {{-1}}> ()
    first = Constant <value = int64[1] {{-9}}> ()
    turned = Constant <value = int64[2] {{6, {rows}}}> ()
    all = Constant <value = int64[{rows}] {{{all}}}> ()
    split = Constant <value = int64[3] {{{rows}, 2, 3}}> ()
    pairs = Constant <value = int64[3] {{{rows}, 3, 2}}> ()
    place = Constant <value = int64 {{0}}> ()
    pads = Constant <value = int64[4] {{0, 1, 0, 1}}> ()
    r = {made}
    s = ReduceSum <keepdims = 0> (r)
    y = Add(x, s)
}}
"""


def made_of(made: str, rows: int, folder: Path) -> tuple[Graph, Value]:
    """The graph in which something is made of the table, and the result."""
    text = GRAPH.format(made=made, rows=rows, all=", ".join(map(str, range(rows))))
    model = OnnxModel.open(save(folder / "m.onnx", text))
    graph = model.capture()
    model.simulate(graph)
    return graph, next(v for node in graph.nodes for v in node.outputs if v.name == "r")


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
"""A value computed from a table of rows, an axis of it, and where the rows along that axis come from."""


@pytest.mark.parametrize("rows", [4, 1])
@pytest.mark.parametrize(("made", "axis", "wanted"), CASES)
def test_rows_stand_where_they_did(
    made: str, axis: int, wanted: list[dict[int, int]], rows: int, tmp_path: Path
):
    if rows == 1 and ("turned" in made or "back" in made):
        pytest.skip("a single row has no order")
    graph, result = made_of(made, rows, tmp_path)
    found = list(above_of(graph, result, RowPlace(axis)))
    places = [{operand: RowPlace(at) for operand, at in one.items()} for one in wanted]
    if rows == 1 and "Reshape" in made:  # a row is all of an axis then
        places.append({0: RowPlace(1, 6)})
    assert found == places


FLAT = [
    ("Reshape(t, split)", RowPlace(1), [{0: RowPlace(1, 3)}]),
    ("Reshape(t, split)", RowPlace(2), []),  # the third of each two
    ("Tanh(t)", RowPlace(1, 3), [{0: RowPlace(1, 3)}]),
    ("Reshape(t, pairs)", RowPlace(1), [{0: RowPlace(1, 2)}]),
    ("Reshape(t, pairs)", RowPlace(1, 3), [{0: RowPlace(1, 6)}]),
]
"""Where rows stand that are blocks of an axis."""


@pytest.mark.parametrize(("made", "along", "wanted"), FLAT)
def test_rows_may_be_blocks_of_an_axis(
    made: str, along: RowPlace, wanted: list[dict[int, RowPlace]], tmp_path: Path
):
    graph, result = made_of(made, 4, tmp_path)
    assert list(above_of(graph, result, along)) == wanted


APART = [
    ("Exp(t)", 0, [{0: RowPlace(0)}]),
    ("Add(t, u)", 0, [{0: RowPlace(0), 1: RowPlace(0)}]),
    ("Mul(t, u)", 1, [{0: RowPlace(1), 1: RowPlace(1)}]),
    ("ReduceMean <axes = [1], keepdims = 1> (t)", 0, [{0: RowPlace(0)}]),
    ("MatMul(t, square)", 0, [{0: RowPlace(0)}]),
    ("MatMul(t, square)", 1, [{1: RowPlace(1)}]),
    ("Softmax <axis = 0> (t)", 1, [{0: RowPlace(1)}]),
    ("Softmax <axis = 0> (t)", 0, []),
    ("CumSum(t, place)", 0, []),
]
"""Values whose rows stay apart, even where zeros do not stay."""


@pytest.mark.parametrize(("made", "axis", "wanted"), APART)
def test_rows_of_what_is_computed_stay_apart(
    made: str, axis: int, wanted: list[dict[int, RowPlace]], tmp_path: Path
):
    graph, result = made_of(made, 4, tmp_path)
    assert list(above_of(graph, result, RowPlace(axis), zeros=False)) == wanted
