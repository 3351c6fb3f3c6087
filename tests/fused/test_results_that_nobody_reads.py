"""Fused operators of which only some results are read, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

SUMMED = """
summed (float[B, S, 3] x) => (float[B, S, 4] y)
<float[3, 8] rows, float[8, 4] columns, float[8] gain, float[8] shift>
{
    x0 = MatMul(x, rows)
    {node}
    t = Tanh({read})
    y = MatMul(t, columns)
}
"""

NORMS = {
    "layer norm": "o, m, i, s = com.microsoft.SkipLayerNormalization <epsilon = 0.1> (x0, x0, gain, shift)",
    "with bias": "o, m, i, s = com.microsoft.SkipLayerNormalization (x0, x0, gain, gain, shift)",
    "rms norm": "o, m, i, s = com.microsoft.SkipSimplifiedLayerNormalization <epsilon = 0.1> (x0, x0, gain)",
}

LAYER = """
    a{k} = MatMul(x{k}, up{k})
    h{k} = Tanh(a{k})
    d{k} = MatMul(h{k}, down{k})
    x{n} = Add(x{k}, d{k})
"""

UNREAD = """
unread (float[B, S, 8] x0, float[B, S, 8] q) => (float[B, S, 8] y)
<{weights}, float[8, 8] query, float[8, 8] key, float[8, 8] value>
{{
    k = MatMul(q, key)
    v = MatMul(q, value)
    a = com.microsoft.MultiHeadAttention <num_heads = 2> (q, k, v)
    b = MatMul(a, query)
    c = Add(a, b)
{layers}
    y = Identity(x2)
}}
"""


@pytest.mark.parametrize("read", ["s", "o"])
@pytest.mark.parametrize("kind", NORMS)
@pytest.mark.parametrize("how", ["cyclic copy", "neighbor copy"])
def test_an_operand_has_the_size_that_its_node_asks_for(
    tmp_path: Path, kind: str, read: str, how: str
) -> None:
    graph = SUMMED.replace("{node}", NORMS[kind]).replace("{read}", read)
    recipe = f'widen axis 1 of "rows" to 16 with {how}'
    judge(recipe, save(tmp_path / "m.onnx", graph), tmp_path / "wide.onnx").assert_exact()


@pytest.mark.parametrize(
    "recipe", ["stack layers to 4 by each with zero outputs", "widen ffn to 9 with zero fill"]
)
def test_a_node_that_nobody_reads_is_not_put_back(tmp_path: Path, recipe: str) -> None:
    weights = ", ".join(f"float[8, 5] up{k}, float[5, 8] down{k}" for k in range(2))
    layers = "".join(LAYER.format(k=k, n=k + 1) for k in range(2))
    model = save(tmp_path / "m.onnx", UNREAD.format(weights=weights, layers=layers))
    judge(recipe, model, tmp_path / "deep.onnx").assert_exact()
