"""Zeros of new layers that meet poles, or whole numbers for zero that are none: judged by onnxruntime."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import draw, run

from growc import api

LAYER = """
    n{k} = Tanh(x{k})
    a{k} = MatMul(n{k}, up{k})
    h{k} = Tanh(a{k})
    d{k} = MatMul(h{k}, down{k})
    {branch}
    sum{k} = Add(x{k}, e{k})
    {behind}
"""
NUMBERS = {
    "half": np.float32(0.5),
    "nothing": np.float32(0),
    "one": np.float32(1),
    "two": np.float32(2),
    "odd": np.float32(-0.5),
    "far": np.float32(1.7),
    "tiny": np.float32(1e-5),
    "huge": np.float32(1e9),
    "step": np.float32(0.05),
    "wide": np.float32(0.07),
    "none": np.uint8(0),
    "hundred": np.uint8(100),
    "less": np.uint8(98),
    "same_gain": np.ones(8, np.float32),
    "same": np.full(8, 100, np.uint8),
    "steps": np.linspace(0.04, 0.06, 8, dtype=np.float32),
    "mixed": np.arange(96, 104, dtype=np.uint8),
    "turned": np.arange(96, 104, dtype=np.uint8)[::-1].copy(),
    "signed": np.int8(-5),
    "last": np.array([-1], np.int64),
    "around": np.array([0, 1, 0, 0], np.int64),
}
POLES = {
    "less than an exponential unit": "s{k} = Elu <alpha = 2.0> (d{k})\n t{k} = Add(s{k}, one)"
    "\n u{k} = Sub(t{k}, one)\n e{k} = Div(d{k}, u{k})",
    "reciprocal": "p{k} = Reciprocal(d{k})\n e{k} = Mul(d{k}, p{k})",
    "quotient": "e{k} = Div(d{k}, d{k})",
    "root of a square": "s{k} = Mul(d{k}, d{k})\n p{k} = Sqrt(s{k})\n e{k} = Div(d{k}, p{k})",
    "power": "s{k} = Abs(d{k})\n p{k} = Pow(s{k}, odd)\n e{k} = Mul(d{k}, p{k})",
    "log": "s{k} = Abs(d{k})\n p{k} = Log(s{k})\n e{k} = Mul(p{k}, d{k})",
    "less than a cosine": "c{k} = Cos(d{k})\n s{k} = Sub(one, c{k})"
    "\n p{k} = Reciprocal(s{k})\n e{k} = Mul(d{k}, p{k})",
    "log of the stream": "p{k} = Log(x{k})\n e{k} = Mul(p{k}, d{k})",
    "root of the stream": "p{k} = Sqrt(x{k})\n e{k} = Mul(p{k}, d{k})",
    "sum of zeros": "s{k} = ReduceSum(d{k}, last)\n p{k} = Reciprocal(s{k})\n e{k} = Mul(d{k}, p{k})",
    "norm without eps": "s{k} = Mul(d{k}, d{k})\n m{k} = ReduceMean <keepdims = 1> (s{k}, last)"
    "\n r{k} = Sqrt(m{k})\n e{k} = Div(d{k}, r{k})",
    "norm of equals without eps": "s{k} = Exp(d{k})\n m{k} = ReduceMean <keepdims = 1> (s{k}, last)"
    "\n c{k} = Sub(s{k}, m{k})\n t{k} = Mul(c{k}, c{k})\n v{k} = ReduceMean <keepdims = 1> (t{k}, last)"
    "\n r{k} = Sqrt(v{k})\n q{k} = Div(c{k}, r{k})\n e{k} = Mul(q{k}, d{k})",
    "operator for a norm of equals": "s{k} = Exp(d{k})"
    "\n q{k} = LayerNormalization <epsilon = 0.0> (s{k}, same_gain)\n e{k} = Mul(d{k}, q{k})",
    "part": "p0{k}, p1{k} = Split <axis = -1, num_outputs = 2> (d{k})"
    "\n t{k} = Concat <axis = -1> (p1{k}, p0{k})"
    "\n p{k} = Reciprocal(t{k})\n e{k} = Mul(d{k}, p{k})",
}
LENGTHS = {
    "l2": "l{k} = ReduceL2(last{k}, last)",
    "l2, whole": "l{k} = ReduceL2(last{k})",
    "l1": "l{k} = ReduceL1(last{k}, last)",
    "squares": "m{k} = ReduceSumSquare(last{k}, last)\n l{k} = Sqrt(m{k})",
    "squares in pieces": "m{k} = Mul(last{k}, last{k})\n r{k} = ReduceMean(m{k}, last)\n l{k} = Sqrt(r{k})",
    "largest": "m{k} = Abs(last{k})\n l{k} = ReduceMax(m{k}, last)",
    "product": "m{k} = Transpose <perm = [1, 0]> (last{k})\n r{k} = MatMul(last{k}, m{k})"
    "\n l{k} = ReduceMax(r{k}, last)",
}
"""Of a weight, what it is divided by."""
OVER = {
    f"weights over their {name}": f"{text}\n w{{k}} = Div(last{{k}}, l{{k}})"
    for name, text in LENGTHS.items()
}
POLES |= {
    name: f"{text}\n v{{k}} = Softsign(w{{k}})\n e{{k}} = MatMul(d{{k}}, v{{k}})"
    for name, text in OVER.items()
    if "product" not in name  # that is zeroed in front of it
}

SAFE = {
    "linear attention": "s{k} = Elu(n{k})\n k{k} = Add(s{k}, one)\n t{k} = ReduceSum(k{k}, last)"
    "\n e{k} = Div(d{k}, t{k})",
    "one more": "s{k} = Abs(d{k})\n t{k} = Add(s{k}, one)\n e{k} = Div(d{k}, t{k})",
    "exponential": "s{k} = Exp(d{k})\n e{k} = Div(d{k}, s{k})",
    "sigmoid": "s{k} = Sigmoid(d{k})\n e{k} = Mul(d{k}, s{k})",
    "silu in pieces": "g{k} = Neg(d{k})\n s{k} = Exp(g{k})\n t{k} = Add(s{k}, one)\n e{k} = Div(d{k}, t{k})",
    "log of an exponential": "s{k} = Softplus(d{k})\n p{k} = Log(s{k})\n e{k} = Mul(d{k}, p{k})",
    "norm": "e{k} = LayerNormalization <epsilon = 0.00001> (d{k}, gain{k})",
    "gain behind a norm without eps": "e{k} = LayerNormalization <epsilon = 0.0> (d{k}, gain{k})",
    "norm in pieces": "s{k} = Mul(d{k}, d{k})\n m{k} = ReduceMean <keepdims = 1> (s{k}, last)"
    "\n t{k} = Add(m{k}, tiny)\n r{k} = Sqrt(t{k})\n e{k} = Div(d{k}, r{k})",
    "norm of the stream without eps": "s{k} = Mul(x{k}, x{k})\n m{k} = ReduceMean <keepdims = 1> (s{k}, last)"
    "\n r{k} = Sqrt(m{k})\n q{k} = Div(x{k}, r{k})\n e{k} = Mul(q{k}, d{k})",
    "reciprocal of the stream": "p{k} = Reciprocal(x{k})\n e{k} = Mul(p{k}, d{k})",
    "reciprocal of a product": "b{k} = MatMul(x{k}, last{k})"
    "\n p{k} = Reciprocal(b{k})\n e{k} = Mul(p{k}, d{k})",
    "power of the stream": "p{k} = Pow(x{k}, two)\n e{k} = Mul(p{k}, d{k})",
    "shares": "s{k} = Softmax <axis = -1> (n{k})\n t{k}, i{k} = TopK(s{k}, two_of)"
    "\n u{k} = ReduceSum(t{k}, last)"
    "\n v{k} = Div(t{k}, u{k})\n w{k} = ReduceSum(v{k}, last)\n e{k} = Mul(w{k}, d{k})",
    "softmax in pieces": "b{k} = ReduceMax(n{k}, last)\n c{k} = Sub(n{k}, b{k})\n s{k} = Exp(c{k})"
    "\n u{k} = ReduceSum(s{k}, last)\n v{k} = Div(s{k}, u{k})\n e{k} = Mul(v{k}, d{k})",
    "weights over more than their length": "l{k} = ReduceL2(last{k}, last)\n m{k} = Add(l{k}, tiny)"
    "\n w{k} = Div(last{k}, m{k})\n e{k} = MatMul(d{k}, w{k})",
    "bounded stream": "b{k} = Relu(x{k})\n p{k} = Sqrt(b{k})\n e{k} = Mul(p{k}, d{k})",
}


SAFE |= {name: f"{text}\n e{{k}} = MatMul(d{{k}}, w{{k}})" for name, text in OVER.items()}
SAFE |= {
    f"{name}, with gains": f"{text}\n v{{k}} = Softsign(w{{k}})\n o{{k}} = Mul(v{{k}}, gain{{k}})"
    "\n e{k} = MatMul(d{k}, o{k})"
    for name, text in OVER.items()
}


def steps(scale: str, zero: str, others: str = "", way: str = "") -> str:
    """Q, then D with other steps, and maybe something between them."""
    inner = "f{k}" if way else "q{k}"
    first = f"q{{k}} = QuantizeLinear <axis = -1> (d{{k}}, {scale}, {zero})\n {way}\n"
    return f"{first} e{{k}} = DequantizeLinear <axis = -1> ({inner}, {others or f'{scale}, {zero}'})"


ANOTHER = {
    "smaller zero point": steps("step", "hundred", "step, less"),
    "none behind": steps("step", "hundred", "step"),
    "none before": steps("step", "none", "step, less"),
    "zero points of units": steps("steps", "mixed", "steps, turned"),
    "one for all, then of units": steps("step", "hundred", "steps, mixed"),
    "behind a layout": steps("step", "hundred", "step, less", "f{k} = Unsqueeze(q{k}, last)").replace(
        "e{k} =", "z{k} ="
    )
    + "\n e{k} = Squeeze(z{k}, last)",
}
PAIRS = {
    "equal": steps("step", "hundred"),
    "other scale": steps("step", "hundred", "wide, hundred"),
    "signed": steps("step", "signed"),
    "none": steps("step", "none", "step"),
    "of units": steps("steps", "mixed"),
    "equal in all units": steps("steps", "same", "step, hundred"),
    "behind a layout": steps("step", "hundred", "", "f{k} = Unsqueeze(q{k}, last)").replace(
        "e{k} =", "z{k} ="
    )
    + "\n e{k} = Squeeze(z{k}, last)",
}
ORDERS = ("stack layers to 4 by each with zero outputs", "arrange layers as 0..2, 1 with zero outputs")


ROUNDED = {
    "exponential unit": "s{k} = Elu(b{k})\n t{k} = Add(s{k}, one)",
    "hyperbolic tangent": "s{k} = Tanh(b{k})\n t{k} = Add(s{k}, one)",
    "error function": "s{k} = Erf(b{k})\n t{k} = Add(one, s{k})",
    "soft sign": "s{k} = Softsign(b{k})\n t{k} = Add(s{k}, one)",
    "logistic": "w{k} = Neg(b{k})\n s{k} = Sigmoid(w{k})\n t{k} = Sub(one, s{k})",
    "hard logistic": "t{k} = HardSigmoid(b{k})",
}
"""Functions that come near to a number, less that number, of b."""
OVER_IT = "p{k} = Reciprocal(t{k})\n e{k} = Mul(d{k}, p{k})"

SUM = "x{n} = Identity(sum{k})"
Part = tuple[str, str]


def judged(
    folder: Path, branch: str, order: str, *others: Part, behind: str = SUM, stem: str = "x0 = Identity(s)"
) -> tuple[bool, bool, str]:
    """Whether a claim is exact, whether the result is the same where the source is finite, and the causes.

    branch, behind: what is added by the first layer, and what makes its end of its sum; others: of those
    behind it, which are one like it if there are none.
    """
    parts = [(branch, behind), *(others or [(branch, behind)])]
    layers = "".join(
        LAYER.replace("{branch}", inner)
        .replace("{behind}", end)
        .replace("{k}", str(k))
        .replace("{n}", str(k + 1))
        for k, (inner, end) in enumerate(parts)
    )
    weights = ", ".join(
        f"float[8, 5] up{k}, float[5, 8] down{k}, float[8] gain{k}, float[8, 8] last{k}"
        for k in range(len(parts))
    )
    layers = stem + layers
    kinds = {"f": "float", "u": "uint8", "i": "int8"}
    given = {name: n for name, n in NUMBERS.items() if name in layers} | {"two_of": np.array([2], np.int64)}
    names = ", ".join(
        f"{'int64' if n.dtype == np.int64 else kinds[n.dtype.kind]}{list(n.shape) or ''} {name}"
        for name, n in given.items()
    )
    text = f"""
