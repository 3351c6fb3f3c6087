"""Small models written in ONNX's text syntax, with weights drawn from their shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser

ROOT = Path(__file__).parent.parent
TINY = ROOT / "examples/models/tiny-gpt.onnx"
DEMO = ROOT / "examples/demo.grow"


UP_DOWN = """
m (float[N, 64] x) => (float[N, 6] y)
<float[64, 80] up, float[80, 6] down>
{ h = MatMul(x, up)  r = Relu(h)  y = MatMul(r, down) }
"""
"""Two products, with weights that are large enough to lie in a file of their own."""


def save(path: Path, graph: str, *, opset: int = 17, external: bool = False, **weights: Any) -> Path:
    """Save a graph. Values in `<float[4, 8] w, …>` behind its outputs are weights, drawn from N(0, 1).

    Keywords are values of weights.
    """
    fused = ', "com.microsoft" : 1' if "com.microsoft." in graph else ""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{fused}]>\n{graph}')
    computed = {name for node in model.graph.node for name in node.output}
    random = np.random.default_rng(0)
    for info in list(model.graph.value_info):
        if info.name not in computed:
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            weights.setdefault(info.name, random.standard_normal(shape).astype(np.float32))
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    kept = [info for info in model.graph.value_info if info.name in computed]
    del model.graph.value_info[:]
    model.graph.value_info.extend(kept)
    onnx.save(model, path, save_as_external_data=external, location=f"{path.name}.data", size_threshold=0)
    return path


MLP = """
mlp (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] fc1_weight, float[8] fc1_bias, float[8, 3] fc2_weight, float[3] fc2_bias>
{
    a = Gemm(x, fc1_weight, fc1_bias)
    b = Relu(a)
    y = Gemm(b, fc2_weight, fc2_bias)
}
"""

STREAM = """
stream (int64[N] tokens) => (float[N, 16] logits)
<float[16, 8] table, float[8] norm1_weight, float[8] norm1_bias, float[8, 12] up_weight, float[12] up_bias,
 float[12, 8] down_weight, float[8] down_bias, float[8] norm2_weight, float[8] norm2_bias>
{
    x0 = Gather(table, tokens)
    n1 = LayerNormalization <axis = -1> (x0, norm1_weight, norm1_bias)
    u = MatMul(n1, up_weight)
    ub = Add(u, up_bias)
    act = Relu(ub)
    d = MatMul(act, down_weight)
    db = Add(d, down_bias)
    x1 = Add(x0, db)
    n2 = LayerNormalization <axis = -1> (x1, norm2_weight, norm2_bias)
    head = Transpose <perm = [1, 0]> (table)
    logits = MatMul(n2, head)
}
"""

TRANSLATOR = """
translator (float[N, S, 6] source, int64[N, T] tokens) => (float[N, T, 18] logits)
<float[6, 8] start, float[8, 12] enc_up, float[12, 8] enc_down, float[18, 10] table, float[10, 20] dec_up,
 float[20, 10] dec_down, float[10, 5] query, float[8, 5] key, float[8, 5] value, float[5, 10] out,
 float[10, 18] head>
{
    e0 = MatMul(source, start)
    eu = MatMul(e0, enc_up)
    ea = Relu(eu)
    ed = MatMul(ea, enc_down)
    e1 = Add(e0, ed)
    d0 = Gather(table, tokens)
    q = MatMul(d0, query)
    k = MatMul(e1, key)
    v = MatMul(e1, value)
    kt = Transpose <perm = [0, 2, 1]> (k)
    scores = MatMul(q, kt)
    p = Softmax <axis = -1> (scores)
    c = MatMul(p, v)
    o = MatMul(c, out)
    d1 = Add(o, d0)
    du = MatMul(d1, dec_up)
    da = Relu(du)
    dd = MatMul(da, dec_down)
    d2 = Add(d1, dd)
    logits = MatMul(d2, head)
}
"""

TOWERS = """
towers (float[N, 6] a, float[N, 7] b) => (float[N, M] scores)
<float[6, 8] start0, float[8, 12] up0, float[12, 8] down0, float[7, 9] start1, float[9, 20] up1,
 float[20, 9] down1, float[8, 4] end0, float[9, 4] end1>
{
    a0 = MatMul(a, start0)
    au = MatMul(a0, up0)
    aa = Relu(au)
    ad = MatMul(aa, down0)
    a1 = Add(a0, ad)
    b0 = MatMul(b, start1)
    bu = MatMul(b0, up1)
    ba = Relu(bu)
    bd = MatMul(ba, down1)
    b1 = Add(b0, bd)
    x = MatMul(a1, end0)
    y = MatMul(b1, end1)
    yt = Transpose <perm = [1, 0]> (y)
    scores = MatMul(x, yt)
}
"""


GROUPED = """
attention (float[B, S, {width}] x{given}) => (float[B, S, {width}] y{outputs})
<float[{width}, {queries}] q_weight, float[{width}, {shared}] k_weight, float[{width}, {shared}] v_weight,
 float[{queries}, {width}] o_weight, int64[5] wide, int64[4] merged, int64[4] few, int64[4] flat4,
 int64[3] back, int64[1] two{weights}>
{{
    q1 = MatMul(x, q_weight)
    q2 = Reshape(q1, merged)
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k1 = MatMul(x, k_weight)
    k2 = Reshape(k1, few)
    k3 = Transpose <perm = [0, 2, 1, 3]> (k2)
    v1 = MatMul(x, v_weight)
    v2 = Reshape(v1, few)
    v3 = Transpose <perm = [0, 2, 1, 3]> (v2)
{keys}
    k5 = Unsqueeze(k4, two)
    k6 = Expand(k5, wide)
    k7 = Reshape(k6, flat4)
    k = Transpose <perm = [0, 1, 3, 2]> (k7)
    v5 = Unsqueeze(v4, two)
    v6 = Expand(v5, wide)
    v = Reshape(v6, flat4)
    s = MatMul(q, k)
{scores}
    p = Softmax <axis = -1> (scores)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}}
