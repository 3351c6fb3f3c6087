"""Orders, splits and means of grouped heads where something else than attention reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from graphs import grouped, save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

WEIGHTS = ", float[12, 2] gate, int64[8] turned, int64[2] order"


def model(path: Path, **texts: str) -> Path:
    """Two key/value heads, each for four query heads."""
    numbers = {"turned": np.arange(8)[::-1], "order": np.array([2, 1])}
    return grouped(path, 2, 4, 4, 12, weights=WEIGHTS, **numbers, **texts)


NUMBERED = {
    "a bias of each head is an input": {
        "given": ", float[B, 8, S, S] bias",
        "scores": "    scores = Add(s, bias)\n",
    },
    "heads are taken by constant numbers": {"scores": "    scores = Gather <axis = 1> (s, turned)\n"},
    "heads are added up one by one": {
        "scores": "    at = Constant <value_int = 1> ()\n    scores = CumSum(s, at)\n"
    },
    "numbers of heads are computed": {
        "scores": "    shape = Shape <start = 1, end = 2> (s)\n    start = Constant <value_int = 0> ()\n"
        "    step = Constant <value_int = 1> ()\n    end = Squeeze(shape)\n"
        "    count = Range(start, end, step)\n    slope = Cast <to = 1> (count)\n"
        "    slopes = Unsqueeze(slope, order)\n    scores = Mul(s, slopes)\n"
    },
    "the weights of each head are given out": {
        "outputs": ", float[B, 8, S, S] p",
    },
}


@pytest.mark.parametrize("name", NUMBERED)
@pytest.mark.parametrize("recipe", ["reorder heads by random seed 5", "subclone heads to 4 by magnitude"])
def test_query_heads_that_something_numbers_keep_their_order(name, recipe, tmp_path):
    path = model(tmp_path / "m.onnx", **NUMBERED[name])
    with pytest.raises(GrowError) as refused:
        api.plan(recipe, path)
    assert refused.value.diagnostics[0].code in ("G304", "G313")


SHARED_OUT = {
    "a softmax over key/value heads gates values": "    g0 = MatMul(x, gate)\n"
    "    g1 = Softmax <axis = -1> (g0)\n    g2 = Transpose <perm = [0, 2, 1]> (g1)\n"
    "    last = Constant <value_ints = [3]> ()\n    g = Unsqueeze(g2, last)\n"
    "    k4 = Identity(k3)\n    v4 = Mul(v3, g)\n",
    "values are shares over key/value heads": "    k4 = Identity(k3)\n    v4 = Softmax <axis = 1> (v3)\n",
    "keys are shares over key/value heads": "    k4 = Softmax <axis = 1> (k3)\n    v4 = Identity(v3)\n",
}


@pytest.mark.parametrize("name", SHARED_OUT)
def test_key_value_heads_that_share_out_one_do_not_split(name, tmp_path):
    path = model(tmp_path / "m.onnx", keys_of=SHARED_OUT[name])
    with pytest.raises(GrowError, match="Softmax reads this axis as a whole"):
        api.plan("widen kv_heads to 4 with neighbor copy", path)


@pytest.mark.parametrize(
    "recipe",
    [
        "reorder heads by random seed 5",
        "widen kv_heads to 4 with neighbor copy",
        "widen kv_heads to 8 with neighbor copy\nwiden heads to 16 with neighbor copy",
        'reorder axis 1 of "k_weight" by random seed 3\nwiden kv_heads to 4 with neighbor copy\n'
        "reorder kv_heads by random seed 2",
    ],
)
def test_without_such_a_reader_they_move_exactly(recipe, tmp_path):
    judge(recipe, model(tmp_path / "m.onnx"), tmp_path / "out.onnx").assert_exact()


@pytest.mark.parametrize("fill", ["neighbor copy", "zero fill", "average fill"])
def test_query_heads_grow_and_then_groups_become_means(fill, tmp_path):
    recipe = f"widen heads to 16 with {fill}\nsubclone kv_heads to 1 by mean"
    plan = api.plan(recipe, model(tmp_path / "m.onnx"))
    assert [gap.cause for gap in plan.certificate.gaps] == ["every 2 kv_heads become their mean"]


ONE_STREAM = """
shared (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 32] a_weight, float[12, 16] b_weight, float[12, 8] k_weight, float[12, 8] v_weight,
 float[32, 12] c_weight, float[16, 12] d_weight, int64[4] eight, int64[4] four, int64[4] few,
 int64[5] by_four,
 int64[5] by_two, int64[4] flat8, int64[4] flat4, int64[3] back8, int64[3] back4, int64[1] two>
{
    k0 = MatMul(x, k_weight)
    k1 = Reshape(k0, few)
    k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
    v0 = MatMul(x, v_weight)
    v1 = Reshape(v0, few)
    v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
    k3 = Unsqueeze(k2, two)
    v3 = Unsqueeze(v2, two)
LAYERS
}
"""
LAYER = """
    q0{n} = MatMul({x}, {a}_weight)
    q1{n} = Reshape(q0{n}, {many})
    q{n} = Transpose <perm = [0, 2, 1, 3]> (q1{n})
    k4{n} = Expand(k3, {times})
    k5{n} = Reshape(k4{n}, {flat})
    k{n} = Transpose <perm = [0, 1, 3, 2]> (k5{n})
    v4{n} = Expand(v3, {times})
    v{n} = Reshape(v4{n}, {flat})
    s{n} = MatMul(q{n}, k{n})
    p{n} = Softmax <axis = -1> (s{n})
    c0{n} = MatMul(p{n}, v{n})
    c1{n} = Transpose <perm = [0, 2, 1, 3]> (c0{n})
    c{n} = Reshape(c1{n}, {back})
    o{n} = MatMul(c{n}, {b}_weight)
    {y} = Add({x}, o{n})