g (float[N, 3] x) => (float[N, 4] y) <float[3, 8] first, float[8, 4] end, {weights}, {names}>
{{
    s = MatMul(x, first)
    {layers}
    y = MatMul(x{len(parts)}, end)
}}
"""
    model, out = save(folder / "m.onnx", text, opset=18, **given), folder / "out.onnx"
    certificate = api.apply(order, model, out, check=False, force=True).plan.certificate
    feeds = draw(model, 40)
    before, after = (run(path, feeds)["y"] for path in (model, out))
    rows = np.isfinite(before).all(axis=1)
    same = np.isfinite(after[rows]).all() and np.allclose(after[rows], before[rows], rtol=1e-4, atol=1e-4)
    return certificate.exact, bool(same), "\n".join(f"{g.node}: {g.cause}" for g in certificate.gaps)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", POLES)
def test_a_pole_where_a_new_layer_is_zero_is_named(tmp_path: Path, name: str, order: str) -> None:
    exact, same, causes = judged(tmp_path, POLES[name], order)
    assert not exact
    assert not same or "of the stream" in name  # where the source is finite, too few rows show it
    assert "may be infinite or no number" in causes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", SAFE)
def test_functions_that_are_finite_stay_exact(tmp_path: Path, name: str, order: str) -> None:
    assert judged(tmp_path, SAFE[name], order)[:2] == (True, True)


@pytest.mark.parametrize("order", [ORDERS[0], "arrange layers as 0, 1, 0 with zero outputs"])
@pytest.mark.parametrize("name", ROUNDED)
def test_a_bound_that_numbers_are_rounded_to_is_reached(tmp_path: Path, name: str, order: str) -> None:
    """Behind a ReLU no denominator is zero; a copy that reads what is below zero divides by 1 + tanh(-20)."""
    branch = f"b{{k}} = Mul(x{{k}}, huge)\n {ROUNDED[name]}\n {OVER_IT}"
    plain = ("e{k} = Identity(d{k})", SUM)
    exact, same, causes = judged(tmp_path, branch, order, plain, stem="x0 = Relu(s)")
    assert (exact, same) == (False, False)
    assert "may be infinite or no number" in causes


@pytest.mark.parametrize("name", ROUNDED)
def test_a_bound_is_not_reached_by_bounded_numbers(tmp_path: Path, name: str) -> None:
    branch = f"b{{k}} = Tanh(x{{k}})\n {ROUNDED[name]}\n {OVER_IT}"
    assert judged(tmp_path, branch, ORDERS[0])[:2] == (True, True)


@pytest.mark.parametrize("name", ANOTHER)
def test_another_zero_point_is_no_zero(tmp_path: Path, name: str) -> None:
    exact, same, causes = judged(tmp_path, ANOTHER[name], ORDERS[0])
    assert not exact
    assert not same
    assert "is not zero" in causes


@pytest.mark.parametrize("name", PAIRS)
def test_the_zero_point_of_the_same_steps_is_zero(tmp_path: Path, name: str) -> None:
    assert judged(tmp_path, PAIRS[name], ORDERS[0])[:2] == (True, True)


LUMPS = {
    "rectified": "x{n} = Relu(sum{k})",
    "bounded": "x{n} = Clip(sum{k}, odd, half)",
    "largest": "x{n} = Max(odd, sum{k})",
    "whole": "x{n} = Round(sum{k})",
    "rounded to steps": "first{k} = QuantizeLinear(sum{k}, step, hundred)\n"
    "    x{n} = DequantizeLinear(first{k}, step, hundred)",
    "whole numbers": "first{k} = Cast <to = 6> (sum{k})\n    x{n} = Cast <to = 1> (first{k})",
    "signs": "x{n} = Sign(sum{k})",
    "threshold": "x{n} = ThresholdedRelu <alpha = 0.25> (sum{k})",
    "chosen": "first{k} = Less(sum{k}, half)\n    x{n} = Where(first{k}, nothing, sum{k})",
    "other numbers chosen": "first{k} = Greater(sum{k}, half)\n    x{n} = Where(first{k}, sum{k}, half)",
    "chosen, then rounded": "first{k} = Less(sum{k}, half)\n    second{k} = Where(first{k}, nothing, sum{k})"
    "\n    third{k} = Cast <to = 10> (second{k})\n    x{n} = Cast <to = 1> (third{k})",
}
"""Ends of layers that give some number for more than single inputs."""
OF_A_LUMP = {
    "zero": "p{k} = Reciprocal(x{k})\n e{k} = Mul(p{k}, d{k})",
    "half": "o{k} = Sub(x{k}, half)\n p{k} = Reciprocal(o{k})\n e{k} = Mul(p{k}, d{k})",
    "one less": "o{k} = Add(x{k}, odd)\n p{k} = Log(o{k})\n e{k} = Mul(p{k}, d{k})",
}


STEMS = {
    "rectified": "r = Relu(s)\n x0 = Mul(r, gain0)",
    "rectified and turned": "r = Relu(s)\n x0 = Neg(r)",
    "with a number of its own": "t = Less(s, odd)\n r = Where(t, nothing, s)\n x0 = Mul(r, gain0)",
    "signs": "r = Sign(s)\n x0 = Mul(r, gain0)",
}
"""Stems of a stream that is zero for more than single inputs."""
ADDED = {
    "weights": ("e{k} = Identity(d{k})", SUM),
    "rectified": ("e{k} = Relu(d{k})", SUM),
    "gated": ("t{k} = Relu(d{k})\n e{k} = Mul(t{k}, d{k})", SUM),
}


@pytest.mark.parametrize("name", STEMS)
def test_a_layer_in_front_of_its_source_reads_another_stream(tmp_path: Path, name: str) -> None:
    order = "arrange layers as 1, 0, 1 with zero outputs"
    parts = (ADDED["weights"], (OF_A_LUMP["zero"], SUM))
    exact, same, causes = judged(tmp_path, parts[0][0], order, parts[1], stem=STEMS[name])
    assert same or not exact, causes


@pytest.mark.parametrize("end", [SUM, LUMPS["rectified"]])
@pytest.mark.parametrize("name", ADDED)
def test_sums_of_zeros_are_zeros(tmp_path: Path, name: str, end: str) -> None:
    """Behind a ReLU a sum with zeros may be zero; weights make zero of a row of zeros."""
    order = "arrange layers as 0, 1, 2, 0 with zero outputs"
    others = (("e{k} = Identity(d{k})", end), ADDED[name])
    exact, same, causes = judged(tmp_path, OF_A_LUMP["zero"], order, *others)
    assert (exact, same) == (end == SUM, end == SUM), causes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("pole", OF_A_LUMP)
@pytest.mark.parametrize("name", LUMPS)
def test_a_pole_at_a_number_that_bounds_give_is_no_accident(tmp_path: Path, name: str, pole: str) -> None:
    """The source's first layer reads what nothing has bounded; its copy behind the second reads what was."""
    order = "arrange layers as 0, 1, 0 with zero outputs"
    exact, same, causes = judged(
        tmp_path, OF_A_LUMP[pole], order, (SAFE["sigmoid"], LUMPS[name]), behind=LUMPS[name]
    )
    assert same or not exact, causes


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", LUMPS)
def test_a_pole_elsewhere_than_at_the_numbers_that_bounds_give_is_none(tmp_path: Path, name: str) -> None:
    branch = "o{k} = Add(x{k}, far)\n p{k} = Reciprocal(o{k})\n e{k} = Mul(p{k}, d{k})"
    order = "arrange layers as 0, 1, 0 with zero outputs"
    exact, same, causes = judged(tmp_path, branch, order, (SAFE["sigmoid"], LUMPS[name]), behind=LUMPS[name])
    assert same
    assert exact == (name in ("bounded", "rectified", "largest", "other numbers chosen")), causes


