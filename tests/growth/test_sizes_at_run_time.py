"""Cuts whose places a graph computes from sizes come out right by themselves, and then stay as they are.
Quotients that were whole, and are no longer, are computed afresh from what was divided.
"""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import save
from judging import draw, run

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


RELATIVE = """
relative (float[B, 6, 12] x) => (float[B, 6, 12] y)
<float[12, 12] query, float[5, 12] places, float[12, 12] key, float[12, 12] out,
 int64[4] split, int64[3] split_places, int64[3] flat, int64[4] back, int64[3] merged>
{
    q0 = MatMul(x, query)
    q1 = Reshape(q0, split)
    q2 = Transpose <perm = [0, 2, 1, 3]> (q1)
    q = Reshape(q2, flat)
    p0 = MatMul(places, key)
    p1 = Reshape(p0, split_places)
    p = Transpose <perm = [1, 0, 2]> (p1)
    shape = Shape(q)
    zero = Constant <value = int64 {0}> ()
    four = Constant <value = int64 {4}> ()
    first = Constant <value_ints = [0]> ()
    one = Constant <value_ints = [1]> ()
    all = Gather(shape, zero)
    batch = Div(all, four)
    times = Unsqueeze(batch, first)
    repeats = Concat <axis = 0> (times, one, one)
    tiled = Tile(p, repeats)
    k = Transpose <perm = [0, 2, 1]> (tiled)
    scores = MatMul(q, k)
    shares = Softmax <axis = -1> (scores)
    c0 = MatMul(shares, tiled)
    c1 = Reshape(c0, back)
    c2 = Transpose <perm = [0, 2, 1, 3]> (c1)
    c = Reshape(c2, merged)
    y = MatMul(c, out)
}
"""


@pytest.mark.parametrize("heads", [5, 6, 8, 9])
def test_a_quotient_that_is_whole_no_longer_is_taken_of_what_was_divided(tmp_path, heads):
    shapes = {
        "split": [0, 6, 4, 3],
        "split_places": [5, 4, 3],
        "flat": [-1, 6, 3],
        "back": [-1, 4, 6, 3],
        "merged": [0, 6, -1],
    }
    values = {k: np.array(v, dtype=np.int64) for k, v in shapes.items()}
    source = save(tmp_path / "relative.onnx", RELATIVE, **values)
    done = api.apply(f"widen heads to {heads} with uniform copy", source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    for batch in (1, 2, 3, 5, 8):
        feeds = draw(source, batch)
        before, after = run(source, feeds)["y"], run(done.written, feeds)["y"]
        np.testing.assert_allclose(after, before, rtol=1e-4, atol=1e-5 * np.abs(before).max())
