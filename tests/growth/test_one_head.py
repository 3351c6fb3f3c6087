"""Attention of one head: its axis of one element counts, where weights make it and read it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

SIZES = "float[9, 8] table, float[12, 8] o_weight, float[8, 9] head"
APART = "float[8, 12] q_weight, float[12] q_bias, float[8, 12] k_weight, float[8, 12] v_weight"

MADE_APART = """
    q0 = MatMul(x0, q_weight)
    q1 = Add(q0, q_bias)
    q2 = Reshape(q1, {cut})
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul(x0, k_weight)
    k1 = Reshape(k0, {cut})
    k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
    v0 = MatMul(x0, v_weight)
    v1 = Reshape(v0, {cut})
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
"""
MADE_TOGETHER = """
    packed = MatMul(x0, qkv_weight)
    cut5 = Reshape(packed, five)
    turned = Transpose <perm = [2, 0, 3, 1, 4]> (cut5)
    q0, k0, v0 = Split <axis = 0> (turned, thirds)
    q = Squeeze(q0, first)
    k2 = Squeeze(k0, first)
    v = Squeeze(v0, first)
"""
CACHED = """
    k3 = Concat <axis = 2> (k_past, k2)
    v3 = Concat <axis = 2> (v_past, v)
"""
ATTENTION = """
attention (int64[{batch}, S] tokens{taken}) => (float[{batch}, S, 9] logits{given})
<{weights}>
{{
    {start}
    {made}
    {past}
    {attend}
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, joined)
    o = MatMul(c, o_weight)
    x1 = Add(x0, o)
    logits = MatMul(x1, head)
}}
"""
SPELT_OUT = """
    k = Transpose <perm = [0, 1, 3, 2]> (k3)
    s0 = MatMul(q, k)
    s = Mul(s0, scale)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v3)
"""
FUSED = "c0 = Attention <scale = 0.3> (q, k3, v3)"
NUMBERS = {
    "one": [0, 0, 1, 12],
    "two": [0, 0, 2, 6],
    "five": [0, 0, 3, 1, 12],
    "thirds": [1, 1, 1],
    "first": [0],
    "joined": [0, 0, 12],
}


def model(tmp_path: Path, kind: str) -> Path:
    """A model of one head; for `batch` and `alone` a batch of one, for `batch` with two heads; for `cached`
    with a cache; for `fused` by one operator.
    """
    weights = f"{SIZES}, float[8, 36] qkv_weight" if kind == "together" else f"{SIZES}, {APART}"
    start, made = "x0 = Gather(table, tokens)", MADE_APART.format(cut="two" if kind == "batch" else "one")
    single = kind in ("batch", "alone")
    if single:
        start, weights = "e = Gather(table, tokens)\nx0 = Add(e, places)", f"{weights}, float[1, 4, 8] places"
    text = ATTENTION.format(
        batch=1 if single else "N",
        taken=", float[N, 1, P, 12] k_past, float[N, 1, P, 12] v_past" if kind == "cached" else "",
        given=", float[N, 1, T, 12] k3, float[N, 1, T, 12] v3" if kind == "cached" else "",
        past=CACHED if kind == "cached" else "k3 = Identity(k2)\n    v3 = Identity(v)",
        weights=weights,
        start=start,
        made=MADE_TOGETHER if kind == "together" else made,
        attend=FUSED if kind == "fused" else SPELT_OUT,
    ).replace(", S]", ", 4]" if single else ", S]")
    arrays = {name: np.array(value, dtype=np.int64) for name, value in NUMBERS.items()}
    opset = 23 if kind == "fused" else 17
    return save(tmp_path / f"{kind}.onnx", text, opset=opset, scale=np.float32(0.3), **arrays)


@pytest.mark.parametrize(
    "fill", ["neighbor copy split random", "uniform copy noise 0.1 balanced", "tail copy"]
)
@pytest.mark.parametrize("kind", ["apart", "together", "fused", "alone"])
def test_one_head_becomes_several(tmp_path, kind, fill):
    path = model(tmp_path, kind)
    assert api.inspect(path).roles.sizes("heads") == [1]
    done = judge(f"widen heads to 3 with {fill}", path, tmp_path / "grown.onnx")
    done.assert_exact()
    found = api.inspect(done.path).roles
    assert (found.sizes("heads"), found.sizes("head_dim"), found.sizes("hidden")) == ([3], [12], [8])


def test_a_batch_of_one_is_no_head(tmp_path):
    path = model(tmp_path, "batch")
    assert api.inspect(path).roles.sizes("heads") == [2]
    judge("widen heads to 4 with neighbor copy", path, tmp_path / "grown.onnx").assert_exact()


def test_a_head_in_a_cache_is_not_counted(tmp_path):
    path = model(tmp_path, "cached")
    assert api.inspect(path).roles.sizes("heads") == [1]
    with pytest.raises(GrowError, match="there is one, and nothing counts it, at `"):
        api.plan("widen heads to 2 with neighbor copy", path)


@pytest.mark.parametrize("recipe", ["ffn", "head_dim", "hidden"])
def test_the_rest_of_a_model_of_one_head_grows_as_before(tmp_path, recipe):
    path = model(tmp_path, "apart")
    if recipe == "ffn":
        assert "ffn" not in api.inspect(path).roles.axes
    else:
        text = f"widen {recipe} to 2 * {recipe} with cyclic copy"
        judge(text, path, tmp_path / "grown.onnx").assert_exact()