"""


@pytest.mark.parametrize(
    "recipe",
    [
        "reorder heads by random seed 1",
        "reorder kv_heads by random seed 2",
        "widen head_dim to 6 with zero fill",
    ],
)
def test_attentions_with_other_groups_of_the_same_keys_move_exactly(recipe, tmp_path):
    first = LAYER.format(
        n="a", x="x", a="a", b="c", y="x1", many="eight", times="by_four", flat="flat8", back="back8"
    )
    second = LAYER.format(
        n="b", x="x1", a="b", b="d", y="y", many="four", times="by_two", flat="flat4", back="back4"
    )
    numbers = {
        "eight": [0, 0, 8, 4],
        "four": [0, 0, 4, 4],
        "few": [0, 0, 2, 4],
        "by_four": [1, 1, 4, 1, 1],
        "by_two": [1, 1, 2, 1, 1],
        "flat8": [0, 8, -1, 4],
        "flat4": [0, 4, -1, 4],
        "back8": [0, 0, 32],
        "back4": [0, 0, 16],
        "two": [2],
    }
    text = ONE_STREAM.replace("LAYERS", first + second)
    path = save(tmp_path / "m.onnx", text, **{name: np.array(value) for name, value in numbers.items()})
    judge(recipe, path, tmp_path / "out.onnx").assert_exact()


PACKED = """
packed (float[B, S, 12] x) => (float[B, S, 12] y, float[{shape}] {output})
<float[12, 48] weight, float[48] bias, float[16, 12] o_weight, int64[4] joined, int64[3] parts, int64[3] back>
{{
    z0 = MatMul(x, weight)
    z = Add(z0, bias)
    r = Reshape(z, joined)
    qs, ks, vs = Split <axis = -1> (r, parts)
    q = Transpose <perm = [0, 2, 1, 3]> (qs)
    k = Transpose <perm = [0, 2, 3, 1]> (ks)
    v = Transpose <perm = [0, 2, 1, 3]> (vs)
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}}
"""


@pytest.mark.parametrize(("output", "shape"), [("ks", "B, S, 4, 4"), ("v", "B, 4, S, 4")])
def test_means_of_packed_heads_are_given_out_as_means(output, shape, tmp_path):
    numbers = {"joined": [0, 0, 4, 12], "parts": [4, 4, 4], "back": [0, 0, 16]}
    text = PACKED.format(output=output, shape=shape)
    path = save(tmp_path / "m.onnx", text, **{name: np.array(value) for name, value in numbers.items()})
    done = api.apply("subclone kv_heads to 2 by mean", path, tmp_path / "out.onnx")
    assert [gap.cause for gap in done.plan.certificate.gaps] == ["every 2 kv_heads become their mean"]
    x = np.random.default_rng(0).standard_normal((2, 3, 12)).astype(np.float32)
    before, after = (
        ort.InferenceSession(file.read_bytes()).run([output], {"x": x})[0]
        for file in (path, tmp_path / "out.onnx")
    )
    axis = 2 if output == "ks" else 1
    pairs = before.reshape(*before.shape[:axis], 2, 2, *before.shape[axis + 1 :]).mean(axis=axis + 1)
    np.testing.assert_allclose(after, pairs, rtol=1e-4, atol=1e-5)
    assert onnx.load(tmp_path / "out.onnx").graph.output[1].name == output
