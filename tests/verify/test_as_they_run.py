"""The two files as a user runs them: their own types, and every cast at its place."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnxruntime
import pytest

from growc.algebra.last_place import nudged
from growc.api import compile as compiled
from growc.api import recipe as resolved
from growc.errors.diagnostic import GrowError
from growc.verification.difference import compare
from growc.verification.feeds import draw_cases
from growc.verification.float_copies import SINGLE, runnable, write_copy
from growc.verification.judge import SATURATING, doubts, judge_measured, refutation
from growc.verification.ort_session import Session
from growc.verification.rounding import own_rounding
from growc.verification.verify import Verification, verify

NARROW = {"float16": np.dtype(np.float16), "bfloat16": np.dtype(ml_dtypes.bfloat16)}
NUMBER = {"float16": 10, "bfloat16": 16}

LAYER = """c# = Cast<to = NARROW>(x#)  h# = Cast<to = 1>(c#)  n# = LayerNormalization<axis = -1>(h#, g)
    u# = MatMul(n#, up)  r# = Relu(u#)  d# = MatMul(r#, DOWN)  x! = Add(h#, d#)"""


def layered(onnx_file, random, kind: str, *, idle: int) -> Path:
    """Two layers that round the stream before they read it, and `idle` ones behind that add zero."""
    lines = [
        LAYER.replace("#", str(k)).replace("!", str(k + 1)).replace("DOWN", "down" if k < 2 else "zero")
        for k in range(2 + idle)
    ]
    body = "\n".join(lines).replace("NARROW", str(NUMBER[kind]))
    ends = f"x0 = MatMul(x, stem) {body} y = MatMul(x{2 + idle}, head)"
    graph = f"g (float[b, 8] x) => (float[b, 5] y) {{ {ends} }}"
    weights = {
        "stem": random(8, 16),
        "up": random(16, 32),
        "down": random(32, 16, seed=1) / 8,
        "g": random(16),
    }
    weights |= {"zero": np.zeros((32, 16), np.float32), "head": random(16, 5)}
    return onnx_file(graph, f"{idle}.onnx", **weights)


@pytest.mark.parametrize("optimised", [True, False])
@pytest.mark.parametrize("kind", NARROW)
def test_a_cast_that_rounds_once_more_is_a_difference(onnx_file, random, kind, optimised):
    source, result = (layered(onnx_file, random, kind, idle=idle) for idle in (0, 1))
    level = onnxruntime.GraphOptimizationLevel
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = level.ORT_ENABLE_ALL if optimised else level.ORT_DISABLE_ALL
    before, after = (
        onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        for path in (source, result)
    )
    pairs = [(before.run(None, case)[0], after.run(None, case)[0]) for case in draw_cases(source)]
    seen = max(compare(a, b).relative for a, b in pairs)
    found = verify(source, result)
    assert found.relative == pytest.approx(seen, rel=0.01)
    assert found.relative > {"float16": 3e-5, "bfloat16": 3e-4}[kind], "the premise: the cast rounds"
    assert found.rounding > found.relative / 5, "it rounds as much by itself"


@pytest.mark.parametrize("kind", NARROW)
def test_a_wide_copy_keeps_every_cast_of_what_is_fed(onnx_file, random, tmp_path, kind):
    graph = (
        f"g (float[b, 8] x) => (float[b, 8] y) {{ c = Cast<to = {NUMBER[kind]}>(x)  y = Cast<to = 1>(c) }}"
    )
    copy = write_copy(onnx_file(graph), tmp_path / "copy.onnx", SINGLE)
    x = random(5, 8)
    with Session(copy) as session:
        assert np.array_equal(session.run({"x": x})["y"], x.astype(NARROW[kind]).astype(np.float32))


def test_bfloat16_without_kernels_is_rounded_operator_by_operator(onnx_file, random):
    graph = """g (bfloat16[b, 8] x) => (bfloat16[b, 8] y) {
        a = Mul(x, w)  c = Add(a, v)  d = Tanh(c)  y = Mul(d, w) }"""
    w, v = (random(8, seed=seed).astype(ml_dtypes.bfloat16) for seed in (0, 1))
    x = random(5, 8)
    with runnable(onnx_file(graph, w=w, v=v)) as path, Session(path) as session:
        y = session.run({"x": x})["y"]
    wanted = np.tanh(x.astype(ml_dtypes.bfloat16) * w + v) * w
    assert y.dtype == np.float32
    assert np.array_equal(y, wanted.astype(np.float32))


