"""New layers on a stream that is rounded or bounded: they change nothing where the stream is so already."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.errors.diagnostic import GrowError
from growc.passes.new_layers.idempotent import finder

LAST = "stack layers to 5 by last with zero outputs"
EACH = "stack layers to 6 by each with zero outputs"

NUMBERS = {
    "low": np.float32(-0.5),
    "units": np.linspace(-0.6, 0.5, 8, dtype=np.float32),
    "one_on": np.array([1]),
    "high": np.float32(0.75),
    "large": np.float32(50),
    **{f"step{k}": np.float32(0.3 + 0.11 * k) for k in range(3)},
    **{f"middle{k}": np.uint8(100 + 9 * k) for k in range(3)},
    "around": np.array([0, 2, 0, 3]),
    "last": np.array([1]),
    "none": np.array([0]),
    "two": np.array([2]),
    "three": np.array([3]),
    "ten": np.array([10]),
    "eleven": np.array([11]),
}


def stack(folder: Path, *, before: str = "", behind: str = "", stem: str = "") -> Path:
    """Three layers; functions of `Y` and `X` (or nothing) in front of each, behind each, and of all."""

    def through(text: str, x: str, y: str) -> str:
        return (text or "Y = Identity(X)").replace("X", x).replace("Y", y)

    lines = [through(stem, "e", "x0")]
    for k in range(3):
        lines += [
            through(before, f"x{k}", f"s{k}").format(k=k),
            f"u{k} = MatMul(s{k}, up{k})",
            f"r{k} = Relu(u{k})",
            f"d{k} = MatMul(r{k}, down{k})",
            f"a{k} = Add(s{k}, d{k})",
            through(behind, f"a{k}", f"x{k + 1}").format(k=k),
        ]
    weights = ", ".join(f"float[8, 12] up{k}, float[12, 8] down{k}" for k in range(3))
    body = "\n    ".join(lines)
    graph = f"""
settled (float[N, 4] x, float[N, 8] mask) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns>
{{
    e = MatMul(x, rows)
    {body}
    y = MatMul(x3, columns)
}}
"""
    return save(folder / "model.onnx", graph, **{n: v for n, v in NUMBERS.items() if n in body})


def cast(to: int) -> str:
    return f"Yc = Cast <to = {to}> (X)\n    Y = Cast <to = 1> (Yc)"


ONE_STEP = "Yc = QuantizeLinear(X, step0, middle0)\n    Y = DequantizeLinear(Yc, step0, middle0)"
OWN_STEPS = ONE_STEP.replace("step0", "step{k}").replace("middle0", "middle{k}")
ROUNDINGS = {"float16": cast(10), "bfloat16": cast(16), "int32": cast(6), "one": ONE_STEP, "own": OWN_STEPS}
FUNCTIONS = ROUNDINGS | {
    "like": "Y = CastLike(X, low)",
    "relu": "Y = Relu(X)",
    "clip": "Y = Clip(X, low, high)",
    "abs": "Y = Abs(X)",
    "max": "Y = Max(low, X)",
    "round": "Y = Round(X)",
    "floor": "Y = Floor(X)",
    "sign": "Y = Sign(X)",
    "length": "Y = LpNormalization <axis = -1> (X)",
    "mod": "Y = Mod <fmod = 1> (X, high)",
    "max of units": "Y = Max(X, units)",
    "min of units": "Y = Min(units, X)",
    "where less": "Yt = Less(X, low)\n    Y = Where(Yt, low, X)",
    "where not more": "Yt = Greater(X, low)\n    Y = Where(Yt, X, low)",
    "where far": "Ya = Abs(X)\n    Yt = GreaterOrEqual(Ya, high)\n    Y = Where(Yt, low, X)",
    "where less, of units": "Yt = Less(X, units)\n    Y = Where(Yt, units, X)",
    "where less, of a shape": "Ys = Shape(X)\n    Yc = ConstantOfShape <value = float[1] {{-0.4}}> (Ys)"
    "\n    Yt = Less(X, Yc)\n    Y = Where(Yt, Yc, X)",
    "where another number": "Yh = Cast <to = 10> (X)\n    Yf = Cast <to = 1> (Yh)\n    Yt = Less(Yf, X)"
    "\n    Y = Where(Yt, high, X)",
    "where an input is less": "Yt = Less(mask, high)\n    Y = Where(Yt, low, X)",
    "where a part of an input is less": "Yi = Slice(mask, none, one_on, last)\n    Yt = Less(Yi, high)"
    "\n    Y = Where(Yt, low, X)",
}
OF_OTHERS = {
    "the mean": "Ym = ReduceMean <axes = [-1]> (X)\n    Yt = Less(X, Ym)\n    Y = Where(Yt, low, X)",
    "the next unit": "Ya = Slice(X, one_on, ten, last)\n    Yb = Slice(X, none, one_on, last)"
    "\n    Yn = Concat <axis = -1> (Ya, Yb)\n    Yt = Less(Yn, step0)\n    Y = Where(Yt, low, X)",
    "the next token": "Ya = Slice(X, one_on, ten, none)\n    Yb = Slice(X, none, one_on, none)"
    "\n    Yn = Concat <axis = 0> (Ya, Yb)\n    Yt = Less(Yn, step0)\n    Y = Where(Yt, low, X)",
}
"""Choices by other elements of the stream: they change again once these have changed."""


@pytest.mark.parametrize("recipe", [LAST, EACH])
@pytest.mark.parametrize("kind", ROUNDINGS)
def test_a_stream_that_is_not_rounded_yet_is_no_identity(tmp_path: Path, kind: str, recipe: str) -> None:
    """A layer takes the stream as a sum left it, and rounds it on its way to the next sum."""
    model = stack(tmp_path, before=ROUNDINGS[kind])
    judge(recipe, model, tmp_path / "deep.onnx").assert_gap("rounds or bounds a stream that is not so")


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", [LAST, EACH])
@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_stream_that_is_rounded_behind_each_sum_stays_as_it_is(
    tmp_path: Path, kind: str, recipe: str
) -> None:
    model = stack(tmp_path, behind=FUNCTIONS[kind])
    judge(recipe, model, tmp_path / "deep.onnx").assert_exact()


@pytest.mark.parametrize("kind", OF_OTHERS)
def test_a_choice_by_other_elements_is_no_identity(tmp_path: Path, kind: str) -> None:
    model = stack(tmp_path, behind=OF_OTHERS[kind])
    judge(EACH, model, tmp_path / "deep.onnx").assert_gap("cannot pass the stream on as it is")


@pytest.mark.parametrize("put", [-0.5, -np.inf, np.inf])
def test_a_choice_of_what_is_no_finite_number_is_not_relied_on(tmp_path: Path, put: float) -> None:
    """Zeros of a copy that reads infinity hide nothing, and a stream is taken to be finite."""
    graph = """
