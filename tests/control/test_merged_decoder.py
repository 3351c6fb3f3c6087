"""A decoder whose two branches share weights: with a key/value cache and without one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save

from growc import api
from growc.verification.feeds import draw_cases


def branch(name: str, cached: bool) -> str:
    """One branch; every value in it bears the branch's name."""
    keys = "Concat <axis = 2> (past_k, kt)" if cached else "Identity(kt)"
    values = "Concat <axis = 2> (past_v, vt)" if cached else "Identity(vt)"
    text = f"""
        x = Gather(table, ids)
        n = LayerNormalization <axis = -1, epsilon = 0.01> (x, gain, bias)
        cut = Constant <value = int64[4] {{0, 0, 2, 4}}> ()
        q = MatMul(n, wq)  qr = Reshape(q, cut)  qt = Transpose <perm = [0, 2, 1, 3]> (qr)
        k = MatMul(n, wk)  kr = Reshape(k, cut)  kt = Transpose <perm = [0, 2, 1, 3]> (kr)
        v = MatMul(n, wv)  vr = Reshape(v, cut)  vt = Transpose <perm = [0, 2, 1, 3]> (vr)
        keys = {keys}  values = {values}
        turned = Transpose <perm = [0, 1, 3, 2]> (keys)
        scores = MatMul(qt, turned)  masked = Add(scores, closed)
        p = Softmax <axis = -1> (masked)
        c = MatMul(p, values)  ct = Transpose <perm = [0, 2, 1, 3]> (c)
        whole = Constant <value = int64[3] {{0, 0, 8}}> ()
        cr = Reshape(ct, whole)
        o = MatMul(cr, wo)  y = Add(x, o)
        u = MatMul(y, up)  r = Relu(u)  d = MatMul(r, down)  z = Add(y, d)
        f = LayerNormalization <axis = -1, epsilon = 0.01> (z, gain2, bias2)
        logits = MatMul(f, head)
    """
    own = {word for line in text.split("  ") for word in [line.split("=")[0].strip()] if "=" in line}
    made = {w for w in own if w.isidentifier()}
    out, at = [], ""
    for char in text + " ":
        if char.isalnum() or char == "_":
            at += char
            continue
        out.append(f"{at}_{name}" if at in made else at)
        out.append(char)
        at = ""
    body = "".join(out)
    results = f"float[N, S, 16] logits_{name}, float[N, 2, L, 4] keys_{name}, float[N, 2, L, 4] values_{name}"
    return f"{name} () => ({results}) {{ {body} }}"


MERGED = f"""
merged (int64[N, S] ids, float[N, M] mask, float[N, 2, P, 4] past_k, float[N, 2, P, 4] past_v, bool[1] cached)
    => (float[N, S, 16] scores, float[N, 2, L, 4] present_k, float[N, 2, L, 4] present_v)
<float[16, 8] table, float[8] gain, float[8] bias, float[8, 8] wq, float[8, 8] wk, float[8, 8] wv,
 float[8, 8] wo, float[8, 12] up, float[12, 8] down, float[8] gain2, float[8] bias2, float[8, 16] head>
{{
    one = Constant <value = float {{1}}> ()
    far = Constant <value = float {{-10000}}> ()
    open = Sub(one, mask)
    shut = Mul(open, far)
    places = Constant <value = int64[2] {{1, 2}}> ()
    closed = Unsqueeze(shut, places)
    scores, present_k, present_v = If (cached) <
        then_branch = {branch("a", cached=True)},
        else_branch = {branch("b", cached=False)}
    >
}}
"""


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 12 with average fill",
        "widen heads to 5 with uniform copy split random",
        "widen ffn to 19 with uniform copy split random",
    ],
)
def test_both_branches_of_a_merged_decoder_grow_with_one_set_of_weights(tmp_path: Path, recipe: str) -> None:
    source = save(tmp_path / "model.onnx", MERGED)
    cases = draw_cases(source)
    assert {bool(c["cached"].all()) for c in cases} == {True, False}
    assert {c["past_k"].shape[2] > 0 for c in cases if c["cached"].all()} >= {True}
    done = api.apply(f"{recipe}\nexpect exact", source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.cases == len(cases)
    assert done.verification.relative < 5e-6
    grown = onnx.load(tmp_path / "grown.onnx").graph
    assert sum(t.data_type == onnx.TensorProto.FLOAT for t in grown.initializer) == 12
    heads = [d.dim_value for d in grown.input[2].type.tensor_type.shape.dim][1]
    assert heads == (5 if "heads" in recipe else 2)
    assert all(np.isfinite(onnx.numpy_helper.to_array(t)).all() for t in grown.initializer)
