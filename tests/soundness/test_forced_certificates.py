"""Certificates that are made to say exact of what is not: running both models tells.

The plans have gaps of every kind that small graphs show. The comparison of the two files must see each
difference that a certificate overlooks, as long as it is more than the model's own rounding.
"""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from graphs import STREAM, save

from growc import api
from growc.algebra.indexmap import IndexMap
from growc.errors.diagnostic import GrowError
from growc.plans.plan import Certificate
from growc.verification.feeds import draw_cases
from growc.verification.float_copies import SAME, write_copy
from growc.verification.verify import verify

RMS = STREAM.replace("LayerNormalization", "SimplifiedLayerNormalization")
RMS = RMS.replace(", norm1_bias)\n    u", ")\n    u").replace(", norm2_bias)\n    head", ")\n    head")
RMS = RMS.replace(", float[8] norm1_bias", "").replace(", float[8] norm2_bias", "")

BLOCKS = """
blocks (float[N, 6] x) => (float[N, 5] y)
<float[6, 8] stem, float[8, 12] up0, float[12, 8] down0, float[8, 12] up1, float[12, 8] down1, float[8] gain0,
 float[8] gain1, float[8, 5] head>
{
    x0 = MatMul(x, stem)
    u0 = MatMul(x0, up0)
    r0 = Relu(u0)
    d0 = MatMul(r0, down0)
    s0 = Add(x0, d0)
    t0 = ON(s0, gain0)
    u1 = MatMul(t0, up1)
    r1 = Relu(u1)
    d1 = MatMul(r1, down1)
    s1 = Add(t0, d1)
    t1 = ON(s1, gain1)
    y = MatMul(t1, head)
}
"""
POST_NORM = BLOCKS.replace("ON(", "LayerNormalization <axis = -1> (")
SQUASHED = BLOCKS.replace("ON(", "Tanh(").replace(", gain0)", ")").replace(", gain1)", ")")

LOGARITHM = """
logarithm (float[N, 6] x) => (float[N, 5] y)
<float[6, 8] up, float[8, 5] down>
{
    h = MatMul(x, up)
    a = Abs(h)
    l = Log(a)
    y = MatMul(l, down)
}
"""

TWICE = """
twice (int64[N] tokens) => (float[N, 16] y)
<float[16, 8] table>
{
    e = Gather(table, tokens)
    r = Relu(e)
    turned = Transpose <perm = [1, 0]> (table)
    y = MatMul(r, turned)
}
"""

NEGATED = """
negated (int64[N] tokens) => (float[N, 5] y)
<float[16, 8] table, float[8, 5] head, int64 one = {1}, int64 two = {2}, int64 seven = {7}>
{
    below = Neg(one)
    real = Cast <to = 1> (tokens)
    offset = Cast <to = 1> (two)
    less = Sub(real, offset)
    l = Log(less)
    count = Cast <to = 7> (l)
    least = Min(count, below)
    most = Neg(least)
    row = Mod <fmod = 1> (most, seven)
    e = Gather(table, row)
    y = MatMul(e, head)
}
"""

FROM_THE_END = """
end (int64[N] tokens) => (float[N, 5] y)
<float[16, 8] table, float[8, 5] head>
{
    one = Constant <value = int64 {1}> ()
    before = Sub(tokens, one)
    e = Gather(table, before)
    y = MatMul(e, head)
}
"""

SAMPLE = """
sample (int64[N] tokens) => (float[N, 5] y)
<float[16, 8] table, float[8] gain, float[8] bias, float[8, 5] head>
{
    h = Gather(table, tokens)
    mean = ReduceMean <axes = [-1]> (h)
    c = Sub(h, mean)
    squares = Mul(c, c)
    one_less = Constant <value = float {7.0}> ()
    total = ReduceSum <keepdims = 1> (squares, last)
    variance = Div(total, one_less)
    deviation = Sqrt(variance)
    normed = Div(c, deviation)
    scaled = Mul(normed, gain)
    moved = Add(scaled, bias)
    y = MatMul(moved, head)
}
""".replace("float[8] gain,", "int64[1] last, float[8] gain,")

LEAKY = SQUASHED.replace("= Tanh(", "= LeakyRelu <alpha = 0.5> (")

