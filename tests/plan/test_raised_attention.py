"""Attention is raised to one form, and its packing named, however it is spelt; look-alikes stay operators.

Each model is a few lines of ONNX's text syntax between the same table and head. A form that is lowered again
must give the source's values: heads are a batch of what lies between queries, keys, values and the averages,
and what a projection makes, cut as its packing says, is what attention reads.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import torch
from graphs import save
from models import FLAVOURS, build

from growc import api
from growc.passes.axes.queries import AxisQueries
from growc.passes.raising.attention import Attention, left_plain, packing
from growc.render.inspection import inspect_data, inspect_lines

HEADS, DEPTH = 3, 4

MODEL = """
attention (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 12] q_weight, float[8, 12] k_weight, float[8, 12] v_weight, float[36] bias,
 float[8, 36] packed_weight, float[8, 24] pair_weight, float[8, 60] grouped_weight,
 float[{width}, 8] o_weight, float[8, 9] head, float[3, 3] mixing, float[3, 3] again, float[12, 7] memory,
 int64[4] four,
 int64[5] rows, int64[5] each, int64[5] last, int64[5] groups, int64[4] joined, int64[3] back, int64 at0,
 int64 at1, int64 at2, int64[3] thirds, int64[3] widths, int64[3] shares, int64[1] first, int64[4] square>
{{
    x = Gather(table, tokens)
{lines}
    o = MatMul(c, o_weight)
    y = Add(x, o)
    logits = MatMul(y, head)
}}
"""
NUMBERS = {
    "four": [0, 0, 3, 4],
    "rows": [0, 0, 3, 3, 4],
    "each": [0, 0, 3, 3, 4],
    "last": [0, 0, 3, 4, 3],
    "groups": [0, 0, 3, 5, 4],
    "joined": [0, 0, 3, 12],
    "at0": 0,
    "at1": 1,
    "at2": 2,
    "thirds": [12, 12, 12],
    "widths": [4, 4, 4],
    "shares": [3, 1, 1],
    "first": [1],
    "square": [3, 3, 1, 1],
}

TURNED = """
    q = Transpose <perm = [0, 2, 1, 3]> (qs)
    k = Transpose <perm = [0, 2, 3, 1]> (ks)
    v = Transpose <perm = [0, 2, 1, 3]> (vs)
