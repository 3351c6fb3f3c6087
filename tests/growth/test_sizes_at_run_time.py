"""Cuts whose places a graph computes from sizes come out right by themselves, and then stay as they are."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import save

from growc import api

CUT = """
cut (float[N, 4] x) => (float[N, 3] y)
<float[4, 16] up, float[8, 3] down>
{
    packed = MatMul(x, up)
    shape = Shape(packed)
    one = Constant <value_ints = [1]> ()
    width = Gather(shape, one)
    two = Constant <value_ints = [2]> ()
    zero = Constant <value_ints = [0]> ()
    half = Div(width, two)
    gate = Slice(packed, zero, half, one)
    value = Slice(packed, half, width, one)
    opened = Sigmoid(gate)
    act = Mul(opened, value)
    y = MatMul(act, down)
}
"""


@pytest.mark.parametrize("fill", ["neighbor copy", "uniform copy", "zero fill"])
def test_halves_that_are_computed_from_the_whole(tmp_path, fill):
    source = save(tmp_path / "cut.onnx", CUT)
    done = api.apply(f'widen axis 0 of "down" to 13 with {fill}', source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert not done.verification.refutes_exact()
    before, after = (onnx.load(path).graph for path in (source, done.written))
    assert [n.op_type for n in after.node] == [n.op_type for n in before.node], "nothing had to be mended"
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in after.initializer}
    assert stored["up"].shape == (4, 26)
    assert np.isfinite(stored["up"]).all()
