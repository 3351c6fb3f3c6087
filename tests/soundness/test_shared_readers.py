"""A weight that reads several activations is right for all of them: what it draws reaches none."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

SHARED = """
shared (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6, 3] weight>
{
    h = MatMul(x, up)
    c = Cos(h)
    first = MatMul(%s, weight)
    second = MatMul(%s, weight)
    y = Add(first, second)
}
"""

PACKED = """
packed (float[N, S, 4] x) => (float[N, S, 6] y)
<float[4, 6] up, float[6, 18] weight, int64[3] thirds>
{
    h = MatMul(x, up)
    v0 = %s(h)
    w0, w1, w2 = Split <axis = 1> (weight, thirds)
    q = MatMul(h, w0)
    k = MatMul(h, w1)
    v = MatMul(v0, w2)
    kt = Transpose <perm = [0, 2, 1]> (k)
    scores = MatMul(q, kt)
    p = Softmax <axis = -1> (scores)
    y = MatMul(p, v)
}
"""

GAIN = """
gain (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] gain, float[6, 3] one, float[6, 3] other>
{
    h = MatMul(x, up)
    c = Cos(h)
    g = Neg(gain)
    a = Mul(h, g)
    b = Mul(c, g)
    first = MatMul(a, one)
    second = MatMul(b, other)
    y = Add(first, second)
}
"""

FILLS = ("zero fill", "average fill", "uniform copy", "cyclic copy split random noise 0.3 balanced")


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("order", [("h", "c"), ("c", "h")], ids="".join)
def test_one_weight_on_a_unit_and_on_its_cosine(tmp_path: Path, order: tuple[str, str], fill: str) -> None:
    model = save(tmp_path / "m.onnx", SHARED % order)
    judge(f'widen axis 0 of "weight" to 12 with {fill}', model, tmp_path / "g.onnx").assert_exact()


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("op", ["Cos", "Relu", "Exp"])
def test_queries_keys_and_values_of_one_packed_weight(tmp_path: Path, op: str, fill: str) -> None:
    model = save(tmp_path / "m.onnx", PACKED % op, thirds=[6, 6, 6])
    judge(f'widen axis 0 of "weight" to 12 with {fill}', model, tmp_path / "g.onnx").assert_exact()


def test_random_entries_that_reach_another_activation_are_a_gap(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", SHARED % ("h", "c"))
    found = judge('widen axis 0 of "weight" to 12 with random fill', model, tmp_path / "g.onnx")
    found.assert_gap("drawn at random")


@pytest.mark.parametrize("fill", FILLS)
def test_a_gain_is_nothing_known_where_it_meets_zeros(tmp_path: Path, fill: str) -> None:
    model = save(tmp_path / "m.onnx", GAIN)
    judge(f'widen axis 1 of "up" to 12 with {fill}', model, tmp_path / "g.onnx").assert_exact()