OF_TWO = {
    "maximum": "e{k} = Max(d{k}, g{k})",
    "minimum": "e{k} = Min(g{k}, d{k})",
    "maximum of a copy": "c{k} = Identity(g{k})\n e{k} = Max(d{k}, c{k})",
    "choice": "o{k} = Greater(d{k}, g{k})\n e{k} = Where(o{k}, d{k}, g{k})",
    "least of three": "w{k} = Tanh(g{k})\n e{k} = Min(d{k}, g{k}, w{k})",
    "slope": "e{k} = PRelu(d{k}, gain{k})",
}
"""Functions of two projections, both of which are zero where the result is."""


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("name", OF_TWO)
def test_a_function_of_two_is_zero_where_both_are(tmp_path: Path, name: str, order: str) -> None:
    """One projection of two was zero, and the larger of zero and the other was added."""
    branch = f"g{{k}} = MatMul(n{{k}}, last{{k}})\n {OF_TWO[name]}"
    assert judged(tmp_path, branch, order)[:2] == (True, True)


PADDED = (
    "b{k} = Exp(x{k})\n t{k} = Pad(b{k}, around)\n u{k} = ReduceMin <keepdims = 1> (t{k}, last)"
    "\n p{k} = Reciprocal(u{k})\n e{k} = Mul(d{k}, p{k})"
)


def test_a_pad_brings_zeros(tmp_path: Path) -> None:
    assert not judged(tmp_path, PADDED, ORDERS[0])[0]
