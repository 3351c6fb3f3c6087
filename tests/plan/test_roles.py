"""Names of axes: what is counted, and what is no role though it looks like one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data

MIXER = """
mixer (float[N, {shape}] x) => (float[N, 5] y)
<float[8, 3, 2, 2] patches, float[8] patches_bias, float[8] norm, float[8] norm_bias, float[4, 6] up_places,
 float[6, 4] down_places, float[8, 12] up, float[12, 8] down, float[8, 5] head>
{{
    {start}
    n0 = LayerNormalization <axis = -1> (x0, norm, norm_bias)
    t0 = Transpose <perm = [0, 2, 1]> (n0)
    p0 = MatMul(t0, up_places)
    p1 = Relu(p0)
    p2 = MatMul(p1, down_places)
    t1 = Transpose <perm = [0, 2, 1]> (p2)
    x1 = Add(t1, x0)
    u0 = MatMul(x1, up)
    u1 = Relu(u0)
    u2 = MatMul(u1, down)
    x2 = Add(x1, u2)
    m = ReduceMean <axes = [1], keepdims = 0> (x2)
    y = MatMul(m, head)
}}
"""

PATCHES = """
    c = Conv <strides = [2, 2]> (x, patches, patches_bias)
    flat = Constant <value_ints = [0, 8, 4]> ()
    r = Reshape(c, flat)
    x0 = Transpose <perm = [0, 2, 1]> (r)