chosen (float[N, 4] x) => (float[N, 3] y) <float[4, 8] rows, float[8, 3] columns, float low, float put>
{
    s = MatMul(x, rows)
    t = Less(s, low)
    c = Where(t, put, s)
    y = MatMul(c, columns)
}
"""
    path = save(tmp_path / "m.onnx", graph, low=np.float32(-0.5), put=np.float32(put))
    axes = api.compile(api.recipe('widen axis 1 of "rows" to 9 with zero fill'), path).axes
    [node] = (node for node in axes.graph.nodes if node.op == "Where")
    assert (finder(axes)(node, 2) is not None) == np.isfinite(put)


TAKEN_BACK = {
    "cuts": "Y0 = Slice(X, none, three, last)\n    Y1 = Slice(X, three, eleven, last)"
    "\n    Y = Concat <axis = 1> (Y0, Y1)",
    "dropout": "Y = Dropout(X)",
    "padded": "Yp = Pad(X, around)\n    Y = Slice(Yp, two, ten, last)",
    "parts": "Y0, Y1 = Split <axis = 1> (X)\n    Y = Concat <axis = -1> (Y0, Y1)",
}
NOT_TAKEN_BACK = {
    "cuts": "Y0 = Slice(X, none, three, last)\n    Y1 = Slice(X, three, eleven, last)"
    "\n    Y = Concat <axis = 1> (Y1, Y0)",
    "padded": "Yp = Pad(X, around)\n    Y = Slice(Yp, three, eleven, last)",
    "parts": "Y0, Y1 = Split <axis = 1> (X)\n    Y = Concat <axis = -1> (Y1, Y0)",
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("behind", [LAST, EACH])
@pytest.mark.parametrize("between", ["", ROUNDINGS["one"], FUNCTIONS["relu"]], ids=["", "steps", "relu"])
@pytest.mark.parametrize("kind", TAKEN_BACK)
def test_what_is_taken_back_changes_nothing(tmp_path: Path, kind: str, between: str, behind: str) -> None:
    first = TAKEN_BACK[kind] if not between else TAKEN_BACK[kind].replace("Y =", "Yt =")
    second = between.replace("X", "Yt")
    model = stack(tmp_path, behind=f"{first}\n    {second}")
    judge(behind, model, tmp_path / "deep.onnx").assert_exact()


@pytest.mark.parametrize("kind", NOT_TAKEN_BACK)
def test_a_change_that_is_not_taken_back_is_a_gap(tmp_path: Path, kind: str) -> None:
    model = stack(tmp_path, behind=NOT_TAKEN_BACK[kind])
    recipe = "stack layers to 4 by last with zero outputs"
    judge(recipe, model, tmp_path / "deep.onnx").assert_gap("changes the stream itself")


def test_fewer_digits_outlast_a_type_of_more(tmp_path: Path) -> None:
    both = "Yb = Cast <to = 16> (X)\n    Yh = Cast <to = 10> (Yb)\n    Y = Cast <to = 1> (Yh)"
    judge(LAST, stack(tmp_path, behind=both), tmp_path / "deep.onnx").assert_exact()


RELU = "s{k} = Relu(a{k})"
TWICE = """
    u{k} = MatMul(x{k}, up{k})
    d{k} = MatMul(u{k}, down{k})
    a{k} = Add(x{k}, d{k})
    s{k} = Relu(a{k})
    v{k} = MatMul(s{k}, wide{k})
    f{k} = MatMul(v{k}, narrow{k})
    b{k} = Add(s{k}, f{k})
    x{n} = {end}(b{k})