SEQUENCES = """g (float[b, 64] x) => (float[b, 8] y) {
    a = MatMul(x, w)  s = SplitToSequence<axis = 1>(a, parts)  p = SequenceAt(s, zero)  q = SequenceAt(s, one)
    c = Mul(p, q)  y = MatMul(c, v) }"""
GROUPED = """g (float[b, 64] x) => (float[b, 8] y) {
    a = MatMul(x, w)  c = com.microsoft.BiasGelu(a, bias)  d = com.microsoft.FastGelu(c)
    y = MatMul(d, u) }"""


@pytest.mark.parametrize("graph", [SEQUENCES, GROUPED])
def test_own_rounding_needs_no_wider_copy(onnx_file, random, monkeypatch, graph):
    weights = {"w": random(64, 32), "v": random(16, 8), "u": random(32, 8), "bias": random(32)}
    weights |= {"parts": np.int64(16), "zero": np.int64(0), "one": np.int64(1)}
    path = onnx_file(graph, **{name: w for name, w in weights.items() if name in graph})
    monkeypatch.setattr("growc.verification.rounding.WIDER_BYTES", 0)
    assert 1e-8 < own_rounding(path, draw_cases(path)) < 1e-5


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.float32, np.float64])
def test_moved_numbers_are_off_by_half_a_unit_of_their_last_place(random, dtype):
    numbers = random(4000).astype(dtype)
    numbers[:5] = [0, 1, -3, np.inf, np.nan]
    moved = nudged(numbers)
    assert np.array_equal(moved[:5], numbers[:5], equal_nan=True)
    spacing = np.abs(np.spacing(numbers[5:]).astype(np.float64))
    steps = (moved[5:].astype(np.float64) - numbers[5:].astype(np.float64)) / spacing
    assert np.abs(steps).mean() == pytest.approx(0.5, abs=0.05)
    assert abs(steps.mean()) < 0.05
    assert np.abs(steps).max() <= 2, "below a power of two the last place is a half of the one above"


def test_a_refusal_names_the_comparison_that_refutes():
    small = Verification(1e-9, 1e-9, 1e-7, 1, {})
    large = verified(relative=1e-3, rounding=1e-6)
    assert Verification(1e-9, 1e-9, 1e-7, 1, {}, beside={"As float32 copies": large}).refuting() == (
        "As float32 copies",
        large,
    )
    assert small.refuting() is None
    assert refutation("As float32 copies", large)[:2] == (
        "the comparison that shows it: As float32 copies",
        "the model's own rounding is 1.0e-06",
    )


@pytest.mark.parametrize("kind", ["int8", "float"])
def test_a_refusal_says_that_integer_products_may_saturate(onnx_file, kind):
    cast = "up" if kind == "float" else "r"
    stored = "r = DequantizeLinear(up, step)" if kind == "int8" else ""
    graph = f"""
    g (float[b, 3] x) => (float[b, 2] y) <{kind}[3, 4] up, float step, float[4, 2] down,
     int64[2] whole = {{0, -1}}>
    {{ {stored} h = MatMul(x, {cast}) z = MatMul(h, down) y = Reshape(z, whole) }}"""
    up = np.arange(12).reshape(3, 4).astype(np.int8 if kind == "int8" else np.float32)
    weights = {"up": up, "down": np.ones((4, 2), np.float32), "step": np.float32(0.1)}
    path = onnx_file(graph, **{name: w for name, w in weights.items() if name in graph})
    made = compiled(resolved('widen axis 0 of "down" to 6 with uniform copy'), path)
    large = verified(relative=1.0, rounding=1e-6)
    with pytest.raises(GrowError) as raised:
        judge_measured([], made.plan, large, refute=True, notes=doubts(made))
    assert (SATURATING in raised.value.diagnostics[0].notes) == (kind == "int8")


def verified(relative: float, rounding: float) -> Verification:
    from growc.verification.difference import OutputReport

    return Verification(relative, relative, rounding, 1, {"y": OutputReport(relative, relative, relative)})


def test_an_output_that_is_one_number_throughout_is_said_to_show_nothing(onnx_file):
    graph = "g (float[b, 3] x) => (float[b, 3] y) { a = Mul(x, zero)  y = Add(a, one) }"
    path = onnx_file(graph, zero=np.float32(0), one=np.float32(1))
    assert verify(path, path).notes == (
        "output `y` is one number throughout, whatever is fed: no difference can be seen in it",
    )
