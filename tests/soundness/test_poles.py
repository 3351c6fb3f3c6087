"""Zero times a number is zero; zero times infinity is not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import draw, judge, run

from growc import api

GRAPH = """
pole (float[N, 4] x) => (float[N, 3] y)
<float[4, 6] up, float[6, 3] down, float one, float half, float minus>
{
    h = MatMul(x, up)
    %s
    y = MatMul(z, down)
}
"""
NUMBERS = {"one": np.float32(1), "half": np.float32(0.5), "minus": np.float32(-0.5)}

POLES = {
    "x log|x|": "a = Abs(h)\n f = Log(a)\n z = Mul(h, f)",
    "x / x, by a reciprocal": "f = Reciprocal(h)\n z = Mul(h, f)",
    "x |x|^-1/2": "a = Abs(h)\n f = Pow(a, minus)\n z = Mul(h, f)",
    "x / (1 - cos x)": "c = Cos(h)\n d = Sub(one, c)\n f = Reciprocal(d)\n z = Mul(h, f)",
    "x atanh(cos x)": "c = Cos(h)\n f = Atanh(c)\n z = Mul(h, f)",
}
FINITE = {
    "silu": "f = Sigmoid(h)\n z = Mul(h, f)",
    "silu, by exponentials": "n = Neg(h)\n e = Exp(n)\n d = Add(e, one)\n z = Div(h, d)",
    "mish": "s = Softplus(h)\n f = Tanh(s)\n z = Mul(h, f)",
    "x exp(x)": "f = Exp(h)\n z = Mul(h, f)",
    "x log(1 + |x|)": "a = Abs(h)\n d = Add(a, one)\n f = Log(d)\n z = Mul(h, f)",
    "x / (1 + x²)": "q = Mul(h, h)\n d = Add(q, one)\n z = Div(h, d)",
    "x / max(|x|, 1/2)": "a = Abs(h)\n d = Max(a, half)\n z = Div(h, d)",
    "x log sigmoid(x)": "s = Sigmoid(h)\n f = Log(s)\n z = Mul(h, f)",
    "x / softplus(x)": "d = Softplus(h)\n z = Div(h, d)",
    "cos": "z = Cos(h)",
}
FILLS = ("zero fill", "average fill", "uniform copy")


def pole(folder: Path, lines: str) -> Path:
    return save(folder / "m.onnx", GRAPH % lines, **NUMBERS)


@pytest.mark.parametrize("lines", POLES.values(), ids=POLES)
def test_a_zero_unit_behind_a_pole_is_a_gap_that_names_it(tmp_path: Path, lines: str) -> None:
    model = pole(tmp_path, lines)
    grown = tmp_path / "g.onnx"
    done = api.apply('widen axis 1 of "up" to 10 with zero fill', model, grown, check=False, force=True)
    [gap] = done.plan.certificate.gaps
    pole_node = next(n.op_type for n in onnx.load(model).graph.node if n.output[0] == "f")
    assert f"may be infinite behind the {pole_node} `f`" in gap.cause
    assert np.isnan(run(grown, draw(model, 3))["y"]).all()


@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("lines", FINITE.values(), ids=FINITE)
def test_functions_finite_for_every_number_are_exact(tmp_path: Path, lines: str, fill: str) -> None:
    judge(
        f'widen axis 1 of "up" to 10 with {fill}', pole(tmp_path, lines), tmp_path / "g.onnx"
    ).assert_exact()


@pytest.mark.parametrize("fill", FILLS[1:])
@pytest.mark.parametrize("lines", list(POLES.values())[:4], ids=list(POLES)[:4])
def test_copies_and_means_meet_no_pole(tmp_path: Path, lines: str, fill: str) -> None:
    judge(f'widen axis 1 of "up" to 10 with {fill}', pole(tmp_path, lines), tmp_path / "g.onnx").assert_exact(
        1e-4
    )


def test_a_zero_column_hides_no_infinity(tmp_path: Path) -> None:
    model = pole(tmp_path, "a = Abs(h)\n z = Log(a)")
    recipe = 'widen axis 1 of "up" to 10 with zero fill with zero outputs'
    done = api.apply(recipe, model, tmp_path / "g.onnx", check=False, force=True)
    assert not done.plan.certificate.exact
    assert np.isnan(run(tmp_path / "g.onnx", draw(model, 3))["y"]).all()


def test_a_sigmoid_reaches_zero(tmp_path: Path) -> None:
    """onnxruntime's does at -18, which drawn units come to at other inputs than the source's."""
    model = pole(tmp_path, "s = Sigmoid(h)\n z = Log(s)")
    recipe = 'widen axis 1 of "up" to 10 with random fill with zero outputs'
    done = api.apply(recipe, model, tmp_path / "g.onnx", check=False, force=True)
    assert not done.plan.certificate.exact
    feeds = [{"x": row * 30} for row in np.eye(4, dtype=np.float32)[:, None]]
    feeds += [{"x": -feed["x"]} for feed in feeds]
    finite = [feed for feed in feeds if np.isfinite(run(model, feed)["y"]).all()]
    assert any(np.isnan(run(tmp_path / "g.onnx", feed)["y"]).any() for feed in finite)


@pytest.mark.parametrize(("kind", "exact"), [(10, False), (16, True), (11, True)])
def test_an_exponential_is_zero_in_half_precision_alone(tmp_path: Path, kind: int, exact: bool) -> None:
    """10: float16, whose least number is 6e-8; bfloat16 and float64 have the range of float32, or more."""
    model = pole(tmp_path, f"c = Cast<to = {kind}>(h)\n e = Exp(c)\n l = Log(e)\n z = Cast<to = 1>(l)")
    recipe = 'widen axis 1 of "up" to 10 with random fill with zero outputs'
    assert api.plan(recipe, model).certificate.exact == exact


@pytest.mark.parametrize(
    ("lines", "exact"),
    [
        ("t = Tanh(h)\n z = Atanh(t)", True),
        ("s = Sigmoid(h)\n l = Log(s)\n z = Reciprocal(l)", True),
        ("n = Round(h)\n z = Reciprocal(n)", False),
    ],
)
def test_a_mean_behind_increasing_functions_lies_between(tmp_path: Path, lines: str, exact: bool) -> None:
    """But behind steps it may be a zero that the units are on both sides of."""
    recipe = 'widen axis 1 of "up" to 10 with average fill'
    model, grown = pole(tmp_path, lines), tmp_path / "g.onnx"
    done = api.apply(recipe, model, grown, check=False, force=True)
    assert done.plan.certificate.exact == exact
    feeds = {"x": draw(model, 7)["x"] / 20}
    before, after = (run(path, feeds)["y"] for path in (model, grown))
    assert not exact or np.abs(before - after).max() < 1e-4 * np.abs(before).max()


HEADS = """
heads (float[1, N, 4] x) => (float[N, 2] y)
<float[3, 4, 4] up, float[3, 4, 2] down, int64[1] zero>
{
    h = MatMul(x, up)
    length = ReduceL2 <axes = [2], keepdims = 1> (h)
    unit = Div(h, length)
    z = MatMul(unit, down)
    y = ReduceSum <keepdims = 0> (z, zero)
}
"""


def test_a_zero_head_has_no_direction(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", HEADS, zero=[0])
    recipe = 'widen axis 0 of "up" to 5 with zero fill'
    done = api.apply(recipe, model, tmp_path / "g.onnx", check=False, force=True)
    assert not done.plan.certificate.exact
    assert np.isnan(run(tmp_path / "g.onnx", draw(model, 3))["y"]).all()


ACROSS = """
across (float[N, 5, 3] x) => (float[N, 5, 4] y) <float[3, 6] up, float[6, 4] down, float eps, float[5] gain>
{
    h = MatMul(x, up)
    %s
    t = Transpose <perm = [0, 2, 1]> (u)
    %s
    z = Transpose <perm = [0, 2, 1]> (f)
    y = MatMul(z, down)
}
"""
NORMS_ACROSS = {
    "in pieces": "s = Mul(t, t)\n m = ReduceMean <axes = [2]> (s)\n e = Add(m, eps)\n r = Sqrt(e)\n "
    "f = Div(t, r)",
    "LayerNorm": "f = LayerNormalization <axis = -1, epsilon = %s> (t, gain)",
    "RMSNorm": "f = SimplifiedLayerNormalization <axis = -1, epsilon = %s> (t, gain)",
}
UNITS = {"zeros": "u = Identity(h)", "equals": "u = Cos(h)"}


def across(folder: Path, unit: str, norm: str, eps: float) -> Path:
    lines = NORMS_ACROSS[norm]
    return save(
        folder / "m.onnx",
        ACROSS % (UNITS[unit], lines % eps if "%s" in lines else lines),
        eps=np.float32(eps),
    )


@pytest.mark.parametrize(
    ("unit", "norm"), [*(("zeros", norm) for norm in NORMS_ACROSS), ("equals", "LayerNorm")]
)
def test_new_units_under_a_norm_across_them_with_an_eps_of_zero_are_a_gap(
    tmp_path: Path, unit: str, norm: str
) -> None:
    model = across(tmp_path, unit, norm, 0.0)
    recipe = 'widen axis 0 of "down" to 9 with zero fill'
    done = api.apply(recipe, model, tmp_path / "g.onnx", check=False, force=True)
    assert "may be infinite" in done.plan.certificate.gaps[0].cause
    assert np.isnan(run(tmp_path / "g.onnx", draw(model, 3))["y"]).all()


@pytest.mark.parametrize("norm", NORMS_ACROSS)
@pytest.mark.parametrize("unit", UNITS)
def test_new_units_under_a_norm_across_them_with_an_eps_are_exact(
    tmp_path: Path, unit: str, norm: str
) -> None:
    recipe = 'widen axis 0 of "down" to 9 with zero fill'
    judge(recipe, across(tmp_path, unit, norm, 0.1), tmp_path / "g.onnx").assert_exact()


BATCH_NORM = """
batch (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] up, float[8] gain, float[8] bias, float[8] middle, float[8, 3] down>
{
    h = MatMul(x, up)
    z = BatchNormalization <epsilon = EPS> (h, gain, bias, middle, spread)
    y = MatMul(z, down)
}
"""


@pytest.mark.parametrize("fill", ["zero fill", "average fill", "cyclic copy"])
@pytest.mark.parametrize("eps", [0.0, 0.01])
def test_a_stored_variance_of_zero_needs_an_eps(tmp_path: Path, eps: float, fill: str) -> None:
    spread = np.random.default_rng(0).uniform(0.5, 2, 8).astype(np.float32)
    source = save(tmp_path / "m.onnx", BATCH_NORM.replace("EPS", str(eps)), opset=21, spread=spread)
    recipe = f'widen axis 1 of "up" to 12 with {fill}'
    if eps or fill == "cyclic copy":
        judge(recipe, source, tmp_path / "wide.onnx").assert_exact()
    else:
        causes = [gap.cause for gap in api.plan(recipe, source).certificate.gaps]
        assert any("may be infinite behind the BatchNormalization" in cause for cause in causes)
