"""Recurrent layers: the units of one grow, and what stands behind it reads them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

STACKED = """
stacked (float[T, N, 3] x) => (float[T, N, 2] y)
<float[2, %(g)d, 3] w1, float[2, %(g)d, 4] r1, float[2, %(b)d] b1, float[2, 1, 4] h0,
 float[1, %(g)d, 8] w2, float[1, %(g)d, 4] r2, float[1, %(b)d] b2, float[4, 2] head>
{
    shape = Shape <start = 1, end = 2> (x)
    to = Concat <axis = 0> (two, shape, four)
    start = Expand(h0, to)
    a = %(op)s <hidden_size = 4, direction = "bidirectional"> (x, w1, r1, b1, , start)
    t = Transpose <perm = [0, 2, 1, 3]> (a)
    z = Reshape(t, flat)
    c = %(op)s <hidden_size = 4> (z, w2, r2, b2)
    s = Squeeze(c, one)
    y = MatMul(s, head)
}
"""
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


def model(tmp_path: Path, op: str) -> Path:
    text = STACKED % {"op": op, "g": 4 * GATES[op], "b": 8 * GATES[op]}
    numbers = {"two": [2], "four": [4], "flat": [0, 0, -1], "one": [1]}
    return save(tmp_path / "net.onnx", text, **{k: np.array(v) for k, v in numbers.items()})


BOTH = 'widen axis 2 of "r*" to {size} with {fill}'


@pytest.mark.parametrize(
    "fill", ["neighbor copy", "uniform copy", "cyclic copy split random noise 0.2 balanced"]
)
@pytest.mark.parametrize("op", GATES)
def test_copies_of_recurrent_units_are_exact(tmp_path: Path, op: str, fill: str) -> None:
    judge(BOTH.format(size=7, fill=fill), model(tmp_path, op), tmp_path / "grown.onnx").assert_exact()


@pytest.mark.parametrize("op", GATES)
def test_the_gates_of_a_recurrent_layer_name_its_units(tmp_path: Path, op: str) -> None:
    recipe = f'widen axis 1 of "r2" to {8 * GATES[op]} with cyclic copy'
    judge(recipe, model(tmp_path, op), tmp_path / "grown.onnx").assert_exact()


def test_units_that_are_zero_stay_zero(tmp_path: Path) -> None:
    recipe = 'widen axis 2 of "r2" to 6 with zero fill'
    judge(recipe, model(tmp_path, "LSTM"), tmp_path / "grown.onnx").assert_exact()


def test_means_of_recurrent_units_are_listened_to_by_nobody(tmp_path: Path) -> None:
    recipe = 'widen axis 2 of "r2" to 6 with average fill'
    judge(recipe, model(tmp_path, "GRU"), tmp_path / "grown.onnx").assert_exact()
