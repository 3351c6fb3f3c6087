"""Norms that an export spells out: recognised by what they compute, and nothing else taken for one."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import onnxruntime
import pytest
from numpy.typing import NDArray

from growc.dialects.onnx.model import OnnxModel
from growc.ir.graph import Graph
from growc.passes.axes.norms import Formula, Norm, scalar
from growc.passes.raising.norms import STEPS, find_norms

EPS = 1e-2
CONSTANTS = """
    float eps = {0.01}, float one = {1}, float two = {2}, float three = {3},
    float half = {0.5}, float minus = {-0.5}, float inverse = {-1},
    float[6] gain = {1, 2, 3, 4, 5, 6}, float[6] bias = {1, 1, 2, 2, 3, 3},
    int64[1] last = {-1}, int64[1] middle = {1}, int64[3] shape = {2, 3, 6}, int64[3] along = {1, 1, 6}
"""


def model(body: str, opset: int = 18) -> onnx.ModelProto:
    """x [2, 3, 6] -> y, with the constants above."""
    text = f"""
        <ir_version: 8, opset_import: ["" : {opset}]>
        agraph (float[2, 3, 6] x, float[2, 3, 6] z) => (float[2, 3, 6] y) <{CONSTANTS}> {{ {body} }}
    """
    return onnx.parser.parse_model(text)


def norms(body: str, opset: int = 18) -> list[Norm]:
    return find_norms(captured(body, opset))


def captured(body: str, opset: int = 18) -> Graph:
    opened = OnnxModel(ir.from_proto(model(body, opset)))
    graph = opened.capture()
    opened.simulate(graph)
    return graph


def values(body: str, name: str, opset: int = 18) -> NDArray[np.float32]:
    """One value of the model, as onnxruntime computes it."""
    proto = model(body, opset)
    del proto.graph.output[:]
    proto.graph.output.append(onnx.helper.make_empty_tensor_value_info(name))
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    feeds = {"x": sample(1), "z": sample(2)}
    needed = {i.name for i in session.get_inputs()}
    return np.asarray(session.run(None, {k: v for k, v in feeds.items() if k in needed})[0])


def sample(seed: int) -> NDArray[np.float32]:
    return np.random.default_rng(seed).standard_normal((2, 3, 6)).astype(np.float32) / 5


MEAN_SQUARE = "s = Pow(x, two) m = ReduceMean(s, last) a = Add(m, eps)"
CENTRED = "mu = ReduceMean(x, last) c = Sub(x, mu)"

SPELLINGS = {
    "nine nodes of LayerNorm": (
        "layer_norm",
        f"{CENTRED} p = Pow(c, two) v = ReduceMean(p, last) a = Add(v, eps) d = Sqrt(a) n = Div(c, d)"
        "g = Mul(n, gain) y = Add(g, bias)",
    ),
    "LayerNorm that centres twice": (
        "layer_norm",
        f"{CENTRED} mu2 = ReduceMean(x, last) c2 = Sub(x, mu2) p = Mul(c2, c2) v = ReduceMean(p, last)"
        "a = Add(v, eps) d = Sqrt(a) n = Div(c, d) y = Identity(n)",
    ),
    "LayerNorm by the reciprocal of the root": (
        "layer_norm",
        f"{CENTRED} p = Mul(c, c) v = ReduceMean(p, last) a = Add(eps, v) d = Sqrt(a) r = Reciprocal(d)"
        "n = Mul(c, r) y = Add(n, bias)",
    ),
    "RMSNorm with Pow and Reciprocal": (
        "rms_norm",
        f"{MEAN_SQUARE} d = Sqrt(a) r = Reciprocal(d) n = Mul(x, r) y = Mul(gain, n)",
    ),
    "RMSNorm with a product of x and x": (
        "rms_norm",
        "s = Mul(x, x) m = ReduceMean(s, last) a = Add(m, eps) d = Sqrt(a) r = Div(one, d) "
        "n = Mul(x, r) y = Mul(n, gain)",
    ),
    "RMSNorm that divides": ("rms_norm", f"{MEAN_SQUARE} d = Sqrt(a) n = Div(x, d) y = Mul(n, gain)"),
    "RMSNorm by the power of minus one half": (
        "rms_norm",
        f"{MEAN_SQUARE} r = Pow(a, minus) n = Mul(x, r) y = Mul(n, gain)",
    ),
    "RMSNorm by the power of one half": (
        "rms_norm",
        f"{MEAN_SQUARE} d = Pow(a, half) n = Div(x, d) y = Mul(n, gain)",
    ),
    "RMSNorm with the scale in front": (
        "rms_norm",
        f"{MEAN_SQUARE} d = Sqrt(a) r = Reciprocal(d) n = Mul(r, x) y = Mul(gain, n)",
    ),
    "RMSNorm with casts around it": (
        "rms_norm",
        "x1 = Cast<to = 11>(x) e1 = Cast<to = 11>(eps) t1 = Cast<to = 11>(two) s = Pow(x1, t1) "
        "m = ReduceMean(s, last)"
        "a = Add(m, e1) d = Sqrt(a) r = Reciprocal(d) n = Mul(x1, r) h = Cast<to = 1>(n) y = Mul(gain, h)",
    ),
    "RMSNorm whose scale is expanded": (
        "rms_norm",
        f"{MEAN_SQUARE} d = Sqrt(a) w = Expand(d, shape) n = Div(x, w) y = Mul(n, gain)",
    ),
    "RMSNorm whose scale loses its axis and has it again": (
        "rms_norm",
        f"{MEAN_SQUARE} q = Squeeze(a, last) d = Sqrt(q) w = Unsqueeze(d, last) n = Div(x, w) "
        "y = Mul(n, gain)",
    ),
    "RMSNorm whose scale is repeated": (
        "rms_norm",
        f"{MEAN_SQUARE} d = Sqrt(a) w = Tile(d, along) n = Div(x, w) y = Mul(n, gain)",
    ),
    "L2 norm by ReduceL2 and Max": (
        "l2_norm",
        "l = ReduceL2(x, last) b = Max(l, eps) n = Div(x, b) y = Mul(n, gain)",
    ),
    "L2 norm by ReduceL2 and Clip": (
        "l2_norm",
        "l = ReduceL2(x, last) b = Clip(l, eps) n = Div(x, b) y = Mul(n, gain)",
    ),
    "L2 norm by the root of a sum": (
        "l2_norm",
        "s = Mul(x, x) q = ReduceSum(s, last) l = Sqrt(q) b = Max(eps, l) w = Expand(b, shape) "
        "n = Div(x, w) y = Mul(n, gain)",
    ),
    "L2 norm by the power of one half": (
        "l2_norm",
        "s = Pow(x, two) q = ReduceSum(s, last) l = Pow(q, half) b = Clip(l, eps) n = Div(x, b) "
        "y = Mul(n, gain)",
    ),
    "L1 norm by ReduceL1 and Max": (
        "l1_norm",
        "l = ReduceL1(x, last) b = Max(l, eps) n = Div(x, b) y = Mul(n, gain)",
    ),
    "L1 norm by the sum of magnitudes": (
        "l1_norm",
        "p = Abs(x) q = ReduceSum(p, last) b = Clip(q, eps) r = Reciprocal(b) n = Mul(r, x) y = Mul(n, gain)",
    ),
    "L2 norm without a bound": ("l2_norm", "l = ReduceL2(x, last) n = Div(x, l) y = Mul(n, gain)"),
}


ROOT = "d = Sqrt(a) n = Div(x, d)"
MEANS = "mu = ReduceMean(x, last) c = Sub(x, mu) s = Mul(x, x) m = ReduceMean(s, last)"

STATISTICS = {
    "mean of magnitudes": (
        "p = Abs(x) q = ReduceMean(p, last) b = Max(q, eps) n = Div(x, b)",
        Formula(outside=True, power=1),
    ),
    "variance by the power of a mean": (
        f"{MEANS} u = Pow(mu, two) v = Sub(m, u) a = Add(v, eps) d = Sqrt(a) n = Div(c, d)",
        Formula(centred=True),
    ),
    "variance by a mean times itself": (
        f"{MEANS} u = Mul(mu, mu) v = Sub(m, u) a = Add(v, eps) d = Sqrt(a) n = Div(c, d)",
        Formula(centred=True),
    ),
    "length times a number": ("l = ReduceL2(x, last) n1 = Mul(three, l) n = Div(x, n1)", Formula(total=True)),
    "sum by a number": (
        f"s = Mul(x, x) q = ReduceSum(s, last) m = Div(q, three) a = Add(m, eps) {ROOT}",
        Formula(total=True),
    ),
    "root to the power of minus one": (
        f"{MEAN_SQUARE} d = Sqrt(a) r = Pow(d, inverse) n = Mul(x, r)",
        Formula(),
    ),
    "powers of minus one and one half": (
        f"{MEAN_SQUARE} i = Pow(a, inverse) r = Pow(i, half) n = Mul(x, r)",
        Formula(),
    ),
    "root of a reciprocal": (f"{MEAN_SQUARE} i = Reciprocal(a) r = Sqrt(i) n = Mul(x, r)", Formula()),
    "root of a quotient": (f"{MEAN_SQUARE} i = Div(one, a) r = Sqrt(i) n = Mul(x, r)", Formula()),
    "sum of squares of one operator": (
        f"q = ReduceSumSquare(x, last) a = Add(q, eps) {ROOT}",
        Formula(total=True),
    ),
    "eps added to a length": (
        "l = ReduceL2(x, last) b = Add(l, eps) n = Div(x, b)",
        Formula(total=True, outside=True),
    ),
    "mean square with a bound": (f"s = Mul(x, x) m = ReduceMean(s, last) a = Max(m, eps) {ROOT}", Formula()),
    "clipped mean square": (f"s = Mul(x, x) m = ReduceMean(s, last) a = Clip(m, eps) {ROOT}", Formula()),
}


FORMULAS = {
    "layer_norm": Formula(centred=True),
    "rms_norm": Formula(),
    "l2_norm": Formula(total=True, outside=True),
    "l1_norm": Formula(total=True, outside=True, power=1),
}


def formula(kind: str, x: NDArray[Any]) -> NDArray[Any]:
    if kind == "l2_norm":
        return np.asarray(x / np.maximum(np.sqrt((x**2).sum(axis=-1, keepdims=True)), EPS))
    if kind == "l1_norm":
        return np.asarray(x / np.maximum(np.abs(x).sum(axis=-1, keepdims=True), EPS))
    centred = x - x.mean(axis=-1, keepdims=True) if kind == "layer_norm" else x
    return np.asarray(centred / np.sqrt((centred**2).mean(axis=-1, keepdims=True) + EPS))


@pytest.mark.parametrize("name", SPELLINGS)
def test_a_norm_is_recognised_however_it_is_spelt(name: str) -> None:
    kind, body = SPELLINGS[name]
    (found,) = norms(body)
    wanted = FORMULAS[kind] if found.eps is not None else replace(FORMULAS[kind], outside=False)
    assert (found.formula, found.source.name, found.result.name) == (wanted, "x", "n")
    assert found.axes == (-1,)
    np.testing.assert_allclose(values(body, "n"), formula(kind, sample(1)), rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("name", STATISTICS)
def test_a_statistic_is_recognised_however_it_is_spelt(name: str) -> None:
    body, wanted = STATISTICS[name]
    (found,) = norms(f"{body} y = Identity(n)")
    assert (found.formula, found.source.name, found.result.name) == (wanted, "x", "n")


def test_a_spelling_needs_each_step_of_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    bodies = [body for _, body in SPELLINGS.values()]
    bodies += [f"{body} y = Identity(n)" for body, _ in STATISTICS.values()]
    graphs = [captured(body) for body in bodies]

    def found() -> list[list[tuple[Formula, bool]]]:
        return [[(norm.formula, norm.eps is None) for norm in find_norms(graph)] for graph in graphs]

    whole = found()
    for op, steps in STEPS.items():
        for step in steps:
            monkeypatch.setitem(STEPS, op, [other for other in steps if other is not step])
            assert found() != whole, f"no spelling has {op} of {step.operands}"
        monkeypatch.setitem(STEPS, op, steps)


@pytest.mark.parametrize("name", [n for n in SPELLINGS if "without a bound" not in n])
def test_the_eps_of_a_norm_in_pieces_is_found_through_casts(name: str) -> None:
    (found,) = norms(SPELLINGS[name][1])
    assert found.eps is not None
    assert scalar(found.eps) == pytest.approx(EPS)
    assert found.eps_weight().name == "eps"


@pytest.mark.parametrize("name", SPELLINGS)
def test_gain_and_bias_are_no_part_of_a_norm_in_pieces(name: str) -> None:
    (found,) = norms(SPELLINGS[name][1])
    inside = {o.name for n in found.interior for o in n.outputs}
    assert "n" in inside
    assert not inside & {"y", "g", "h"}


def test_a_norm_over_another_axis_says_so() -> None:
    (found,) = norms(
        "s = Mul(x, x) m = ReduceMean(s, middle) a = Add(m, eps) d = Sqrt(a) n = Div(x, d) y = Identity(n)"
    )
    assert found.axes == (-2,)


def test_axes_may_be_an_attribute() -> None:
    mean = "s = Mul(x, x) m = ReduceMean<axes = [-1]>(s)"
    body = f"{mean} a = Add(m, eps) d = Sqrt(a) n = Div(x, d) y = Mul(n, gain)"
    (found,) = norms(body, opset=14)
    assert (found.formula, found.axes) == (Formula(), (-1,))


def test_two_norms_of_one_stream_are_two() -> None:
    both = SPELLINGS["RMSNorm that divides"][1].replace("y = Mul(n, gain)", "")
    found = norms(
        f"{both} s2 = Mul(n, n) m2 = ReduceMean(s2, last) a2 = Add(m2, eps) d2 = Sqrt(a2) "
        "n2 = Div(n, d2) y = Add(n2, n)"
    )
    assert [(f.source.name, f.result.name) for f in found] == [("x", "n"), ("n", "n2")]


def test_a_statistic_that_others_use_is_not_inside_the_norm() -> None:
    (found,) = norms(f"{MEAN_SQUARE} d = Sqrt(a) n = Div(x, d) w = Expand(m, shape) y = Add(n, w)")
    assert {o.name for n in found.interior for o in n.outputs} == {"n", "a", "d"}


DECOYS = {
    "a variance without its mean taken off": (
        f"{CENTRED} p = Pow(c, two) v = ReduceMean(p, last) a = Add(v, eps) d = Sqrt(a) y = Div(x, d)"
    ),
    "a centred x over the mean square of x": f"{CENTRED} {MEAN_SQUARE} d = Sqrt(a) y = Div(c, d)",
    "a mean over another axis": (
        "mu = ReduceMean(x, middle) c = Sub(x, mu) p = Pow(c, two) v = ReduceMean(p, last) a = Add(v, eps)"
        "d = Sqrt(a) y = Div(c, d)"
    ),
    "the square of another tensor": (
        "s = Pow(z, two) m = ReduceMean(s, last) a = Add(m, eps) d = Sqrt(a) y = Div(x, d)"
    ),
    "a product of two tensors": (
        "s = Mul(x, z) m = ReduceMean(s, last) a = Add(m, eps) d = Sqrt(a) y = Div(x, d)"
    ),
    "a third power": "s = Pow(x, three) m = ReduceMean(s, last) a = Add(m, eps) d = Sqrt(a) y = Div(x, d)",
    "no root": f"{MEAN_SQUARE} y = Div(x, a)",
    "an eps for each channel": (
        "s = Pow(x, two) m = ReduceMean(s, last) a = Add(m, gain) d = Sqrt(a) y = Div(x, d)"
    ),
    "the norm upside down": f"{MEAN_SQUARE} d = Sqrt(a) y = Div(d, x)",
    "a length and a bound from above": "l = ReduceL2(x, last) b = Min(l, eps) y = Div(x, b)",
    "a length clipped from above": "l = ReduceL2(x, last) b = Clip(l, , eps) y = Div(x, b)",
    "a length clipped on both sides": "l = ReduceL2(x, last) b = Clip(l, eps, one) y = Div(x, b)",
    "a second eps": f"{MEAN_SQUARE} a2 = Add(a, eps) d = Sqrt(a2) y = Div(x, d)",
    "a scale times itself": f"{MEAN_SQUARE} d = Sqrt(a) r = Reciprocal(d) q = Mul(r, r) y = Mul(x, q)",
    "a gelu": (
        "c3 = Pow(x, three) k = Mul(c3, half) i = Add(x, k) t = Tanh(i) o = Add(t, one) w = Mul(x, o) "
        "y = Mul(w, half)"
    ),
}


CENTRED_NORM = "p = Pow(c2, two) v = ReduceMean(p, last) a = Add(v, eps) d = Sqrt(a) y = Div(c2, d)"

DECOYS |= {
    "a product of two ways to centre": (
        f"{CENTRED} mu2 = ReduceMean(x, middle) c2 = Sub(x, mu2) p = Mul(c, c2) v = ReduceMean(p, last) "
        "a = Add(v, eps)"
        "d = Sqrt(a) y = Div(c, d)"
    ),
    "the mean square of whole numbers": (
        "i = Cast<to = 7>(x) f = Cast<to = 1>(i) s = Mul(f, f) m = ReduceMean(s, last) a = Add(m, eps) "
        "d = Sqrt(a)"
        "y = Div(x, d)"
    ),
}


DIFFERENCES: list[Any] = [
    "c2 = Sub(x, z)",
    "mu = ReduceMean(z, last) c2 = Sub(x, mu)",
    "mu = ReduceMean(x, last) c2 = Sub(mu, x)",
    f"{CENTRED} c2 = Sub(c, mu)",
    f"{CENTRED} mu2 = ReduceMean(c, middle) c2 = Sub(c, mu2)",
    "mu = ReduceMean(x, middle) c = Sub(x, mu) mu2 = ReduceMean(c, last) c2 = Sub(x, mu2)",
]


@pytest.mark.parametrize("centring", DIFFERENCES)
def test_a_look_alike_of_a_layer_norm_may_be_an_rms_norm_of_a_difference(centring: str) -> None:
    (found,) = norms(f"{centring} {CENTRED_NORM}")
    assert (found.formula, found.source.name) == (Formula(), "c2")


@pytest.mark.parametrize("name", DECOYS)
def test_a_look_alike_is_not_taken_for_a_norm(name: str) -> None:
    model(DECOYS[name])
    assert norms(DECOYS[name]) == []


POOLED = "p = ReduceMean(x, middle)"
FINISHED = "v = ReduceMean(q, last) a = Add(v, eps) w = Sqrt(a)"


@pytest.mark.parametrize(
    ("body", "centred"),
    [
        (f"{POOLED} mu = ReduceMean(p, last) c = Sub(p, mu) q = Pow(c, two) {FINISHED} k = Div(c, w)", True),
        (f"{POOLED} q = Mul(p, p) {FINISHED} k = Div(p, w)", False),
    ],
    ids=["layer", "rms"],
)
def test_a_mean_over_places_is_normed_like_anything_else(body: str, centred: bool) -> None:
    (norm,) = norms(f"{body} y = Add(x, k)")
    assert (norm.formula, norm.source.name, norm.axes) == (Formula(centred), "p", (-1,))
