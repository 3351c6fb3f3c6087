"""A fused operator behind a layer, of whose operands the layer makes some."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

MODEL = """
behind (float[B, S, 8] x, float[B, T, 3] context) => (float[B, S, 8] y)
<float[3, 8] rows, float[8, 8] out, float[8, 8] query, float[8, 8] key, float[8, 8] value>
{
    c = MatMul(context, rows)
    t = Transpose <perm = [0, 2, 1]> (c)
    s = MatMul(x, t)
    m = MatMul(s, c)
    d = MatMul(m, out)
    x1 = Add(x, d)
    q = MatMul(x1, query)
    k = MatMul(c, key)
    v = MatMul(c, value)
    y = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
}
"""


@pytest.mark.parametrize("number", [2, 3])
def test_a_fused_operator_is_whole_again_behind_new_layers(tmp_path: Path, number: int) -> None:
    model = save(tmp_path / "m.onnx", MODEL)
    judged = judge(f"stack layers to {number} by whole with zero outputs", model, tmp_path / "deep.onnx")
    judged.assert_exact()


CHAIN = """
chain (float[B, S, 8] x) => (float[B, S, 8] y)
<float[8, 24] packed, float[24] bias, float[8, 8] first, float[8, 8] second, float[8, 8] third>
{
    a = com.microsoft.Attention <num_heads = 2> (x, packed, bias)
    b = MatMul(a, first)
    c = MatMul(b, second)
    y = MatMul(c, third)
}
"""


@pytest.mark.parametrize("recipe", ["stack layers to 5 by each", "arrange layers as 1, 0, 2"])
def test_layers_of_products_may_stand_behind_a_part_that_nobody_reads(tmp_path: Path, recipe: str) -> None:
    """The keys and values that the operator could give have a part of their own."""
    model = save(tmp_path / "m.onnx", CHAIN)
    judged = judge(recipe, model, tmp_path / "deep.onnx")
    assert not judged.certificate.exact
    assert judged.difference > 1e-4
