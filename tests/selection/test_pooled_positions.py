"""`subclone kv_heads to N by mean` where scores are sums of products: positions take the weights of keys."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import run
from models import stored

import growc

DISENTANGLED = """
disentangled (float[N, 5, 8] x) => (float[N, 5, 8] y)
<float[1, 5, 8] places, float[8, 8] wq, float[8, 8] wk, float[8, 8] wv, float[8, 8] wo, int64[4] heads,
 int64[3] flat>
{{
    q0 = MatMul(x, wq)
    k0 = MatMul(x, wk)
    v0 = MatMul(x, wv)
    pq0 = MatMul(places, wq)
    pk0 = MatMul(places, {other})
    q1 = Reshape(q0, heads)
    k1 = Reshape(k0, heads)
    v1 = Reshape(v0, heads)
    pq1 = Reshape(pq0, heads)
    pk1 = Reshape(pk0, heads)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    pq = Transpose <perm = [0, 2, 3, 1]> (pq1)
    pk = Transpose <perm = [0, 2, 3, 1]> (pk1)
    s0 = MatMul(q, k)
    s1 = MatMul(q, pk)
    s2 = MatMul(k2, pq)
    s2t = Transpose <perm = [0, 1, 3, 2]> (s2)
    s3 = Add(s0, s1)
    s = Add(s3, s2t)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, flat)
    o = MatMul(c, wo)
    y = Add(x, o)
}}
"""


def model(path: Path, other: str) -> Path:
    text = DISENTANGLED.format(other=other)
    if other != "wk":
        text = text.replace("float[8, 8] wv", f"float[8, 8] {other}, float[8, 8] wv")
    return save(path, text, heads=np.array([0, 0, 4, 2]), flat=np.array([0, 0, 8]))


def softmax(x: np.ndarray) -> np.ndarray:
    made = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))


@pytest.mark.parametrize("other", ["wk", "wp"])
def test_positions_that_take_the_weights_of_keys_are_shared_like_keys(tmp_path: Path, other: str) -> None:
    path = model(tmp_path / "m.onnx", other)
    made = growc.apply("subclone kv_heads to 2 by mean", path, tmp_path / "out.onnx").written
    x, w = np.random.default_rng(1).standard_normal((3, 5, 8)).astype(np.float32), stored(path)

    def heads(value: np.ndarray, name: str, *, means: bool) -> np.ndarray:
        found = (value @ w[name]).reshape(len(value), 5, 4, 2).transpose(0, 2, 1, 3)
        return found if not means else found.reshape(-1, 2, 2, 5, 2).mean(2).repeat(2, axis=1)

    q, k, v = (heads(x, n, means=n != "wq") for n in ("wq", "wk", "wv"))
    pq, pk = heads(w["places"], "wq", means=False), heads(w["places"], other, means=other == "wk")
    scores = q @ k.swapaxes(2, 3) + q @ pk.swapaxes(2, 3) + (k @ pq.swapaxes(2, 3)).swapaxes(2, 3)
    context = (softmax(scores) @ v).transpose(0, 2, 1, 3).reshape(3, 5, 8)
    assert np.allclose(run(made, {"x": x})["y"], x + context @ w["wo"], atol=1e-4)
    assert stored(made)["wk"].shape == (8, 4)