"""
CUT = "".join(f"    {n}s = Reshape({n}0, four)\n" for n in "qkv") + TURNED
WEIGHED = """
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
"""
MERGED = """
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
"""
APART = "".join(f"    {n}0 = MatMul(x, {n}_weight)\n" for n in "qkv")
PACKED = "    z0 = MatMul(x, packed_weight)\n    z = Add(z0, bias)\n"

PACKINGS: dict[str, tuple[str, str]] = {
    "P1": (APART + CUT, "queries, keys and values apart"),
    "P2": (PACKED + "    q0, k0, v0 = Split <axis = -1> (z, thirds)\n" + CUT, "in a row"),
    "P2, an axis of three": (
        PACKED
        + "    r = Reshape(z, rows)\n"
        + "".join(f"    {n}s = Gather <axis = 2> (r, at{i})\n" for i, n in enumerate("qkv"))
        + TURNED,
        "in a row",
    ),
    "P3": (
        PACKED + "    r = Reshape(z, joined)\n    qs, ks, vs = Split <axis = -1> (r, widths)\n" + TURNED,
        "head by head",
    ),
    "P3, an axis of three": (
        PACKED
        + "    r = Reshape(z, each)\n"
        + "".join(f"    {n}s = Gather <axis = 3> (r, at{i})\n" for i, n in enumerate("qkv"))
        + TURNED,
        "head by head",
    ),
    "P4": (
        PACKED
        + "    r = Reshape(z, last)\n"
        + "".join(f"    {n}s = Gather <axis = 4> (r, at{i})\n" for i, n in enumerate("qkv"))
        + TURNED,
        "channel by channel",
    ),
}


def raised(path: Path) -> tuple[AxisQueries, list[Attention]]:
    """The axis graph of a model, and what was raised in it."""
    c = api.inspect(path)
    return AxisQueries(c.axes), c.roles.attention


def model(path: Path, lines: str, width: int = HEADS * DEPTH, opset: int = 17, length: str = "S") -> Path:
    numbers = {name: np.array(value) for name, value in (NUMBERS | {"back": [0, 0, width]}).items()}
    text = MODEL.format(lines=lines, width=width).replace("[N, S", f"[N, {length}")
    return save(path, text, opset=opset, **numbers)


def values_of(path: Path, tokens: np.ndarray, *names: str) -> list[np.ndarray]:
    """Values inside a model."""
    loaded = onnx.load(path)
    loaded.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    session = ort.InferenceSession(loaded.SerializeToString())
    return session.run(list(names), {"tokens": tokens})


TOKENS = np.array([[0, 5, 2, 7, 1], [8, 3, 3, 6, 4]])


@pytest.mark.parametrize("rule", PACKINGS)
def test_a_packing_has_its_name(rule, tmp_path):
    lines, order = PACKINGS[rule]
    flow, [one] = raised(model(tmp_path / "m.onnx", lines + WEIGHED + MERGED))
    assert str(packing(flow, one)).endswith(order)
    assert [i.node.inputs[k].name for i, k in one.operands] == ["q", "k", "v"]
    assert [s.size[0] for s in one.heads] == [HEADS]
    assert [[s.size[0] for s in depth] for depth in one.depths] == [[DEPTH], [DEPTH]]


CUTS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "in a row": lambda z: z.reshape(*z.shape[:2], 3, HEADS, DEPTH).transpose(2, 0, 3, 1, 4),
    "head by head": lambda z: z.reshape(*z.shape[:2], HEADS, 3, DEPTH).transpose(3, 0, 2, 1, 4),
    "channel by channel": lambda z: z.reshape(*z.shape[:2], HEADS, DEPTH, 3).transpose(4, 0, 2, 1, 3),
}


@pytest.mark.parametrize("rule", [rule for rule in PACKINGS if rule != "P1"])
def test_a_projection_cut_as_its_packing_says_is_what_attention_reads(rule, tmp_path):
    path = model(tmp_path / "m.onnx", PACKINGS[rule][0] + WEIGHED + MERGED)
    flow, [one] = raised(path)
    made, *read = values_of(path, TOKENS, "z", "q", "k", "v")
    q, k, v = CUTS[packing(flow, one).order](made)
    for ours, theirs in zip((q, k.swapaxes(2, 3), v), read, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("rule", PACKINGS)
def test_heads_are_a_batch_of_what_lies_between_the_operands_and_the_averages(rule, tmp_path):
    path = model(tmp_path / "m.onnx", PACKINGS[rule][0] + WEIGHED + MERGED)
    _, [one] = raised(path)
    names = [i.node.inputs[k].name for i, k in one.operands]
    *given, before = values_of(path, TOKENS, *names, "c0")
    inside = onnx.utils.Extractor(onnx.shape_inference.infer_shapes(onnx.load(path)))
    core = ort.InferenceSession(inside.extract_model(names, ["c0"]).SerializeToString())
    order = [2, 0, 1]
    turned = {name: value[:, order] for name, value in zip(names, given, strict=True)}
    np.testing.assert_allclose(core.run(["c0"], turned)[0], before[:, order], rtol=1e-5, atol=1e-6)


GROUPED = """
    z = MatMul(x, grouped_weight)
    r = Reshape(z, groups)
    qs, k4, v4 = Split <axis = 3> (r, shares)
    q = Transpose <perm = [0, 2, 3, 1, 4]> (qs)
    k = Transpose <perm = [0, 2, 3, 4, 1]> (k4)
    v = Transpose <perm = [0, 2, 3, 1, 4]> (v4)
"""


def test_groups_that_one_projection_makes_are_packed_group_by_group(tmp_path):
    merged = "    c1 = Transpose <perm = [0, 3, 1, 2, 4]> (c0)\n    c = Reshape(c1, back)\n"
    path = model(tmp_path / "m.onnx", GROUPED + WEIGHED + merged, width=36)
    flow, [one] = raised(path)
    assert str(packing(flow, one)) == "queries, keys and values packed group by group"
    assert sorted(s.size[0] for s in one.heads) == [3, 3]
    [kind] = inspect_data(api.inspect(path))["attention"]
    assert (kind["heads"], kind["kv_heads"], kind["head_dim"]) == (9, 3, 4)


def test_keys_and_values_that_share_a_projection_are_packed_without_the_queries(tmp_path):
    pair = (
        "    q0 = MatMul(x, q_weight)\n    z = MatMul(x, pair_weight)\n    k0, v0 = Split <axis = -1> (z)\n"
    )
    flow, [one] = raised(model(tmp_path / "m.onnx", pair + CUT + WEIGHED + MERGED))
    assert str(packing(flow, one)) == "keys and values packed in a row"


ONE_HEAD = {
    "in products": "    k = Transpose <perm = [0, 2, 1]> (k1)" + WEIGHED + "    c = Identity(c0)\n",
    "in an operator": """
    q4 = Unsqueeze(q, first)
    k4 = Unsqueeze(k1, first)
    v4 = Unsqueeze(v, first)
    c4 = Attention(q4, k4, v4)
    c = Squeeze(c4, first)
