"""Norms of a residual stream in every spelling, and what only looks like one; onnxruntime is the judge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import Judged, judge

from growc import api

NET = """
net (int64[N] tokens) => (float[N, 5] y)
<float[9, 8] table, float[8, 12] up, float[12, 8] down, float[8, 5] head, float[8] gain, float[8] bias>
{
    x = Gather(table, tokens)
    %s
    u = MatMul(n, up)
    r = Relu(u)
    d = MatMul(r, down)
    x1 = Add(x, d)
    y = MatMul(x1, head)
}
"""
SQUARE = "s = Mul(x, x) m = ReduceMean <axes = [-1]> (s)"
CENTRED = "mu = ReduceMean <axes = [-1]> (x) c = Sub(x, mu)"
VARIANCE = f"{CENTRED} p = Mul(c, c) v = ReduceMean <axes = [-1]> (p)"
FINISH = "n = Mul(k, gain)"

RMS = {
    "by a root and a quotient": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "by the power of minus one half": f"{SQUARE} a = Add(m, eps) w = Pow(a, minus) k = Mul(x, w) {FINISH}",
    "by the root of the reciprocal": f"{SQUARE} a = Add(m, eps) i = Reciprocal(a) w = Sqrt(i) k = "
    f"Mul(x, w) {FINISH}",
    "in double": "xd = Cast <to = 11> (x) s = Mul(xd, xd) m = ReduceMean "
    "<axes = [-1]> (s) mf = Cast <to = 1> (m) "
    f"a = Add(mf, eps) w = Sqrt(a) i = Reciprocal(w) k = Mul(x, i) {FINISH}",
    "gain in front": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) g = Mul(x, gain) n = Div(g, w)",
    "gain on the inverse root": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) i = Reciprocal(w) j = "
    "Mul(i, gain) n = Mul(x, j)",
    "one plus the weight": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(x, w) h = "
    "Add(gain, one) n = Mul(k, h)",
    "the exponential of the weight": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(x, w) h = "
    "Exp(gain) n = Mul(k, h)",
    "eps as a lower bound": f"{SQUARE} a = Max(m, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "eps outside of the root": f"{SQUARE} w = Sqrt(m) a = Add(w, eps) k = Div(x, a) {FINISH}",
    "no eps": f"{SQUARE} w = Sqrt(m) k = Div(x, w) {FINISH}",
    "a dropped axis that comes back": "s = Pow(x, two) m = ReduceMean <axes = [-1], keepdims = 0> (s) "
    f"b = Unsqueeze(m, last) a = Add(b, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "a literal root of the width": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(x, w) z = "
    "Mul(k, three) n = Mul(z, gain)",
    "unbiased": f"{SQUARE} q = Mul(m, three) a = Add(q, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "a sum of squares": f"s = ReduceSumSquare <axes = [-1]> (x) a = Add(s, eps) w = "
    f"Sqrt(a) k = Div(x, w) {FINISH}",
    "a length": f"l = ReduceL2 <axes = [-1]> (x) a = Max(l, eps) k = Div(x, a) {FINISH}",
    "one root for two products": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) i = Reciprocal(w) k = "
    "Mul(x, i) l = Mul(i, x) "
    "g = Mul(l, bias) h = Mul(k, gain) n = Add(h, g)",
}
LAYER = {
    "operator": "n = LayerNormalization <epsilon = 0.01> (x, gain, bias)",
    "operator without bias": "n = LayerNormalization <epsilon = 0.01> (x, gain)",
    "nine nodes": f"{CENTRED} p = Pow(c, two) v = ReduceMean <axes = [-1]> (p) a = Add(v, eps) w = Sqrt(a) "
    "k = Div(c, w) g = Mul(k, gain) n = Add(g, bias)",
    "without gain": f"{VARIANCE} a = Add(v, eps) w = Sqrt(a) n = Div(c, w)",
    "by the difference of two means": "mu = ReduceMean <axes = [-1]> (x) c = Sub(x, mu) s = Mul(x, x) "
    "m = ReduceMean <axes = [-1]> (s) q = Mul(mu, mu) v = Sub(m, q) a = Add(v, eps) w = Sqrt(a) "
    f"k = Div(c, w) {FINISH}",
    "unbiased": f"{CENTRED} p = Mul(c, c) v = ReduceSum(p, last) q = Div(v, "
    "seven) a = Add(q, eps) w = Sqrt(a) "
    f"k = Div(c, w) {FINISH}",
    "channels first": "t = Transpose(x) mu = ReduceMean <axes = [0]> (t) c = Sub(t, mu) p = Mul(c, c) "
    "v = ReduceMean <axes = [0]> (p) a = Add(v, eps) w = Sqrt(a) k = Div(c, w) "
    "o = Transpose(k) n = Mul(o, gain)",
}
CENTRED_MAGNITUDES = {
    "their mean": f"{CENTRED} s = Abs(c) m = ReduceMean <axes = [-1]> (s) a = Add(m, eps) k = Div(c, a) "
    f"{FINISH}",
    "their sum": f"{CENTRED} m = ReduceL1 <axes = [-1]> (c) a = Max(m, eps) k = Div(c, a) {FINISH}",
}
MAGNITUDES = {
    "their mean": f"s = Abs(x) m = ReduceMean <axes = [-1]> (s) a = Add(m, eps) k = Div(x, a) {FINISH}",
    "their sum": "s = Abs(x) m = ReduceSum(s, last) a = Add(m, eps) i = Reciprocal(a) k = "
    f"Mul(i, x) {FINISH}",
    "by one operator": f"m = ReduceL1 <axes = [-1]> (x) a = Max(m, eps) k = Div(x, a) {FINISH}",
    "a whole norm": f"k = LpNormalization <p = 1> (x) {FINISH}",
}
DECOYS = {
    "a variance without its mean": f"{VARIANCE} a = Add(v, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "a mean square under what is centred": f"{CENTRED} {SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(c, "
    f"w) {FINISH}",
    "a mean over the other axis": "mu = ReduceMean <axes = [0]> (x) c = Sub(x, mu) p = Mul(c, c) "
    f"v = ReduceMean <axes = [-1]> (p) a = Add(v, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "the root of another tensor": "z = Gather(table, tokens) z2 = Tanh(z) s = Mul(z2, z2) "
    f"m = ReduceMean <axes = [-1]> (s) a = Add(m, eps) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "a scaled mean": "mu = ReduceMean <axes = [-1]> (x) e = Mul(mu, three) c = Sub(x, e) p = Mul(c, c) "
    f"v = ReduceMean <axes = [-1]> (p) a = Add(v, eps) w = Sqrt(a) k = Div(c, w) {FINISH}",
    "a scaled square less the squared mean": "mu = ReduceMean <axes = [-1]> (x) c = Sub(x, mu) s = Mul(x, x) "
    "m = ReduceMean <axes = [-1]> (s) e = Mul(m, three) q = Mul(mu, mu) v = Sub(e, q) a = Add(v, eps) "
    f"w = Sqrt(a) k = Div(c, w) {FINISH}",
    "no root": f"{SQUARE} a = Add(m, eps) k = Div(x, a) {FINISH}",
    "two eps": f"{SQUARE} a = Add(m, eps) b = Add(a, eps) w = Sqrt(b) k = Div(x, w) {FINISH}",
    "an eps for each unit": f"{SQUARE} g = Mul(gain, gain) a = Add(m, g) w = Sqrt(a) k = Div(x, w) {FINISH}",
    "a third power": "s = Mul(x, x) t = Mul(s, s) m = ReduceMean <axes = [-1]> "
    "(t) a = Add(m, eps) w = Sqrt(a) "
    f"k = Div(x, w) {FINISH}",
    "absolute values less their mean": "s = Abs(x) mu = ReduceMean <axes = [-1]> (s) c = Sub(s, mu) "
    f"a = Abs(c) m = ReduceMean <axes = [-1]> (a) b = Add(m, eps) k = Div(x, b) {FINISH}",
    "a statistic that others use": f"{SQUARE} a = Add(m, eps) w = Sqrt(a) k = Div(x, w) g = "
    "Mul(k, gain) n = Add(g, w)",
    "a mean by a sum and a number": "e = ReduceSum(x, last) mu = Div(e, seven) c = Sub(x, mu) p = Mul(c, c) "
    f"v = ReduceMean <axes = [-1]> (p) a = Add(v, eps) w = Sqrt(a) k = Div(c, w) {FINISH}",
}
NUMBERS = {
    "eps": 0.01,
    "minus": -0.5,
    "one": 1.0,
    "two": 2.0,
    "three": 3.0,
    "seven": 7.0,
}
RECIPES = {
    "cyclic": "widen hidden to 16 with cyclic copy",
    "uniform": "widen hidden to 13 with uniform copy",
    "average": "widen hidden to 13 with average fill",
    "zero": "widen hidden to 11 with zero fill",
    "noise": "widen hidden to 16 with neighbor copy split random noise 0.1 balanced",
}


def grown(tmp_path: Path, body: str, recipe: str) -> Judged:
    used = {
        k: np.asarray(v, dtype=np.float32) for k, v in NUMBERS.items() if f" {k})" in body or f"({k}" in body
    }
    if "last)" in body:
        used["last"] = np.array([-1])
    path = save(tmp_path / "net.onnx", NET % body, **used)
    return judge(RECIPES[recipe], path, tmp_path / "grown.onnx")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", ["cyclic", "uniform", "zero", "noise"])
@pytest.mark.parametrize("name", RMS)
def test_an_rms_norm_is_exact_at_any_width(tmp_path: Path, name: str, recipe: str) -> None:
    grown(tmp_path, RMS[name], recipe).assert_exact()


@pytest.mark.parametrize("recipe", ["cyclic", "average", "noise"])
@pytest.mark.parametrize("name", LAYER)
def test_a_layer_norm_takes_equal_copies_and_means(tmp_path: Path, name: str, recipe: str) -> None:
    grown(tmp_path, LAYER[name], recipe).assert_exact()


@pytest.mark.parametrize("recipe", ["cyclic", "zero", "noise"])
@pytest.mark.parametrize("name", MAGNITUDES)
def test_a_norm_of_magnitudes_takes_equal_copies_and_zeros(tmp_path: Path, name: str, recipe: str) -> None:
    grown(tmp_path, MAGNITUDES[name], recipe).assert_exact()


@pytest.mark.parametrize("name", MAGNITUDES)
def test_a_norm_of_magnitudes_does_not_take_unequal_copies(tmp_path: Path, name: str) -> None:
    grown(tmp_path, MAGNITUDES[name], "uniform").assert_gap("unequal copy counts")


@pytest.mark.parametrize("recipe", ["cyclic", "average", "noise"])
@pytest.mark.parametrize("name", CENTRED_MAGNITUDES)
def test_a_centred_norm_of_magnitudes_takes_equal_copies_and_means(
    tmp_path: Path, name: str, recipe: str
) -> None:
    grown(tmp_path, CENTRED_MAGNITUDES[name], recipe).assert_exact()


@pytest.mark.parametrize("terms", ["v, eps", "eps, v"])
def test_the_new_eps_is_what_onnxruntime_fuses(tmp_path: Path, terms: str) -> None:
    pieces = LAYER["nine nodes"].replace("v, eps", terms)
    small = np.random.default_rng(0).normal(0, 1e-3, (9, 8)).astype(np.float32)  # its variance is below eps
    path = save(tmp_path / "net.onnx", NET % pieces, eps=np.float32(1e-5), two=np.float32(2), table=small)
    done = api.apply(RECIPES["average"], path, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None
    assert done.verification.relative < 1e-6


@pytest.mark.parametrize("name", LAYER)
def test_a_layer_norm_does_not_take_unequal_copies(tmp_path: Path, name: str) -> None:
    grown(tmp_path, LAYER[name], "uniform").assert_gap("unequal copy counts")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("name", DECOYS)
def test_what_only_looks_like_a_norm_is_right_or_not_claimed(tmp_path: Path, name: str, recipe: str) -> None:
    found = grown(tmp_path, DECOYS[name], recipe)
    assert not found.certificate.exact or found.difference <= 1e-5
