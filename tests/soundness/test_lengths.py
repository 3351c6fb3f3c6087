"""Lengths that data decide: who reads no more than a shape of them reads values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError

MODEL = """
lengths (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] up, float[8, 3] down, float one, int64[1] last, int64[1] end>
{
    a = MatMul(x, up)
    r = Relu(a)
    LINES
    f = Cast <to = 1> (s)
    h = Mul(a, f)
    y = MatMul(h, down)
}
"""

LENGTHS = {
    "NonZero": "n = NonZero(r) s = Shape <start = 1> (n)",
    "NonZero, its size": "n = NonZero(r) s = Size(n)",
    "NonZero of a sum": """q = ReduceSum <keepdims = 0> (a, last) b = Greater(q, one) n = NonZero(b)
        s = Shape <start = 1> (n)""",
    "Unique": "n = Unique(r) s = Shape(n)",
    "Compress": "b = Greater(a, one) c = Reshape(b, end) n = Compress(a, c) s = Shape(n)",
    "Range": "q = ReduceSum <keepdims = 0> (r) z = Sub(one, one) n = Range(z, q, one) s = Shape(n)",
    "NonZero, behind a sum of what is copied": """n = NonZero(r) t = Shape <start = 1> (n) u = Add(t, last)
        s = Abs(u)""",
}


def model(folder: Path, lines: str) -> Path:
    numbers = {
        "one": np.float32(1),
        "last": np.array([1], dtype=np.int64),
        "end": np.array([-1], dtype=np.int64),
    }
    return save(folder / "m.onnx", MODEL.replace("LINES", lines), opset=21, **numbers)


@pytest.mark.parametrize("fill", ["cyclic copy", "average fill"])
@pytest.mark.parametrize("length", LENGTHS)
def test_units_that_decide_a_length_are_not_copied_as_if_they_did_not(
    tmp_path: Path, length: str, fill: str
) -> None:
    """They are refused or a gap."""
    source, recipe = model(tmp_path, LENGTHS[length]), f'widen axis 1 of "up" to 16 with {fill}'
    try:
        exact = judge(recipe, source, tmp_path / "wide.onnx").certificate.exact
    except GrowError:
        exact = False
    assert not exact


def test_lengths_that_sizes_decide_are_no_obstacle(tmp_path: Path) -> None:
    lines = "e = Expand(one, last) k = Shape(r) n = ConstantOfShape(k) s = Shape <end = 1> (n)"
    source = model(tmp_path, lines)
    judged = judge('widen axis 1 of "up" to 16 with cyclic copy', source, tmp_path / "wide.onnx")
    judged.assert_exact()


def test_the_rank_of_a_grid_of_units_is_no_obstacle(tmp_path: Path) -> None:
    """Of numbers along an axis that grows, nothing is read but how many axes they have."""
    lines = """k = Shape <start = 1> (r) w = Squeeze(k) i0 = Sub(w, w) i1 = Div(w, w) g = Range(i0, w, i1)
        c = Unsqueeze(g, last) d = Add(c, g) t = Shape(d) s = Shape(t)"""
    text = MODEL.replace("[4, 8]", "[4, 64]").replace("[8, 3]", "[64, 3]").replace("LINES", lines)
    source = save(tmp_path / "m.onnx", text, opset=21, last=np.array([1]))
    judged = judge('widen axis 1 of "up" to 128 with cyclic copy', source, tmp_path / "wide.onnx")
    judged.assert_exact()


def test_a_stored_tensor_that_a_model_gives_out_keeps_its_size(tmp_path: Path) -> None:
    text = """
    given (float[N, 4] x) => (float[N, 3] y, float[8, 3] down)
    <float[4, 8] up, float[8, 6] other, float[6, 8] back>
    {
        m = MatMul(x, up)
        o = MatMul(m, other)
        p = MatMul(o, back)
        y = MatMul(p, down)
    }"""
    source = save(tmp_path / "m.onnx", text, down=np.ones((8, 3), np.float32))
    with pytest.raises(GrowError, match="the model gives out what `down` stores"):
        api.plan('widen axis 1 of "back" to 16 with cyclic copy', source)
    judge('widen axis 1 of "up" to 16 with cyclic copy', source, tmp_path / "wide.onnx").assert_exact()
