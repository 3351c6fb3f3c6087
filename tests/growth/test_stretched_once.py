"""A tensor that is stretched once for several layers ties none of them to each other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge

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


def test_what_stays_equal_is_written_once(tmp_path):
    path = save(tmp_path / "shared.onnx", SHARED, **NUMBERS)
    done = judge('widen axis 1 of "down0" to 8 with zero fill', path, tmp_path / "grown.onnx")
    done.assert_exact()
    assert stretches(done.path) == 1