"""
SAME_KEYS, SAME_SCORES = "    k4 = Identity(k3)\n    v4 = Identity(v3)", "    scores = Identity(s)"


def grouped(path: Path, keys: int, group: int, depth: int, width: int, **more: Any) -> Path:
    """Save grouped attention: `group` query heads of `depth` units for each of `keys` key/value heads.

    Keywords are values of weights, or texts: `keys_of` makes k4 and v4 of k3 and v3, `scores` scores of s;
    `given`, `outputs` and `weights` stand behind the other inputs, outputs and weights.
    """
    texts = {name: more.pop(name, "") for name in ("given", "outputs", "weights")}
    texts |= {"keys": more.pop("keys_of", SAME_KEYS), "scores": more.pop("scores", SAME_SCORES)}
    queries, shared = keys * group * depth, keys * depth
    numbers = {
        "wide": [1, 1, group, 1, 1],
        "merged": [0, 0, keys * group, depth],
        "few": [0, 0, keys, depth],
        "flat4": [0, keys * group, -1, depth],
        "back": [0, 0, -1],
        "two": [2],
    }
    ints = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    return save(path, GROUPED.format(width=width, queries=queries, shared=shared, **texts), **ints, **more)


ONE_HEAD = """
attention (int64[N, S] tokens) => (float[N, S, 9] logits)
<float[9, 8] table, float[8, {queries}] q_weight, float[8, 4] k_weight, float[8, 4] v_weight,
 float[{queries}, 8] o_weight, float[8, 9] head, int64[1] one, int64[1] two, int64[4] shape, int64[4] many,
 int64[3] back>
{{
    x = Gather(table, tokens)
    q0 = MatMul(x, q_weight)
    k0 = MatMul(x, k_weight)
    v0 = MatMul(x, v_weight)
    q1 = {opened}
    q = Transpose <perm = [0, 2, 1, 3]> (q1)
{keys}
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = {closed}
    o = MatMul(c, o_weight)
    y = Add(x, o)
    logits = MatMul(y, head)
}}
"""
ONE_KEY = {
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
"""How one key/value head of four units is put in."""


def one_key_head(
    path: Path,
    keys: str,
    heads: int = 3,
    opened: str = "Reshape(q0, many)",
    closed: str = "Reshape(c1, back)",
) -> Path:
    """Save attention of `heads` query heads with one key/value head, put in as ONE_KEY says."""
    text = ONE_HEAD.format(keys=ONE_KEY[keys], queries=4 * heads, opened=opened, closed=closed)
    numbers = {"one": [1], "two": [2], "shape": [0, 0, 1, 4], "many": [0, 0, 3, 4], "back": [0, 0, 4 * heads]}
    return save(path, text, **{name: np.array(value) for name, value in numbers.items()})
