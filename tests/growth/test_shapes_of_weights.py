"""Sizes that a model asks of its stored tensors."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

ASKED = """
m (float[N, 5] x) => (float[N, 6] y)
<float[5, 8] up, float[8] bias, float[8, 6] down>
{{ h = MatMul(x, up)
   {asked}
   b = Add(h, bias)
   z = ConstantOfShape<value = float[1] {{0.5}}>(s)
   c = Add(b, z)
   r = Relu(c)
   y = MatMul(r, down) }}
"""
SHAPES = {
    "of a bias": "s = Shape(bias)",
    "of a matrix": "s = Shape<start = 1>(up)",
    "of a matrix that is turned": "t = Transpose<perm = [1, 0]>(up) s = Shape<end = 1>(t)",
    "of one cast": "t = Cast<to = 11>(bias) s = Shape(t)",
    "number of elements": "n = Size(bias) o = Constant<value = int64[1] {-1}>() s = Reshape(n, o)",
}
ROWS = """
m (int64[N] tokens) => (float[N, 6] y)
<float[16, 6] table, int64 zero = {0}, int64 one = {1}, int64 nine = {9}, float[6] bias>
{ s = Shape(table)
  n = Gather(s, zero)
  l = Sub(n, one)
  k = Mul(tokens, nine)
  i = Min(k, l)
  y = Gather(table, i) }
"""


@pytest.mark.parametrize("asked", SHAPES.values(), ids=SHAPES)
@pytest.mark.parametrize("fill", ["uniform copy", "random fill"])
def test_a_weight_whose_shape_is_asked_grows(tmp_path: Path, asked: str, fill: str) -> None:
    source = save(tmp_path / "m.onnx", ASKED.format(asked=asked), opset=18)
    recipe = f'widen axis 1 of "up" to 13 with {fill}' + (" with zero outputs" if "random" in fill else "")
    judge(recipe, source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize("fill", ["zero fill", "average fill", "cyclic copy split random"])
def test_one_number_is_laid_out_anew_where_the_shape_asked_is_of_a_tensor_that_stays(
    tmp_path: Path, fill: str
) -> None:
    graph = ASKED.format(asked="s = Shape(other)").replace("<float[5", "<float[8] other, float[5")
    source = save(tmp_path / "m.onnx", graph, opset=18)
    judge(f'widen axis 1 of "up" to 13 with {fill}', source, tmp_path / "o.onnx").assert_exact()


def test_numbers_clamped_by_the_size_of_a_table_keep_the_source_s(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", ROWS)
    judge("widen vocab to 21 with random fill", source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize("axis", [np.array([0]), np.array(0), np.array([-2], dtype=np.int32)])
def test_the_axis_of_a_running_sum_is_a_scalar_or_a_list_of_one(tmp_path: Path, axis: np.ndarray) -> None:
    graph = """
    m (float[N, 5] x) => (float[N, 6] y)
    <float[5, 8] up, float[8, 6] down>
    { h = MatMul(x, up)
      c = CumSum(h, axis)
      y = MatMul(c, down) }
    """
    source = save(tmp_path / "m.onnx", graph, axis=axis)
    judge('widen axis 1 of "up" to 13 with average fill', source, tmp_path / "o.onnx").assert_exact()