RELU = SQUASHED.replace("= Tanh(", "= Relu(")
WHOLE = SQUASHED.replace("= Tanh(", "= Round(")
STEPS = (
    BLOCKS.replace("ON(", "DequantizeLinear(").replace(", gain0)", ", step)").replace(", gain1)", ", step)")
)
for k in range(2):
    steps = f"q{k} = QuantizeLinear(s{k}, step)\n    t{k} = DequantizeLinear(q{k}, step)"
    STEPS = STEPS.replace(f"t{k} = DequantizeLinear(s{k}, step)", steps)
STEPS = STEPS.replace("float[8] gain0,\n float[8] gain1", "float step")

LARGEST = """
largest (float[N, 6] x) => (float[N, 5] y)
<float[6, 8] up, float[8, 5] down>
{
    h = MatMul(x, up)
    w = MatMul(h, down)
    squares = Mul(h, h)
    below = Neg(squares)
    most = ReduceMax <axes = [-1], keepdims = 1> (below)
    y = Mul(w, most)
}
"""

WIDE_QUERIES = """
queries (float[N, S, 6] x) => (float[N, S, S] y)
<float[6, 8] keys>
{
    a, scale, shift = DynamicQuantizeLinear(x)
    p = MatMulInteger(a, whole, shift)
    q = Cast <to = 1> (p)
    k = MatMul(x, keys)
    t = Transpose <perm = [0, 2, 1]> (k)
    y = MatMul(q, t)
}
"""

PACKED = """
packed (float[N, 6] x) => (float[N, 5] y)
<float[6, 8] stem, float[8, 24] packed, float[8, 5] head>
{
    h = MatMul(x, stem)
    all = MatMul(h, packed)
    waves = FUNCTION(all)
    q, k, v = Split <axis = -1> (waves)
    turned = Transpose <perm = [1, 0]> (k)
    products = MatMul(q, turned)
    scores = Relu(products)
    o = MatMul(scores, v)
    y = MatMul(o, head)
}
"""

SIGNS = BLOCKS.replace("ON(", "Identity(").replace(", gain0)", ")").replace(", gain1)", ")")
for k in range(2):
    signs = f"w{k} = MatMul(r{k}, down{k})\n    m{k} = Abs(w{k})\n    d{k} = Div(w{k}, m{k})"
    SIGNS = SIGNS.replace(f"d{k} = MatMul(r{k}, down{k})", signs)

BATCH_NORM = """
normed (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6] gain, float[6] bias, float[6] mean, float[6, 3] down>
{
    h = MatMul(x, up)
    k = BatchNormalization <epsilon = 0.0> (h, gain, bias, mean, spread)
    y = MatMul(k, down)
}
"""

FIRST = "arrange layers as 1, 0, 1 with zero outputs"

FALSE = {
    "unequal copies under a norm": (STREAM, "widen hidden to 12 with uniform copy"),
    "zeros under a norm": (STREAM, "widen hidden to 12 with zero fill"),
    "means under a norm of squares": (RMS, "widen hidden to 12 with average fill"),
    "noise": (STREAM, "widen hidden to 16 with cyclic copy noise 0.1"),
    "drawn units": (STREAM, "widen ffn to 16 with random fill"),
    "zero times infinity": (LOGARITHM, 'widen axis 1 of "up" to 12 with zero fill'),
    "a norm on the stream": (POST_NORM, "stack layers to 4 by last with zero outputs"),
    "a function on the stream": (SQUASHED, "stack layers to 4 by last with zero outputs"),
    "a matrix that is multiplied and looked up": (TWICE, 'widen axis 1 of "table" to 12 with uniform copy'),
    "rows counted from the end": (FROM_THE_END, 'widen axis 0 of "table" to 20 with uniform copy'),
    "the least integer, negated": (NEGATED, 'widen axis 0 of "table" to 20 with uniform copy'),
    "zeros under a variance of a sample": (SAMPLE, 'widen axis 1 of "table" to 12 with zero fill'),
    "unequal copies under a variance of a sample": (
        SAMPLE,
        'widen axis 1 of "table" to 12 with uniform copy',
    ),
    "a Relu that leaks on the stream": (LEAKY, "stack layers to 4 by last with zero outputs"),
    "a Relu in front of which the stream has had none": (RELU, FIRST),
    "rounding to whole numbers in front of which there was none": (WHOLE, FIRST),
    "rounding to steps in front of which there was none": (STEPS, FIRST),
    "zeros among negative numbers": (LARGEST, 'widen axis 1 of "up" to 12 with zero fill'),
    "roots that bare integers are multiplied by": (
        WIDE_QUERIES,
        'widen axis 1 of "keys" to 16 with cyclic copy',
    ),
    "a quotient of two zeros in a new layer": (SIGNS, "stack layers to 3 by last with zero outputs"),
    "a variance of zero without eps": (
        BATCH_NORM,
        'widen axis 1 of "up" to 9 with zero fill',
    ),
    "packed waves of zeros": (
        PACKED.replace("FUNCTION", "Cos"),
        'widen axis 1 of "packed" to 36 with zero fill',
    ),
    "packed powers of zeros": (
        PACKED.replace("FUNCTION", "Exp"),
        'widen axis 1 of "packed" to 36 with zero fill',
    ),
}


