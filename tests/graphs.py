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