""",
}


@pytest.mark.parametrize("spelling", ONE_HEAD)
def test_one_head_in_all_is_raised(spelling, tmp_path):
    made = "".join(f"    {y} = MatMul(x, {w}_weight)\n" for y, w in zip(("q", "k1", "v"), "qkv", strict=True))
    flow, [one] = raised(model(tmp_path / "m.onnx", made + ONE_HEAD[spelling], opset=23))
    assert one.heads == ()
    assert [[s.size[0] for s in depth] for depth in one.depths] == [[12], [12]]
    assert str(packing(flow, one)) == "queries, keys and values apart"


REPEATED_END_TO_END = """
    q0 = MatMul(x, q_weight)
    k0 = MatMul(x, k_weight)
    v0 = MatMul(x, v_weight)
    q1 = Reshape(q0, four)
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
    k1 = Reshape(k0, four)
    k2 = Transpose <perm = [0, 2, 3, 1]> (k1)
    v1 = Reshape(v0, four)
    v2 = Transpose <perm = [0, 2, 1, 3]> (v1)
    q3 = Concat <axis = 1> (q, q)
    k = Concat <axis = 1> (k2, k2)
    v = Concat <axis = 1> (v2, v2)
    s = MatMul(q3, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
"""


def test_heads_end_to_end_are_added_up(tmp_path):
    path = model(tmp_path / "m.onnx", REPEATED_END_TO_END + MERGED, width=24)
    [kind] = inspect_data(api.inspect(path))["attention"]
    assert (kind["heads"], kind["kv_heads"], kind["head_dim"]) == (6, 6, 4)


GROUPED_BY_EINSUM = """
    z = MatMul(x, grouped_weight)
    r = Reshape(z, groups)
    qs, k4, v4 = Split <axis = 3> (r, shares)
    third = Constant <value_ints = [3]> ()
    k = Squeeze(k4, third)
    v = Squeeze(v4, third)
    s = Einsum <equation = "bskgd,btkd->bkgst"> (qs, k)
    p = Softmax <axis = -1> (s)
    c0 = Einsum <equation = "bkgst,btkd->bskgd"> (p, v)
    c = Reshape(c0, back)
"""


def test_groups_that_only_an_equation_stretches_are_groups(tmp_path):
    path = model(tmp_path / "m.onnx", GROUPED_BY_EINSUM, width=36)
    [kind] = inspect_data(api.inspect(path))["attention"]
    assert (kind["heads"], kind["kv_heads"], kind["head_dim"]) == (9, 3, 4)
    assert kind["packing"] == "queries, keys and values packed group by group"


BIASED = """
biased (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, 12] q_weight, float[8, 12] k_weight, float[8, 12] v_weight, float[36] bias,
 float[12, 8] o_weight, float[8, 9] head>
{
    x = Gather(table, tokens)
    q = MatMul(x, q_weight)
    k = MatMul(x, k_weight)
    v = MatMul(x, v_weight)
    c = com.microsoft.MultiHeadAttention <num_heads = 3> (q, k, v, bias)
    o = MatMul(c, o_weight)
    y = Add(x, o)
    logits = MatMul(y, head)
}
"""


def test_a_bias_in_a_row_does_not_pack_the_weights(tmp_path):
    flow, [one] = raised(save(tmp_path / "m.onnx", BIASED))
    assert str(packing(flow, one)) == "queries, keys and values apart"


BEFORE = """
    s0 = MatMul(q, k)
    s1 = Transpose <perm = [0, 2, 3, 1]> (s0)
    s2 = MatMul(s1, mixing)
    s = Transpose <perm = [0, 3, 1, 2]> (s2)
"""
BEHIND = """
    m = Reshape(again, square)
    p = Conv(p0, m)
"""
MIXED = {
    "before the softmax": (BEFORE + "    p = Softmax <axis = -1> (s)\n", 2),
    "behind it": ("    s = MatMul(q, k)\n    p0 = Softmax <axis = -1> (s)\n" + BEHIND, 2),
    "on both sides": (BEFORE + "    p0 = Softmax <axis = -1> (s)\n" + BEHIND, 3),
}


@pytest.mark.parametrize("length", ["S", "5"])
@pytest.mark.parametrize("where", MIXED)
def test_heads_that_a_weight_makes_of_heads_are_heads(where, length, tmp_path):
    """H4: the mixing has twice the heads on both its sides, and what is computed stays."""
    lines, spaces = MIXED[where]
    path = model(tmp_path / "m.onnx", APART + CUT + lines + "    c0 = MatMul(p, v)\n" + MERGED, length=length)
    [kind] = inspect_data(api.inspect(path))["attention"]
    assert (kind["heads"], kind["head_dim"]) == (HEADS, DEPTH)
    assert len(api.inspect(path).roles.axes["heads"]) == spaces
    target = tmp_path / "out.onnx"
    done = api.apply("widen heads to 2 * heads with neighbor copy", path, target)
    assert done.plan.certificate.exact
    [before], [after] = values_of(path, TOKENS, "logits"), values_of(target, TOKENS, "logits")
    assert np.abs(before - after).max() < 1e-4 * np.abs(before).max()


OF_A_CLASS = {
    "gpt2": [(2, 6, 6, 8, "queries, keys and values packed in a row")],
    "llama": [(2, 6, 2, 8, "queries, keys and values apart")],
    "bert": [(2, 6, 6, 8, "queries, keys and values apart")],
}


@pytest.mark.parametrize("name", OF_A_CLASS)
def test_every_file_of_a_class_and_the_module_say_the_same_of_its_attention(name, models):
    for flavour in FLAVOURS:
        data = inspect_data(api.inspect(models.path(name, flavour)))
        assert [tuple(kind.values()) for kind in data["attention"]] == OF_A_CLASS[name], flavour
    ids = torch.randint(4, 90, (2, 7), generator=torch.Generator().manual_seed(0))
    inputs = (ids, torch.ones_like(ids), ids % 2)[: 3 if name == "bert" else 2]
    module = inspect_data(api.inspect(build(name), example_inputs=inputs))
    assert [tuple(kind.values()) for kind in module["attention"]] == OF_A_CLASS[name]


LOOK_ALIKES = {
    "the scores are a product with a weight": (
        "    q0 = MatMul(x, q_weight)\n    s = MatMul(q0, memory)\n    p0 = Softmax <axis = 1> (s)\n"
        "    p = Transpose <perm = [0, 2, 1]> (p0)\n    v = MatMul(x, v_weight)\n    c0 = MatMul(p, v)\n"
        "    c1 = ReduceSum <keepdims = 1> (c0, first)\n    c = Expand(c1, first)\n",
        1,
    ),
    "a softmax of what nothing averages over": (
        "    q0 = MatMul(x, q_weight)\n    c = Softmax <axis = -1> (q0)\n",
        0,
    ),
    "a weight makes the axis that the softmax normalises": (
        APART
        + CUT
        + "    s0 = MatMul(q, k)\n    s1 = Transpose <perm = [0, 2, 3, 1]> (s0)\n"
        + "    s2 = MatMul(s1, mixing)\n    p0 = Softmax <axis = -1> (s2)\n"
        + "    p = Transpose <perm = [0, 3, 1, 2]> (p0)\n    c0 = MatMul(p, v)\n"
        + MERGED,
        1,
    ),
    "a weight asks for a mean of what a product of activations made": (
        APART
        + CUT
        + "    a0 = MatMul(q, k)\n    a = Tanh(a0)\n    c0 = MatMul(a, v)\n"
        + MERGED.replace(" c =", " made =")
        + "    keys = Transpose <perm = [0, 2, 1]> (made)\n    asked = Transpose <perm = [1, 0]> (memory)\n"
        + "    s = MatMul(asked, keys)\n    p = Softmax <axis = -1> (s)\n    m0 = MatMul(p, made)\n"
        + "    m = ReduceSum <keepdims = 1> (m0, first)\n    c = Expand(m, first)\n",
        1,
    ),
    "the product is squashed, and no softmax weighs it": (
        APART + CUT + "    s = MatMul(q, k)\n    p = Sigmoid(s)\n    c0 = MatMul(p, v)\n" + MERGED,
        0,
    ),
}


@pytest.mark.parametrize("length", ["S", "5"])
@pytest.mark.parametrize("name", LOOK_ALIKES)
def test_a_look_alike_stays_operators(name, length, tmp_path):
    lines, shown = LOOK_ALIKES[name]
    path = model(tmp_path / "m.onnx", lines, length=length)
    flow, found = raised(path)
    assert found == []
    assert len(left_plain(flow, found)) == shown
    text = "\n".join(inspect_lines(api.inspect(path)))
    said = "left as plain operators, no product of activations makes the scores: Softmax"
    assert (said in text) == bool(shown)