def numbers(graph: str) -> dict[str, np.ndarray]:
    """The weights of a graph that are no draws."""
    found = {"last": np.array([-1]), "step": np.float32(0.25)}
    found["spread"] = np.float32([1.3, 0.4, 2.1, 0.7, 1.1, 0.2])
    found["whole"] = np.random.default_rng(0).integers(-60, 60, (6, 8)).astype(np.int8)
    return {name: value for name, value in found.items() if name in graph}


@pytest.fixture
def forced(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Certificate, "exact", property(lambda self: True))


@pytest.mark.usefixtures("forced")
@pytest.mark.parametrize("kind", FALSE)
def test_a_false_certificate_is_refuted(tmp_path: Path, kind: str) -> None:
    graph, recipe = FALSE[kind]
    source = save(tmp_path / "source.onnx", graph, **numbers(graph))
    assert api.plan(recipe, source).certificate.gaps
    with pytest.raises(GrowError) as refuted:
        api.apply(recipe, source, tmp_path / "grown.onnx")
    assert refuted.value.diagnostics[0].code == "G402"
    assert not (tmp_path / "grown.onnx").exists()


@pytest.mark.parametrize("graph", [STREAM, RMS])
def test_a_wrong_eps_is_refuted(tmp_path: Path, graph: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("layer_norm", "rms_norm"):
        right = getattr(IndexMap, name)

        def wrong(state: IndexMap, *more: int, right=right) -> tuple[IndexMap, float] | None:
            found = right(state, *more)
            return None if found is None else (found[0], found[1] * 1.2)

        monkeypatch.setattr(IndexMap, name, wrong)
    source = save(tmp_path / "source.onnx", graph.replace("axis = -1", "axis = -1, epsilon = 0.01"))
    with pytest.raises(GrowError) as refuted:
        api.apply("widen hidden to 16 with cyclic copy", source, tmp_path / "grown.onnx")
    assert refuted.value.diagnostics[0].code == "G402"


@pytest.mark.parametrize("kind", ["float16", "bfloat16"])
def test_numbers_that_are_none_are_refuted_in_16_bits(tmp_path: Path, kind: str) -> None:
    """However much a model rounds, that makes no NaN."""
    dtype = np.dtype({"float16": np.float16, "bfloat16": ml_dtypes.bfloat16}[kind])
    graph = (
        f"g ({kind}[N, 4] x) => ({kind}[N, 3] y) {{ a = MatMul(x, up)  b = Relu(a)  y = MatMul(b, down) }}"
    )
    random = np.random.default_rng(0)
    weights = {"up": random.standard_normal((4, 8)).astype(dtype)}
    weights["down"] = random.standard_normal((8, 3)).astype(dtype)
    source = save(tmp_path / "source.onnx", graph, **weights)

    def spoilt(name: str, array: np.ndarray) -> np.ndarray:
        spoiled = array.copy()
        spoiled[-1, -1] = np.nan if name == "down" else array[-1, -1]
        return spoiled

    result = write_copy(source, tmp_path / "result.onnx", SAME, spoilt)
    assert not verify(source, source).refutes_exact()
    assert verify(source, result).refutes_exact()


def test_a_difference_at_the_first_and_the_last_row_alone_is_seen(tmp_path: Path) -> None:
    graph = "g (int64[N] i) => (float[N, 4] y) <float[5000, 4] table> { y = Gather(table, i) }"
    source = save(tmp_path / "source.onnx", graph)
    for row in (0, 4999):
        table = np.random.default_rng(0).standard_normal((5000, 4)).astype(np.float32)
        table[row] += 1
        result = save(tmp_path / "result.onnx", graph.replace(" <float[5000, 4] table>", ""), table=table)
        assert verify(source, result).refutes_exact()
    assert all({0, 4999} <= set(case["i"]) for case in draw_cases(source))
