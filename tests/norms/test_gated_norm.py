"""An RMS norm over gated units: the factor that only weights make takes what the norm needs."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

GATED = """
gated (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, float[8, 12] gate, float[8, 12] up, float[12] gain, float[12, 8] down, float[8, 3] columns>
{
    h = MatMul(x, rows)
    g = MatMul(h, gate)
    a = Sigmoid(g)
    u = MatMul(h, up)
    p = Mul(a, u)
    s = Mul(p, p)
    m = ReduceMean <axes = [-1], keepdims = 1> (s)
    eps = Constant <value_float = 0.01> ()
    e = Add(m, eps)
    r = Sqrt(e)
    q = Div(p, r)
    w = Mul(q, gain)
    d = MatMul(w, down)
    z = Add(h, d)
    y = MatMul(z, columns)
}
"""


@pytest.mark.parametrize("size", [18, 19, 24])
@pytest.mark.parametrize("fill", ["uniform copy", "neighbor copy split random noise 0.1 balanced"])
def test_gated_units_that_are_normed_grow_to_any_size(tmp_path: Path, size: int, fill: str) -> None:
    source = save(tmp_path / "model.onnx", GATED)
    judge(f"widen ffn to {size} with {fill}", source, tmp_path / "grown.onnx").assert_exact()


def test_a_factor_that_bends_cannot(tmp_path: Path) -> None:
    bent = GATED.replace("p = Mul(a, u)", "b = Tanh(u)\n    p = Mul(a, b)")
    source = save(tmp_path / "model.onnx", bent)
    judge("widen ffn to 19 with uniform copy", source, tmp_path / "grown.onnx").assert_gap("copy counts")
