"""`widen head_dim`: queries and keys are contracted with each other, so their maps must pair; scores stay."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from models import stored

import growc

HEADS, D, WIDTH = 3, 4, 10

START = """
attention (float[B, S, 10] x) => (float[B, S, 10] y)
<float[10, 12] q_weight, float[12] q_bias, float[10, 12] k_weight, float[10, 12] v_weight,
 float[12, 10] o_weight, float[4] q_gain, float[4] k_gain, float[2] frequencies, int64[4] cut, int64[3] back,
 float scale, float two, float eps, int64[1] zero, int64[1] half, int64[1] end, int64[1] last, int64 three,
 float one>
{
    q0 = MatMul(x, q_weight)
    q1 = Add(q0, q_bias)
    q2 = Reshape(q1, cut)
    q3 = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul(x, k_weight)
    k2 = Reshape(k0, cut)
    k3 = Transpose <perm = [0, 2, 1, 3]> (k2)
    v0 = MatMul(x, v_weight)
    v2 = Reshape(v0, cut)
    v = Transpose <perm = [0, 2, 1, 3]> (v2)
"""

END = """
    kt = Transpose <perm = [0, 1, 3, 2]> (k)
    s0 = MatMul(q, kt)
    s = Mul(s0, factor)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}
"""

LITERAL = "    factor = Identity(scale)\n"
COMPUTED = """
    shape = Shape(q3)
    size = Gather(shape, three)
    real = Cast <to = 1> (size)
    root = Sqrt(real)
    factor = Div(one, root)
"""
PLAIN = "    q = Identity(q3)\n    k = Identity(k3)\n"
NORMED = """
    q4 = Pow(q3, two)
    q5 = ReduceMean <axes = [-1]> (q4)
    q6 = Add(q5, eps)
    q7 = Sqrt(q6)
    q8 = Div(q3, q7)
    q = Mul(q8, q_gain)
    k4 = Pow(k3, two)
    k5 = ReduceMean <axes = [-1]> (k4)
    k6 = Add(k5, eps)
    k7 = Sqrt(k6)
    k8 = Div(k3, k7)
    k = Mul(k8, k_gain)
"""
CENTRED = """
    q = LayerNormalization <axis = -1, epsilon = 0.01> (q3, q_gain)
    k = LayerNormalization <axis = -1, epsilon = 0.01> (k3, k_gain)
"""
ROTARY = """
    many = Shape <start = 2, end = 3> (q3)
    count = Squeeze(many)
    from0 = Constant <value_int = 0> ()
    by1 = Constant <value_int = 1> ()
    steps = Range(from0, count, by1)
    real_steps = Cast <to = 1> (steps)
    column = Unsqueeze(real_steps, last)
    angles = Mul(column, frequencies)
    both = Concat <axis = -1> (angles, angles)
    cos = Cos(both)
    sin = Sin(both)
    qa = Slice(q3, zero, half, last)
    qb = Slice(q3, half, end, last)
    qn = Neg(qb)
    qr = Concat <axis = -1> (qn, qa)
    qx = Mul(q3, cos)
    qy = Mul(qr, sin)
    q = Add(qx, qy)
    ka = Slice(k3, zero, half, last)
    kb = Slice(k3, half, end, last)
    kn = Neg(kb)
    kr = Concat <axis = -1> (kn, ka)
    kx = Mul(k3, cos)
    ky = Mul(kr, sin)
    k = Add(kx, ky)
"""

FORMS = {
    "literal scale": LITERAL + PLAIN,
    "computed scale": COMPUTED + PLAIN,
    "RMSNorm on queries and keys": LITERAL + NORMED,
    "LayerNorm on queries and keys": LITERAL + CENTRED,
    "rotary halves": COMPUTED + ROTARY,
}

RECIPES = {
    "equal copies": "widen head_dim to 8 with neighbor copy",
    "unequal copies": "widen head_dim to 6 with uniform copy seed 3",
    "noise and shares": "widen head_dim to 8 with uniform copy split random noise 0.2 balanced seed 1",
    "zeros": "widen head_dim to 6 with zero fill",
    "with heads": "widen head_dim to 8 with cyclic copy\nwiden heads to 4 with uniform copy",
}

NOT_EXACT = {
    ("LayerNorm on queries and keys", "unequal copies"): "unequal copy counts",
    ("LayerNorm on queries and keys", "noise and shares"): "unequal copy counts",
    ("LayerNorm on queries and keys", "zeros"): "zero units",
}
"""Where mathematics is against it (docs/theory.md)."""


@pytest.fixture(params=FORMS)
def form(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def model(form: str, tmp_path: Path) -> Path:
    numbers = {
        "cut": [0, 0, -1, D],
        "back": [0, 0, -1],
        "zero": [0],
        "half": [D // 2],
        "end": [2**62],
        "last": [-1],
        "three": 3,
    }
    values = {name: np.array(n, dtype=np.int64) for name, n in numbers.items()}
    reals = {"scale": 0.4, "two": 2.0, "eps": 0.05, "one": 1.0}
    values |= {name: np.array(n, dtype=np.float32) for name, n in reals.items()}
    return save(tmp_path / "m.onnx", START + FORMS[form] + END, **values)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
def test_scores_stay(form: str, model: Path, tmp_path: Path, recipe: str) -> None:
    done = growc.apply(RECIPES[recipe], model, tmp_path / "out.onnx")
    certificate = done.plan.certificate
    cause = NOT_EXACT.get((form, recipe))
    assert certificate.exact == (cause is None), certificate.gaps
    if cause is not None:
        assert all(cause in gap.cause for gap in certificate.gaps)
        return
    assert done.verification is not None
    assert done.verification.relative < 1e-5


def test_queries_and_keys_are_divided_by_the_root_of_the_counts(tmp_path: Path) -> None:
    """M_qᵀM_k = I with copies is 1/sqrt(C) on both sides; the value side copies and divides the reader."""
    path = save(tmp_path / "m.onnx", START + LITERAL + PLAIN + END, **_integers())
    done = growc.apply("widen head_dim to 8 with cyclic copy\nexpect exact", path, tmp_path / "out.onnx")
    before, after = stored(path), stored(done.written)
    for name, factor in (("q_weight", 2**-0.5), ("k_weight", 2**-0.5), ("v_weight", 1.0)):
        old = before[name].reshape(WIDTH, HEADS, D)
        expected = np.concatenate([old, old], axis=2) * factor
        np.testing.assert_allclose(after[name].reshape(WIDTH, HEADS, 2 * D), expected, rtol=1e-6)
    old = before["o_weight"].reshape(HEADS, D, WIDTH)
    np.testing.assert_allclose(
        after["o_weight"].reshape(HEADS, 2 * D, WIDTH), np.concatenate([old, old], axis=1) / 2, rtol=1e-6
    )


def _integers() -> dict[str, np.ndarray]:
    return {
        "cut": np.array([0, 0, -1, D]),
        "back": np.array([0, 0, -1]),
        "scale": np.array(0.4, dtype=np.float32),
    }
