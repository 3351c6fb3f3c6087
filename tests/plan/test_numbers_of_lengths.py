"""Numbers computed from lengths of the inputs, which are the same at the first sample points only."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnxruntime
import pytest
from graphs import save

from growc import api
from growc.errors.diagnostic import GrowError

NET = """
net (float[n, s, 8] x) => (float[n, s, 5] y)
<float[8, 16] rows, float[16, 5] columns, float[16] mixed, int64[1] zero, int64[1] one, int64[1] two,
 int64[1] many,
 int64[1] thousand>
{
    h = MatMul(x, rows)
    xs = Shape(x)
    hs = Shape(h)
    length = Gather(xs, zero)
    width = Gather(hs, two)
    all = ReduceProd <keepdims = 0> (hs)
    BODY
    y = MatMul(o, columns)
}
"""
NUMBERS = {"zero": [0], "one": [1], "two": [2], "many": [128], "thousand": [1000]}

ADDED = """
    q = NUMBER
    f = Cast <to = 1> (q)
    r = Relu(h)
    o = Add(r, f)
"""
OF_WIDTH_AND_LENGTH = {
    "remainder": "Mod(width, length)",
    "quotient": "Div(length, width)",
    "larger one": "Max(length, width)",
    "smaller one": "Min(length, width)",
}
LONGER = """
    b = Greater(length, many)
    c = Cast <to = 7> (b)
"""
CUMULATIVE = f"""{LONGER}
    a = Add(one, c)
    k = Squeeze(a, zero)
    o = CumSum(h, k)
"""
PADDED = f"""{LONGER}
    p = Concat <axis = 0> (zero, zero, c, zero, zero, zero)
    w = Pad(h, p)
    start = Concat <axis = 0> (zero, zero, zero)
    o = Slice(w, start, hs)
"""
TAKEN = """
    i = Min(length, two)
    k = Squeeze(i, zero)
    g = Gather <axis = 2> (h, k)
    e = Unsqueeze(g, two)
    o = Add(h, e)
"""
CANCELLED = """
    t = Mul(length, width)
    q = Div(t, length)
    p = Sub(q, width)
    f = Cast <to = 1> (p)
    o = Add(h, f)
"""


def model(path: Path, body: str) -> Path:
    """A model with a body; its numbers are int64."""
    return save(path, NET.replace("BODY", body), **{k: np.array(v) for k, v in NUMBERS.items()})


def differences(source: Path, grown: Path, lengths: list[int]) -> list[float]:
    """How far the outputs of two models are apart, at several lengths."""
    random = np.random.default_rng(0)
    sessions = [onnxruntime.InferenceSession(path) for path in (source, grown)]
    inputs = [{"x": random.standard_normal((n, 4, 8), dtype=np.float32)} for n in lengths]
    pairs = ([session.run(None, one)[0] for session in sessions] for one in inputs)
    return [float(np.abs(a - b).max() / np.abs(a).max()) for a, b in pairs]


@pytest.mark.parametrize("number", OF_WIDTH_AND_LENGTH.values(), ids=OF_WIDTH_AND_LENGTH)
def test_a_number_of_the_width_and_a_length_is_no_constant(tmp_path: Path, number: str) -> None:
    source = model(tmp_path / "model.onnx", ADDED.replace("NUMBER", number))
    with pytest.raises(GrowError, match="computed from sizes that change"):
        api.plan('widen axis 1 of "rows" to 32 with neighbor copy', source)


def test_a_quotient_that_differs_after_the_change_at_other_lengths_is_no_constant(tmp_path: Path) -> None:
    """528 and 792 thousandths round to 0, and 1040 and 1560 to 1; at n = 60 and s = 70: 67 and 100."""
    source = model(tmp_path / "model.onnx", ADDED.replace("NUMBER", "Div(all, thousand)"))
    with pytest.raises(GrowError, match="computed from sizes that change"):
        api.plan('widen axis 1 of "rows" to 24 with average fill', source)


@pytest.mark.parametrize("made", ["Shape(h)", "Size(rows)"])
def test_an_output_of_sizes_that_change_is_refused(tmp_path: Path, made: str) -> None:
    graph = NET.replace("BODY", f"o = Relu(h)\n sizes = {made}")
    graph = graph.replace("(float[n, s, 5] y)", f"(float[n, s, 5] y, int64{'[3]' * ('h' in made)} sizes)")
    source = save(tmp_path / "model.onnx", graph, **{k: np.array(v) for k, v in NUMBERS.items()})
    with pytest.raises(GrowError, match="the output `sizes` is computed from sizes that change"):
        api.plan('widen axis 1 of "rows" to 32 with neighbor copy', source)


@pytest.mark.parametrize("body", [CUMULATIVE, PADDED], ids=["CumSum", "Pad"])
def test_an_axis_that_a_length_chooses_is_read_as_a_whole(tmp_path: Path, body: str) -> None:
    source = model(tmp_path / "model.onnx", body)
    with pytest.raises(GrowError, match="reads this axis as a whole"):
        api.plan('widen axis 1 of "rows" to 32 with neighbor copy', source)


@pytest.mark.parametrize("body", [TAKEN, CANCELLED], ids=["bounded index", "constant of lengths"])
def test_exact_claims_hold_at_other_lengths(tmp_path: Path, body: str) -> None:
    source = model(tmp_path / "model.onnx", body)
    done = api.apply('widen axis 1 of "rows" to 32 with neighbor copy', source, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert max(differences(source, done.written, [1, 2, 3, 60, 200])) < 1e-5
