"""Caches of attention operators: the past is an operand, the present a result."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import numpy_helper

from growc.api import apply

HIDDEN, HEADS, GROUPS, DEPTH, VOCAB = 12, 4, 2, 8, 20
KEPT = ", ".join(f"float[b, {GROUPS}, p, {DEPTH}] {name}" for name in ("past_k", "past_v"))
GIVEN = ", ".join(f"float[b, {GROUPS}, t, {DEPTH}] {name}" for name in ("key", "value"))
SHARED = """
    x = Gather(table, ids)
    n = LayerNormalization<axis = -1>(x, gain, bias)
    q = MatMul(n, wq)
    k = MatMul(n, wk)
    v = MatMul(n, wv)
    %s
    o = MatMul(a, wo)
    y = Add(x, o)
    logits = MatMul(y, head)
"""
GRAPHS = {
    "Attention": (
        f"({KEPT}, int64[b, s] ids) => (float[b, s, {VOCAB}] logits, {GIVEN})",
        f"a, key, value = Attention<q_num_heads = {HEADS}, kv_num_heads = {GROUPS}, is_causal = 1>"
        "(q, k, v, , past_k, past_v)",
        GROUPS,
    ),
    "GroupQueryAttention": (
        f"({KEPT}, int64[b, s] ids) => (float[b, s, {VOCAB}] logits, {GIVEN})",
        "old = Shape<start = 2, end = 3>(past_k)  new = Shape<start = 1, end = 2>(ids)"
        "  total = Add(old, new)  less = Sub(total, one)  batch = Shape<start = 0, end = 1>(ids)"
        "  spread = Expand(less, batch)  lengths = Cast<to = 6>(spread)  whole = Squeeze(total, zero)"
        "  all = Cast<to = 6>(whole)"
        f"  a, key, value = com.microsoft.GroupQueryAttention<num_heads = {HEADS}, kv_num_heads = {GROUPS}>"
        "(q, k, v, past_k, past_v, lengths, all)",
        GROUPS,
    ),
    "Attention of onnxruntime": (
        f"(float[2, b, {HEADS}, p, {DEPTH}] past, int64[b, s] ids) =>"
        f" (float[b, s, {VOCAB}] logits, float[2, b, {HEADS}, t, {DEPTH}] present)",
        f"a, present = com.microsoft.Attention"
        f"<num_heads = {HEADS}, unidirectional = 1>(n, packed, packed_bias, , past)",
        HEADS,
    ),
}


def model(path, name):
    signature, core, groups = GRAPHS[name]
    header = '<ir_version: 10, opset_import: ["" : 23, "com.microsoft" : 1]>\n'
    made = onnx.parser.parse_model(f"{header} g {signature} {{ {SHARED % core} }}")
    shapes = {
        "table": (VOCAB, HIDDEN),
        "gain": (HIDDEN,),
        "bias": (HIDDEN,),
        "wq": (HIDDEN, HEADS * DEPTH),
        "wk": (HIDDEN, groups * DEPTH),
        "wv": (HIDDEN, groups * DEPTH),
        "packed": (HIDDEN, 3 * HEADS * DEPTH),
        "packed_bias": (3 * HEADS * DEPTH,),
        "wo": (HEADS * DEPTH, HIDDEN),
        "head": (HIDDEN, VOCAB),
    }
    random = np.random.default_rng(0)
    used = {name for node in made.graph.node for name in node.input}
    for key, shape in shapes.items():
        values = random.standard_normal(shape) * (0.4 if len(shape) > 1 else 1)
        if key in used:
            made.graph.initializer.append(numpy_helper.from_array(values.astype(np.float32), key))
    for key, number in (("zero", 0), ("one", 1)):
        if key in used:
            made.graph.initializer.append(numpy_helper.from_array(np.array([number]), key))
    onnx.save(made, path)
    return path


@pytest.mark.parametrize("recipe", ["heads to 8 with neighbor copy", "hidden to 24 with cyclic copy"])
@pytest.mark.parametrize("name", GRAPHS)
def test_growth_is_exact(tmp_path, name, recipe):
    done = apply(f"widen {recipe}", model(tmp_path / "model.onnx", name), tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert not done.verification.refutes_exact()
    assert done.verification.cases == 2


@pytest.mark.parametrize("name", ["Attention", "GroupQueryAttention"])
def test_key_and_value_heads_grow_with_their_caches(tmp_path, name):
    done = apply(
        "widen kv_heads to heads with neighbor copy",
        model(tmp_path / "model.onnx", name),
        tmp_path / "grown.onnx",
    )
    assert done.plan.certificate.exact
    shape = onnx.load(done.written).graph.input[0].type.tensor_type.shape
    assert shape.dim[1].dim_value == HEADS
