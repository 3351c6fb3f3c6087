"""Numbers that several layers stretch, or fill part by part, are computed once and tie no layers together."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge

from growc import api

SHARED = """
shared (float[N, 4] x, float[N, 1] open) => (float[N, 4] y)
<float[4, 6] up0, float[6, 4] down0, float[4, 6] up1, float[6, 4] down1, float[4] gain, int64[2] wide>
{
    gate = Expand(open, wide)
    a0 = MatMul(x, up0)
    b0 = Mul(a0, gate)
    c0 = Relu(b0)
    d0 = MatMul(c0, down0)
    e0 = Mul(d0, gain)
    a1 = MatMul(e0, up1)
    b1 = Mul(a1, gate)
    c1 = Relu(b1)
    y = MatMul(c1, down1)
}
"""


NUMBERS = {"wide": np.array([1, 6])}


def stretches(path: Path) -> int:
    """How often a file stretches something."""
    return sum(node.op_type == "Expand" for node in onnx.load(path).graph.node)


@pytest.mark.parametrize(("places", "left"), [("up0", 2), ("up*", 1)])
def test_each_reader_has_its_own(tmp_path, places, left):
    path = save(tmp_path / "shared.onnx", SHARED, **NUMBERS)
    assert stretches(path) == 1
    done = judge(f'widen axis 1 of "{places}" to 9 with uniform copy', path, tmp_path / "grown.onnx")
    done.assert_exact()
    assert stretches(done.path) == left


def test_numbers_that_stay_equal_are_written_once(tmp_path):
    path = save(tmp_path / "shared.onnx", SHARED, **NUMBERS)
    done = judge('widen axis 1 of "down0" to 8 with zero fill', path, tmp_path / "grown.onnx")
    done.assert_exact()
    assert stretches(done.path) == 1


FILLED = """
filled (float[N, 4] x) => (float[N, 4] y)
<float[4, 3] a0, float[4, 2] b0, float[5, 4] down0, float[4, 3] a1, float[4, 2] b1, float[5, 4] down1>
{
    batch = Shape <start = 0, end = 1> (x)
    shape = Concat <axis = 0> (batch, five)
    zeros = ConstantOfShape(shape)
    empty = Transpose <perm = [1, 0]> (zeros)
    p0 = MatMul(x, a0)
    p1 = Transpose <perm = [1, 0]> (p0)
    p2 = ScatterND(empty, front, p1)
    q0 = MatMul(x, b0)
    q1 = Transpose <perm = [1, 0]> (q0)
    q2 = ScatterND(p2, back, q1)
    r0 = Transpose <perm = [1, 0]> (q2)
    r1 = Relu(r0)
    z = MatMul(r1, down0)
    s0 = MatMul(z, a1)
    s1 = Transpose <perm = [1, 0]> (s0)
    s2 = ScatterND(empty, front, s1)
    t0 = MatMul(z, b1)
    t1 = Transpose <perm = [1, 0]> (t0)
    t2 = ScatterND(s2, back, t1)
    u0 = Transpose <perm = [1, 0]> (t2)
    u1 = Relu(u0)
    y = MatMul(u1, down1)
}
"""


@pytest.mark.parametrize("places", ["a0", "b0", "?0", "a?"])
def test_parts_that_are_written_into_a_tensor_move_with_it(tmp_path, places):
    numbers = {"five": [5], "front": [[0], [1], [2]], "back": [[3], [4]]}
    arrays = {name: np.array(value, dtype=np.int64) for name, value in numbers.items()}
    path = save(tmp_path / "filled.onnx", FILLED, **arrays)
    done = judge(f'widen axis 1 of "{places}" to 7 with uniform copy', path, tmp_path / "grown.onnx")
    done.assert_exact()
    plan = api.compile(api.recipe('widen axis 1 of "a0" to 7 with uniform copy'), path).plan
    assert plan.parameters == (80, 80 + 32)