"""


def found(path: Path) -> dict[str, object]:
    """The axes that inspect reports, but for the number of layers."""
    return {n: size for n, size in inspect_data(api.inspect(path))["axes"].items() if n != "layers"}


def test_places_of_an_image_are_not_hidden(tmp_path):
    model = save(tmp_path / "mixer.onnx", MIXER.format(shape="3, 4, 4", start=PATCHES))
    assert found(model) == {"hidden": 8, "ffn": 12}
    judge("widen hidden to 16 with cyclic copy", model, tmp_path / "grown.onnx").assert_exact()


def test_a_stream_that_no_weight_starts_is_hidden_and_refuses_to_grow(tmp_path):
    model = save(tmp_path / "mixer.onnx", MIXER.format(shape="4, 8", start="x0 = Identity(x)"))
    assert found(model)["hidden"] == [4, 8]
    with pytest.raises(GrowError, match="cannot change its size"):
        api.plan("widen hidden to 2 * hidden with cyclic copy", model)


ONE_HEAD = """
one_head (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 6] q_weight, float[8, 6] k_weight, float[8, 4] v_weight, float[4, 8] o_weight,
 float[8, 9] head>
{
    x0 = Gather(table, tokens)
    q = MatMul(x0, q_weight)
    k = MatMul(x0, k_weight)
    v = MatMul(x0, v_weight)
    kt = Transpose <perm = [0, 2, 1]> (k)
    s = MatMul(q, kt)
    p = Softmax <axis = -1> (s)
    c = MatMul(p, v)
    o = MatMul(c, o_weight)
    x1 = Add(x0, o)
    logits = MatMul(x1, head)
}
"""


def test_attention_without_an_axis_of_heads_has_one(tmp_path):
    model = save(tmp_path / "one.onnx", ONE_HEAD)
    assert found(model) == {"hidden": 8, "heads": 1, "kv_heads": 1, "head_dim": [6, 4], "vocab": 9}
    with pytest.raises(GrowError, match="there is one, and nothing counts it"):
        api.plan("widen heads to 2 with neighbor copy", model)


def test_queries_and_values_of_other_sizes_both_have_a_head_dim(tmp_path):
    model = save(tmp_path / "one.onnx", ONE_HEAD)
    done = judge("widen head_dim to 2 * head_dim with neighbor copy", model, tmp_path / "out.onnx")
    done.assert_exact()
    assert found(done.path)["head_dim"] == [12, 8]


INVERTED = """
inverted (float[N, 3, 6, 6] x) => (float[N, 5] y)
<float[4, 3, 1, 1] s, float[8, 4, 1, 1] e, float[8, 1, 3, 3] d, float[4, 8, 1, 1] p, float[4, 5] head>
{
    x0 = Conv(x, s)
    e0 = Conv(x0, e)
    e1 = Relu(e0)
    d0 = Conv <group = 8, pads = [1, 1, 1, 1]> (e1, d)
    d1 = Relu(d0)
    p0 = Conv(d1, p)
    x1 = Add(x0, p0)
    g = GlobalAveragePool(x1)
    f = Flatten(g)
    y = MatMul(f, head)
}
"""


def test_axes_that_convolutions_mix_over_places_are_channels_and_no_ffn(tmp_path):
    model = save(tmp_path / "inverted.onnx", INVERTED)
    assert found(model) == {"hidden": 4, "channels": [4, 8]}


MODULATED = """
modulated (float[N, 3, 6, 6] x) => (float[N, 5] y)
<float[4, 3, 1, 1] s, float[7, 4, 1, 1] q, float[6, 4, 1, 1] c, float[6, 1, 3, 3] d, float[7, 6, 1, 1] m,
 float[4, 7, 1, 1] p, float[8, 4, 1, 1] up, float[4, 8, 1, 1] down, float[4, 5] head>
{
    x0 = Conv(x, s)
    q0 = Conv(x0, q)
    c0 = Conv(x0, c)
    c1 = Conv <group = 6, pads = [1, 1, 1, 1]> (c0, d)
    c2 = Relu(c1)
    gate = Conv(c2, m)
    q1 = Mul(q0, gate)
    p0 = Conv(q1, p)
    x1 = Add(x0, p0)
    u0 = Conv(x1, up)
    u1 = Relu(u0)
    u2 = Conv(u1, down)
    x2 = Add(x1, u2)
    g = GlobalAveragePool(x2)
    f = Flatten(g)
    y = MatMul(f, head)
}
"""


def test_an_axis_gated_by_a_context_of_mixed_places_is_no_ffn(tmp_path):
    model = save(tmp_path / "modulated.onnx", MODULATED)
    assert found(model)["ffn"] == 8
    judge("widen ffn to 16 with cyclic copy", model, tmp_path / "grown.onnx").assert_exact()


PLACED = """
placed (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[12, 8] places, float[8, 12] up, float[12, 8] down, float[8, 9] head, int64[1] last,
 int64 start, int64 step>
{
    t = Gather(table, tokens)
    shape = Shape(tokens)
    length = Gather(shape, step)
    r = Range(start, length, step)
    i = Unsqueeze(r, last)
    p = GatherND(places, i)
    x0 = Add(t, p)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    logits = MatMul(x1, head)
}
"""


def test_places_that_are_gathered_by_computed_numbers_are_positions(tmp_path):
    numbers = {"last": [1], "start": 0, "step": 1}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    model = save(tmp_path / "placed.onnx", PLACED, **arrays)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9, "positions": 12}
    judge("widen positions to 20 with tail copy", model, tmp_path / "grown.onnx").assert_exact()


KINDS = """
kinds (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[12, 8] places, float[2, 8] parts, float[8, 12] up, float[12, 8] down,
 float[8, 9] head, int64[1, 12] zeros, int64 last, int64[1] begin, int64[1] end>
{
    t = Gather(table, tokens)
    one = CastLike(tokens, last)
    none = Sub(one, one)
    ones = Sub(none, last)
    counted = CumSum(ones, last)
    i = Add(counted, last)
    p = Gather(places, i)
    x0 = Add(t, p)
    full = Shape(tokens)
    first = Slice(full, begin, end)
    rest = Shape <start = 1> (zeros)
    wide = Concat <axis = 0> (first, rest)
    many = Expand(zeros, wide)
    kind = GatherElements <axis = 1> (many, i)
    k = Gather(parts, kind)
    x1 = Add(x0, k)
    u = MatMul(x1, up)
    a = Relu(u)
    d = MatMul(a, down)
    x2 = Add(x1, d)
    logits = MatMul(x2, head)
}
"""


def test_a_table_that_is_read_at_one_row_alone_is_of_no_positions(tmp_path):
    numbers = {"last": -1, "begin": [0], "end": [1], "zeros": [[0] * 12]}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    model = save(tmp_path / "kinds.onnx", KINDS, **arrays)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9, "positions": 12}
    judge("widen hidden to 16 with cyclic copy", model, tmp_path / "grown.onnx").assert_exact()


SHARED_PART = """
shared (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 24] q_weight, float[8, 16] k_weight, float[8, 2] part_weight,
 float[8, 16] v_weight, float[16, 8] o_weight, float[8, 9] head, int64[4] cut, int64[4] one, int64[4] many,
 int64[3] joined>
{
    x0 = Gather(table, tokens)
    q0 = MatMul(x0, q_weight)
    q1 = Reshape(q0, cut)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k0 = MatMul(x0, k_weight)
    k1 = Reshape(k0, cut)
    k2 = Transpose <perm = [0, 2, 1, 3]> (k1)
    part0 = MatMul(x0, part_weight)
    part1 = Reshape(part0, one)
    part2 = Transpose <perm = [0, 2, 1, 3]> (part1)
    part3 = Expand(part2, many)
    k = Concat <axis = -1> (k2, part3)
    v0 = MatMul(x0, v_weight)
    v1 = Reshape(v0, cut)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    c0 = Attention(q, k, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, joined)
    o = MatMul(c, o_weight)
    x1 = Add(x0, o)
    logits = MatMul(x1, head)
}
"""


def test_keys_of_which_one_part_is_the_same_for_all_heads_have_no_groups(tmp_path):
    numbers = {"cut": [0, 0, 4, -1], "one": [0, 0, 1, 2], "many": [1, 4, 1, 1], "joined": [0, 0, -1]}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    model = save(tmp_path / "shared.onnx", SHARED_PART, opset=23, **arrays)
    assert (found(model)["heads"], found(model)["kv_heads"]) == (4, 4)
    judge("widen heads to 8 with neighbor copy", model, tmp_path / "grown.onnx").assert_exact()


WEIGHED = """
weighed (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 2] router, float[8, 12] up0, float[8, 12] up1, float[12, 8] down0,
 float[12, 8] down1, float[8, 9] head>
{{
    x0 = Gather(table, tokens)
    scores = MatMul(x0, router)
    shares = Softmax <axis = -1> (scores)
    one = Constant <value_ints = [1, 1]> ()
    share0, share1 = Split <axis = -1> (shares, one)
    u0 = MatMul(x0, up0)
    a0 = Relu(u0)
    d0 = MatMul(a0, down0)
    u1 = MatMul(x0, up1)
    a1 = Relu(u1)
    d1 = MatMul(a1, down1)
    w0 = Mul(share0, d0)
    w1 = Mul({other}, share1)
    y0 = Add(w0, w1)
    y1 = Add(y0, d1)
    x1 = Add(x0, y1)
    logits = MatMul(x1, head)
}}
"""


def test_networks_that_are_weighed_with_one_share_each_are_experts(tmp_path):
    model = save(tmp_path / "weighed.onnx", WEIGHED.format(other="d1"))
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9, "experts": 2}
    with pytest.raises(GrowError, match="no stack holds them"):
        api.plan("widen experts to 4 with neighbor copy", model)


def test_shares_of_one_network_are_no_experts(tmp_path):
    model = save(tmp_path / "weighed.onnx", WEIGHED.format(other="d0"))
    assert "experts" not in found(model)


FACTORISED = """
factorised (int64[N, S] tokens, int64[N, S] kinds) => (float[N, S, 9] logits)
<float[9, 4] table, float[4, 8] project, float[2, 8] kind_table, float[8, 12] up, float[12, 8] down,
 float[8, 9] head>
{
    t = Gather(table, tokens)
    p = MatMul(t, project)
    k = Gather(kind_table, kinds)
    x0 = Add(p, k)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    logits = MatMul(x1, head)
}
"""


def test_kinds_of_tokens_are_no_vocabulary_beside_a_factorised_one(tmp_path):
    model = save(tmp_path / "factorised.onnx", FACTORISED)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9}


AROUND = """
around (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 12] up, float[12, 3] narrow, float[3, 12] wide, float[12] skip,
 float[12, 8] down, float[8, 9] head>
{
    x0 = Gather(table, tokens)
    u = MatMul(x0, up)
    a = Relu(u)
    s = MatMul(a, narrow)
    t = Relu(s)
    w = MatMul(t, wide)
    k = Mul(a, skip)
    y = Add(w, k)
    d = MatMul(y, down)
    x1 = Add(x0, d)
    logits = MatMul(x1, head)
}
"""


def test_a_weighted_way_around_something_inside_a_branch_is_no_stream(tmp_path):
    model = save(tmp_path / "around.onnx", AROUND)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9}


FIXED = """
fixed (int64[N, {length}] tokens) => (float[N, {length}, 9] logits)
<float[9, 8] table, float[12, 8] places, float[8, 12] up, float[12, 8] down, float[8, 9] head>
{{
    t = Gather(table, tokens)
    p = Gather(places, order)
    x0 = Add(t, p)
    u = MatMul(x0, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x0, d)
    logits = MatMul(x1, head)
}}
"""


NORMED = """
normed (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8] gain, float[8, 12] up, float[12, 8] down, float[8, 9] head,
 float eps = {1e-5}, float alpha = {0.5}>
{
    x0 = Gather(table, tokens)
    q = Mul(x0, x0)
    m = ReduceMean <axes = [-1]> (q)
    e = Add(m, eps)
    r = Sqrt(e)
    n = Div(x0, r)
    g = Mul(n, gain)
    u = MatMul(g, up)
    a = Relu(u)
    d = MatMul(a, down)
    k = Mul(g, alpha)
    x1 = Add(k, d)
    logits = MatMul(x1, head)
}
"""


def test_a_norm_whose_result_goes_around_a_branch_times_a_number_makes_a_stream(tmp_path):
    model = save(tmp_path / "normed.onnx", NORMED)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9}


CAST = {
    "behind the norm": ("g = Mul(n, gain)", "c = Cast <to = 1> (n) g = Mul(c, gain)"),
    "behind the gain": ("k = Mul(g, alpha)", "c = Cast <to = 1> (g) k = Mul(c, alpha)"),
    "behind the number": ("x1 = Add(k, d)", "c = Identity(k) x1 = Add(c, d)"),
}


@pytest.mark.parametrize("place", CAST)
def test_a_cast_on_the_way_around_a_branch_changes_no_name(tmp_path, place):
    model = save(tmp_path / "cast.onnx", NORMED.replace(*CAST[place]))
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9}


@pytest.mark.parametrize("length", [12, 7])
def test_a_table_that_is_taken_in_order_is_one_that_is_added(tmp_path, length):
    order = np.arange(length, dtype=np.int64)
    model = save(tmp_path / "fixed.onnx", FIXED.format(length=length), order=order)
    assert found(model) == {"hidden": 8, "ffn": 12, "vocab": 9}


LEARNED_QUERIES = """
decoder (float[N, 9, 8] states) => (float[N, 4, 5] boxes)
<float[8, 8] enter, float[8, 1] score, float[8, 8] q_weight, float[8, 8] k_weight, float[8, 12] v_weight,
 float[12, 8] o_weight, float[8, 16] up, float[16, 8] down, float[8] norm, float[8, 5] head,
 float[4, 8] queries>
{
    s0 = MatMul(states, enter)
    scores = MatMul(s0, score)
    four = Constant <value_ints = [4]> ()
    best, order = TopK <axis = 1> (scores, four)
    ones = Constant <value_ints = [1, 1, 8]> ()
    each = Expand(order, ones)
    reference = GatherElements <axis = 1> (s0, each)
    N = Shape <end = 1> (states)
    rest = Constant <value_ints = [4, 8]> ()
    whole = Concat <axis = 0> (N, rest)
    x0 = Expand(queries, whole)
    x0p = Add(x0, reference)
    cut = Constant <value_ints = [0, 0, 2, -1]> ()
    q0 = MatMul(x0p, q_weight)
    q1 = Reshape(q0, cut)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k0 = MatMul(x0p, k_weight)
    k1 = Reshape(k0, cut)
    k = Transpose <perm = [0, 2, 3, 1]> (k1)
    v0 = MatMul(x0, v_weight)
    v1 = Reshape(v0, cut)
    v = Transpose <perm = [0, 2, 1, 3]> (v1)
    w0 = MatMul(q, k)
    w = Softmax <axis = -1> (w0)
    c0 = MatMul(w, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    flat = Constant <value_ints = [0, 0, -1]> ()
    c = Reshape(c1, flat)
    o = MatMul(c, o_weight)
    x1 = Add(x0, o)
    n = LayerNormalization <axis = -1> (x1, norm)
    u0 = MatMul(n, up)
    u = Relu(u0)
    d = MatMul(u, down)
    x2 = Add(n, d)
    boxes = MatMul(x2, head)
}
"""


def test_values_that_only_weights_make_are_no_ffn(tmp_path):
    model = save(tmp_path / "decoder.onnx", LEARNED_QUERIES)
    assert found(model) == {"hidden": 8, "heads": 2, "kv_heads": 2, "head_dim": [4, 6], "ffn": 16}
    for text in ("ffn to 32", "heads to 4"):
        judge(f"widen {text} with cyclic copy", model, tmp_path / "grown.onnx").assert_exact()
