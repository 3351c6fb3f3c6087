"""Whole numbers behave as real ones do where one number is added to all units: zeros are zeros no more."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api

GRAPH = """
whole (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6, 3] down, float ten, int64 three, uint8 bytes>
{
    h0 = MatMul(x, up)
    h = Mul(h0, ten)
    %s
    z = Cast <to = 1> (j)
    y = MatMul(z, down)
}
"""
NUMBERS = {"ten": np.float32(10), "three": np.int64(3), "bytes": np.uint8(3)}
LINES = {
    "sum": "i = Cast <to = 7> (h)\n j = Add(i, three)",
    "difference": "a = Abs(h)\n i = Cast <to = 2> (a)\n j = Sub(i, bytes)",
    "other difference": "i = Cast <to = 7> (h)\n j = Sub(three, i)",
    "several": "i = Cast <to = 7> (h)\n k = Mul(i, three)\n j = Add(k, three)",
    "quotient": "i = Cast <to = 7> (h)\n j = Div(i, three)",
}


@pytest.mark.parametrize("fill", ["zero fill", "average fill", "uniform copy"])
@pytest.mark.parametrize("lines", LINES.values(), ids=LINES)
def test_a_number_added_to_whole_numbers(tmp_path: Path, lines: str, fill: str) -> None:
    model = save(tmp_path / "m.onnx", GRAPH % lines, **NUMBERS)
    judge(f'widen axis 1 of "up" to 13 with {fill}', model, tmp_path / "g.onnx").assert_exact()


DIVIDED = """
rest (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] by, float[6, 3] down>
{
    h = MatMul(x, up)
    %s
    y = MatMul(z, down)
}
"""
DRAWN = 'widen axis 1 of "up" to 13 with random fill with zero outputs'


def test_a_bias_that_is_drawn_as_zero_divides_nothing(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", DIVIDED % "r = Reciprocal(by)\n    z = Mul(h, r)")
    with pytest.raises(AssertionError):  # of `judge`: what was grown is not finite
        judge(DRAWN, model, tmp_path / "g.onnx")
    assert not api.plan(DRAWN, model).certificate.exact


@pytest.mark.parametrize("line", ["z = Mod <fmod = 1> (h, by)", "z = Div(h, by)"])
def test_divisors_of_units_that_are_drawn_are_ones(tmp_path: Path, line: str) -> None:
    judge(DRAWN, save(tmp_path / "m.onnx", DIVIDED % line), tmp_path / "g.onnx").assert_exact()


def test_a_running_sum_whose_axis_stands_in_a_list(tmp_path: Path) -> None:
    graph = """
sums (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6, 3] down, int64[1] axis>
{
    h = MatMul(x, up)
    z = CumSum <exclusive = 1, reverse = 1> (h, axis)
    y = MatMul(z, down)
}
"""
    model = save(tmp_path / "m.onnx", graph, axis=[0])
    judge('widen axis 1 of "up" to 13 with zero fill', model, tmp_path / "g.onnx").assert_exact()
