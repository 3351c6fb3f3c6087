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


def save(path: Path, graph: str, *, opset: int = 17, external: bool = False, **weights: Any) -> Path:
    """Save a graph. What stands in `<float[4, 8] w, …>` behind its outputs is a weight, drawn from N(0, 1).

    Keywords are values of weights.
    """
    fused = ', "com.microsoft" : 1' if "com.microsoft." in graph else ""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : {opset}{fused}]>\n{graph}')
    made = {name for node in model.graph.node for name in node.output}
    random = np.random.default_rng(0)
    for info in list(model.graph.value_info):
        if info.name not in made:
            shape = [d.dim_value for d in info.type.tensor_type.shape.dim]
            weights.setdefault(info.name, random.standard_normal(shape).astype(np.float32))
    for name, value in weights.items():
        model.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(value), name))
    kept = [info for info in model.graph.value_info if info.name in made]
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