"""


def in_between(folder: Path, stem: str, end: str, between: str = RELU) -> Path:
    """Two layers with a Relu, or something else, between their sums; `end` stands behind each."""
    layer = TWICE.replace(RELU, between)
    layers = "".join(layer.format(k=k, n=k + 1, end=end) for k in range(2))
    shapes = {"up": "8, 12", "down": "12, 8", "wide": "8, 20", "narrow": "20, 8"}
    weights = ", ".join(f"float[{shape}] {name}{k}" for k in range(2) for name, shape in shapes.items())
    graph = f"""
between (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns>
{{
    e = MatMul(x, rows)
    x0 = {stem}(e)
    {layers}
    y = MatMul(x2, columns)
}}
"""
    numbers = {name: NUMBERS[name] for name in ("low", "large") if name in between}
    return save(folder / "model.onnx", graph, **numbers)


@pytest.mark.parametrize("stem", ["Relu", "Abs"])
def test_bounds_at_a_layer_need_not_hold_at_its_copy(tmp_path: Path, stem: str) -> None:
    """The stem gives no negative numbers; sums do."""
    model = in_between(tmp_path, stem, "Identity")
    again = "arrange layers as 0, 1, 0 with zero outputs"
    judge(again, model, tmp_path / "deep.onnx").assert_gap("`s0` rounds or bounds", "in this place")


@pytest.mark.parametrize("end", ["Relu", "Abs"])
def test_bounds_at_the_place_of_a_copy_are_enough(tmp_path: Path, end: str) -> None:
    """Behind each layer no number is negative; nothing is known of the stem."""
    model = in_between(tmp_path, "Identity", end)
    again = "arrange layers as 0, 1, 0 with zero outputs"
    judge(again, model, tmp_path / "deep.onnx").assert_exact()


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "choice",
    [
        "t{k} = Less(a{k}, BOUND)\n    s{k} = Where(t{k}, BOUND, a{k})",
        "t{k} = GreaterOrEqual(BOUND, a{k})\n    s{k} = Where(t{k}, BOUND, a{k})",
        "t{k} = Greater(a{k}, BOUND)\n    s{k} = Where(t{k}, a{k}, BOUND)",
        "t{k} = LessOrEqual(BOUND, a{k})\n    s{k} = Where(t{k}, a{k}, BOUND)",
    ],
)
@pytest.mark.parametrize("bound", ["low", "large"])
def test_a_bound_may_be_written_as_a_choice(tmp_path: Path, choice: str, bound: str) -> None:
    """Nothing behind a Relu lies below -0.5; much lies below 50."""
    model = in_between(tmp_path, "Relu", "Relu", choice.replace("BOUND", bound))
    found = judge("arrange layers as 0, 1, 0 with zero outputs", model, tmp_path / "deep.onnx")
    if bound == "low":
        found.assert_exact()
    else:
        found.assert_gap("rounds or bounds", "in this place")


def test_a_new_layer_rounds_the_stream_as_it_is_rounded_where_it_stands(tmp_path: Path) -> None:
    """Between its two sums a layer rounds to coarser steps than behind them."""
    ends = "".join(
        f"""
    {name}q{{k}} = QuantizeLinear({name}{{k}}, {step}{{k}}, middle{{k}})
    {name}r{{k}} = DequantizeLinear({name}q{{k}}, {step}{{k}}, middle{{k}})
"""
        for name, step in (("a", "coarse"), ("b", "step"))
    )
    between, behind = ends.split("\n\n")
    layer = TWICE.replace("    s{k} = Relu(a{k})\n", f"{between}\n    s{{k}} = Identity(ar{{k}})\n")
    layer = layer.replace("    x{n} = {end}(b{k})\n", f"{behind}\n    x{{n}} = Identity(br{{k}})\n")
    layers = "".join(layer.format(k=k, n=k + 1) for k in range(2))
    shapes = {"up": "8, 12", "down": "12, 8", "wide": "8, 20", "narrow": "20, 8"}
    weights = ", ".join(f"float[{shape}] {name}{k}" for k in range(2) for name, shape in shapes.items())
    graph = f"""
steps (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns>
{{
    x0 = MatMul(x, rows)
    {layers}
    y = MatMul(x2, columns)
}}
"""
    numbers = {n: v for n, v in NUMBERS.items() if n[-1] in "01"}
    numbers |= {f"coarse{k}": np.float32(1.7 + k) for k in range(2)}
    model = save(tmp_path / "model.onnx", graph, **numbers)
    judge(LAST, model, tmp_path / "deep.onnx").assert_exact()
    judge("drop layers 1", model, tmp_path / "short.onnx").assert_gap("left out")


def test_a_layer_stands_on_no_stream_of_another_type(tmp_path: Path) -> None:
    """The stream is stored in eight bits, and the last layer leaves it without a sign."""
    layer = """
    f{k} = DequantizeLinear(x{k}, step, {zero})
    u{k} = MatMul(f{k}, up{k})
    r{k} = Relu(u{k})
    d{k} = MatMul(r{k}, down{k})
    g{k} = DequantizeLinear(x{k}, step, {zero})
    a{k} = Add(g{k}, d{k})
    x{n} = QuantizeLinear(a{k}, step, {end})
"""
    ends = ["signed", "signed", "middle0"]
    layers = "".join(layer.format(k=k, n=k + 1, zero="signed", end=end) for k, end in enumerate(ends))
    weights = ", ".join(f"float[8, 12] up{k}, float[12, 8] down{k}" for k in range(3))
    graph = f"""
stored (float[N, 4] x) => (float[N, 3] y)
<float[4, 8] rows, {weights}, float[8, 3] columns>
{{
    e = MatMul(x, rows)
    x0 = QuantizeLinear(e, step, signed)
    {layers}
    s = DequantizeLinear(x3, step, middle0)
    y = MatMul(s, columns)
}}
"""
    numbers = {"step": np.float32(0.1), "signed": np.int8(3), "middle0": np.uint8(131)}
    model = save(tmp_path / "model.onnx", graph, **numbers)
    with pytest.raises(GrowError, match="layer 2 cannot be layer 3: it takes int8"):
        judge(LAST, model, tmp_path / "deep.onnx")
    between = "arrange layers as 0, 1, 0, 1, 2 with zero outputs"
    judge(between, model, tmp_path / "deep.onnx").assert_exact()


DIVIDED = """
divided (float[B, S, 3] x) => (float[B, S, 8] y)
<float[3, 8] rows, float[8, 6] up0, float[6, 8] down0, float[8, 6] up1, float[6, 8] down1,
 float one = {number}>
{{
    x0 = MatMul(x, rows)
    a0 = MatMul(x0, up0)
    b0 = Relu(a0)
    c0 = MatMul(b0, down0)
    s0 = Add(x0, c0)
    x1 = {op}(s0, one)
    a1 = MatMul(x1, up1)
    b1 = Relu(a1)
    c1 = MatMul(b1, down1)
    s1 = Add(x1, c1)
    y = {op}(s1, one)
}}
"""


@pytest.mark.parametrize("op", ["Mul", "Div"])
@pytest.mark.parametrize(("number", "exact"), [("{1.0}", True), ("{0.5}", False)])
def test_a_stream_that_is_multiplied_with_one_is_left_as_it_is(tmp_path, op, number, exact):
    model = save(tmp_path / "m.onnx", DIVIDED.format(number=number, op=op))
    judged = judge("stack layers to 3 by last with zero outputs", model, tmp_path / "deep.onnx")
    assert judged.certificate.exact is exact
    assert (judged.difference < 1e-5) is exact
