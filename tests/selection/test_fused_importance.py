"""Importance of a file that onnxruntime has fused is that of the plain file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import save
from models import stored
from published import ROOT

import growc

EXTENDED = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_EXTENDED


def fused(model: Path, out: Path) -> Path:
    """The file that onnxruntime writes of what it runs."""
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = EXTENDED
    options.optimized_model_filepath = str(out)
    onnxruntime.InferenceSession(str(model), options, providers=["CPUExecutionProvider"])
    return out


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["tiny-bert", "tiny-gpt"])
def test_scores_of_a_fused_file_are_those_of_the_plain_one(tmp_path: Path, name: str) -> None:
    plain = ROOT / "examples" / "models" / f"{name}.onnx"
    other = fused(plain, tmp_path / "fused.onnx")
    kinds = {node.op_type for node in onnx.load(other).graph.node}
    assert "SkipLayerNormalization" in kinds
    ids = np.random.default_rng(0).integers(0, 256, (6, 9))
    mask = (np.arange(9) < np.array([9, 9, 7, 5, 9, 6])[:, None]).astype(np.int64)
    data = {"input_ids": ids, "attention_mask": mask}
    ports = [value.name for value in growc.inspect(plain).graph.inputs]
    np.savez(tmp_path / "data.npz", **{port: data[port] for port in ports})
    before = growc.measure(plain, tmp_path / "data.npz", tmp_path / "plain.npz")
    after = growc.measure(other, tmp_path / "data.npz", tmp_path / "fused.npz")
    ranked = [axis for axis in before if axis.split(".")[0] in ("hidden", "heads", "ffn", "head_dim")]
    assert {"hidden.0", "heads.0", "ffn.1", "head_dim.0", "head_dim.1"} <= set(ranked)
    for axis in ranked:
        assert np.allclose(after[axis], before[axis], rtol=1e-4), axis
    assert "layers.0" in after


SKIPPING = """
skipping (int64[N, S] ids) => (float[N, S, 8] y)
<float[16, 8] words, float[9, 8] places, float[2, 8] kinds, float[8] g0, float[8] b0, float[8, 8] out,
 float[8] bias, float[8] g1, float[8] b1, float[8, 8] head>
{
    x = Gather(words, ids)
    o = MatMul(x, out)
    z = com.microsoft.SkipLayerNormalization <epsilon = 0.01> (BRANCH, g1, b1, bias)
    y = MatMul(z, head)
}
"""


@pytest.mark.parametrize("operands", ["o, x", "x, o"])
def test_a_bias_that_is_added_last_belongs_to_its_branch(tmp_path: Path, operands: str) -> None:
    model = save(tmp_path / "m.onnx", SKIPPING.replace("BRANCH", operands))
    ids = np.random.default_rng(0).integers(0, 16, (4, 6))
    np.savez(tmp_path / "data.npz", ids=ids)
    found = growc.measure(model, tmp_path / "data.npz")["hidden.0"]
    w = stored(model)
    x = w["words"][ids].astype(np.float64)
    branch = x @ w["out"] + w["bias"]
    wanted = sum(np.abs(v).mean((0, 1)) for v in (x, branch, x + branch))
    assert np.allclose(found, wanted, rtol=1e-4)
