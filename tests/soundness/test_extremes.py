"""Extremes and sums of squares over units that zeros and means have joined."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

MODEL = """
extremes (float[B, 3] x) => (float[B, 1] y)
<float[3, 6] rows, float[6] bias>
{
    m = MatMul(x, rows)
    b = Add(m, bias)
    {function}
    y = {fold} <axes = [-1], keepdims = 1> (h)
}
"""

QUANTISED = """
quantised (float[B, 3] x) => (float[B, 4] y)
<float[3, 6] rows, float[6, 4] columns>
{
    m = MatMul(x, rows)
    h = {function}(m)
    q, s, z = DynamicQuantizeLinear(h)
    d = DequantizeLinear(q, s, z)
    y = MatMul(d, columns)
}
"""

WIDER = 'widen axis 1 of "rows" to 9 with '


FUNCTIONS = {"below": "r = Relu(b)\n    h = Neg(r)"}


def model(folder: Path, function: str, fold: str, bias: float = 0.1) -> Path:
    """An extreme of six units, or a sum of something of each."""
    graph = MODEL.replace("{function}", FUNCTIONS.get(function, f"h = {function}(b)"))
    spread = bias + np.linspace(-0.2, 0.2, 6, dtype=np.float32)
    rows = np.random.default_rng(0).normal(size=(3, 6)).astype(np.float32) * 0.3
    return save(folder / "m.onnx", graph.replace("{fold}", fold), bias=spread.astype(np.float32), rows=rows)


@pytest.mark.parametrize(
    ("function", "fold"), [("Abs", "ReduceMax"), ("Relu", "ReduceMax"), ("below", "ReduceMin")]
)
def test_zeros_do_not_move_an_extreme_on_their_other_side(tmp_path: Path, function: str, fold: str) -> None:
    path = model(tmp_path, function, fold)
    judge(WIDER + "zero fill", path, tmp_path / "wide.onnx").assert_exact()


@pytest.mark.parametrize(
    ("function", "fold"), [("Identity", "ReduceMax"), ("Neg", "ReduceMin"), ("Relu", "ReduceMin")]
)
def test_zeros_that_may_be_the_extreme_are_a_gap(tmp_path: Path, function: str, fold: str) -> None:
    path = model(tmp_path, function, fold, bias=2.5 if function == "Relu" else -2.5)
    judge(WIDER + "zero fill", path, tmp_path / "wide.onnx").assert_gap("weighs the units differently")


@pytest.mark.parametrize("fold", ["ReduceMax", "ReduceMin"])
def test_means_are_no_extremes(tmp_path: Path, fold: str) -> None:
    judge(WIDER + "average fill", model(tmp_path, "Identity", fold), tmp_path / "wide.onnx").assert_exact()


@pytest.mark.parametrize("fold", ["ReduceL1", "ReduceL2", "ReduceSumSquare"])
def test_zeros_add_nothing_to_magnitudes(tmp_path: Path, fold: str) -> None:
    path = model(tmp_path, "Identity", fold)
    judge(WIDER + "zero fill", path, tmp_path / "wide.onnx").assert_exact()
    for fill in ("cyclic copy", "average fill"):
        judge(WIDER + fill, path, tmp_path / "wide.onnx").assert_gap("weighs the units differently")


@pytest.mark.parametrize("fill", ["zero fill", "average fill"])
@pytest.mark.parametrize("function", ["Identity", "Tanh"])
def test_rounding_by_extremes_counts_zero_among_them(tmp_path: Path, function: str, fill: str) -> None:
    path = save(tmp_path / "m.onnx", QUANTISED.replace("{function}", function))
    judged = judge(WIDER + fill, path, tmp_path / "wide.onnx")
    assert judged.certificate.exact == (fill == "zero fill" or function == "Identity"), judged.causes
    assert judged.difference <= 1e-5 or not judged.certificate.exact
