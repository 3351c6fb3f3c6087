"""One head that Unsqueeze puts in and Squeeze leaves out becomes several: the view becomes a reshape."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

MODEL = """
one (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, {queries}] q_weight, float[8, 4] k_weight, float[8, 4] v_weight,
 float[{queries}, 8] o_weight, float[8, 9] head, int64[1] one, int64[1] two, int64[4] shape, int64[4] many,
 int64[3] back>
{{
    x = Gather(table, tokens)
    q0 = MatMul(x, q_weight)
    k0 = MatMul(x, k_weight)
    v0 = MatMul(x, v_weight)
    q1 = {open_queries}
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
{keys}
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = {close}
    o = MatMul(c, o_weight)
    y = Add(x, o)
    logits = MatMul(y, head)
}}
"""
KEYS = {
    "reshaped": """
    k1 = Reshape(k0, shape)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape(v0, shape)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)""",
    "unsqueezed in front of channels": """
    k1 = Unsqueeze(k0, two)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Unsqueeze(v0, two)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)""",
    "turned, then unsqueezed": """
    k1 = Transpose <perm = [0, 2, 1]> (k0)
    k = Unsqueeze(k1, one)
    v = Unsqueeze(v0, one)""",
    "unsqueezed in front of positions": """
    k1 = Unsqueeze(k0, one)
    k = Transpose <perm = [0, 1, 3, 2]> (k1)
    v = Unsqueeze(v0, one)""",
}


def model(path: Path, keys: str, opened: str, closed: str, heads: int) -> Path:
    text = MODEL.format(keys=KEYS[keys], queries=4 * heads, open_queries=opened, close=closed)
    numbers = {"one": [1], "two": [2], "shape": [0, 0, 1, 4], "many": [0, 0, 3, 4], "back": [0, 0, 4 * heads]}
    return save(path, text, **{name: np.array(value) for name, value in numbers.items()})


@pytest.mark.parametrize("keys", KEYS)
@pytest.mark.parametrize("fill", ["neighbor copy", "cyclic copy"])
def test_a_shared_head_grows_wherever_it_is_put_in(keys, fill, tmp_path):
    path = model(tmp_path / "m.onnx", keys, "Reshape(q0, many)", "Reshape(c1, back)", 3)
    judge(f"widen kv_heads to 3 with {fill}", path, tmp_path / "out.onnx").assert_exact()


@pytest.mark.parametrize("opened", ["Reshape(q0, shape)", "Unsqueeze(q0, two)"])
@pytest.mark.parametrize("closed", ["Reshape(c1, back)", "Squeeze(c1, two)"])
@pytest.mark.parametrize("keys", ["reshaped", "unsqueezed in front of channels"])
def test_one_head_in_all_grows_however_it_comes_and_goes(opened, closed, keys, tmp_path):
    path = model(tmp_path / "m.onnx", keys, opened, closed, 1)
    for recipe in ("widen heads to 3 with neighbor copy", "widen heads to 2 with zero fill"):
        judge(recipe, path, tmp_path / "out.onnx").assert_exact()
    written = {node.op_type for node in onnx.load(tmp_path / "out.onnx").graph.node}
    assert written.isdisjoint({"Squeeze", "Unsqueeze"})


def test_a_view_stays_where_its_one_element_does(tmp_path):
    path = model(tmp_path / "m.onnx", "reshaped", "Unsqueeze(q0, two)", "Squeeze(c1, two)", 1)
    judge("widen hidden to 16 with cyclic copy", path, tmp_path / "out.onnx").assert_exact()
    assert {"Squeeze", "Unsqueeze"} <= {n.op_type for n in onnx.load(tmp_path / "out.onnx").graph.node}


def test_a_head_that_is_left_out_in_front_of_positions_stays_one(tmp_path):
    path = model(tmp_path / "m.onnx", "reshaped", "Reshape(q0, shape)", "Squeeze(c0, one)", 1)
    with pytest.raises(GrowError, match="there is one, and nothing counts it"):
        api.plan("widen heads to 3 with neighbor copy", path)
