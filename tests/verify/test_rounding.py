import math

import ml_dtypes
import numpy as np
import onnx
import onnxruntime
import pytest

from growc.errors.diagnostic import GrowError
from growc.verification.feeds import draw_cases
from growc.verification.float_copies import SINGLE, WIDER, float_types, runnable, widened, write_copy
from growc.verification.ort_session import Session
from growc.verification.rounding import Rounding, measure, own_rounding, ways

FEED_FORWARD = """g (TYPE[b, 16] x) => (TYPE[b, 8] y) {
    a = MatMul(x, w)  c = Add(a, bias)  d = Div(c, root)  e = Erf(d)  f = Add(e, one)  h = Mul(c, f)
    i = Mul(h, half)  j = LayerNormalization(i, gain, shift)  y = MatMul(j, v) }"""

STATISTICS = """g (float[b, s] x) => (float[b, s] y, float[b, 1] m) {
    zero = Constant<value_float = 0.0>()  ones = ConstantOfShape<value = float[1] {1.0}>(shape)
    m = ReduceMean<axes = [1]>(x)  a = Add(m, zero)  c = Mul(a, ones)  d = Cast<to = 1>(c)  y = Sub(x, d) }"""

BUCKETS = """g (float[b, s, 4] x) => (float[b, s, 4] y) {
    n = Shape<start = 1, end = 2>(x)  n0 = Squeeze(n)  r = Range(zero, n0, one)  f = Cast<to = 1>(r)
    a = Add(f, first)  c = Log(a)  d = Div(c, scale)  e = Floor(d)  i = Cast<to = 7>(e)
    t = Gather(table, i)  y = Add(x, t) }"""


@pytest.fixture
def feed_forward(onnx_file, random):
    """A feed-forward block with the GELU that onnxruntime has no float64 kernel for."""

    def save(dtype=np.float32, text="float", name="model.onnx", **options):
        weights = {
            "w": random(16, 32),
            "bias": random(32),
            "root": np.sqrt(2.0),
            "one": 1.0,
            "half": 0.5,
            "gain": 1 + random(32) / 10,
            "shift": random(32),
            "v": random(32, 8),
        }
        cast = {name: np.asarray(weight, dtype) for name, weight in weights.items()}
        return onnx_file(FEED_FORWARD.replace("TYPE", text), name, **cast, **options)

    return save


def test_a_little_model_rounds_by_a_few_units_of_its_last_place(feed_forward):
    path = feed_forward()
    assert 1e-8 < own_rounding(path, draw_cases(path)) < 5e-6


def test_a_model_with_external_data_rounds_as_with_its_weights_inside(feed_forward):
    inside, outside = feed_forward(), feed_forward(name="outside.onnx", external=True)
    cases = draw_cases(outside)
    assert own_rounding(outside, cases) == own_rounding(inside, cases)


@pytest.mark.parametrize(
    ("dtype", "text", "low", "high"),
    [(np.float16, "float16", 1e-4, 1e-2), (ml_dtypes.bfloat16, "bfloat16", 1e-3, 5e-2)],
    ids=["float16", "bfloat16"],
)
def test_a_16_bit_model_rounds_by_its_own_type(feed_forward, dtype, text, low, high):
    path = feed_forward(dtype, text)
    assert low < own_rounding(path, draw_cases(path)) < high


def test_a_float64_copy_computes_what_numpy_computes(feed_forward, tmp_path, random):
    copy = write_copy(feed_forward(), tmp_path / "copy.onnx", WIDER)
    x = random(5, 16, seed=7)
    with Session(copy, optimised=False) as session:
        (y,) = session.run({"x": x}).values()
    weights = {
        name: random(*shape).astype(np.float64) for name, shape in {"w": (16, 32), "v": (32, 8)}.items()
    }
    c = x.astype(np.float64) @ weights["w"] + random(32)
    erf = np.vectorize(math.erf)
    h = c * (erf(c / np.float32(np.sqrt(2.0))) + 1) * 0.5
    h = (h - h.mean(-1, keepdims=True)) / np.sqrt(h.var(-1, keepdims=True) + 1e-5)
    h = h * (1 + random(32) / 10).astype(np.float32) + random(32)
    assert y.dtype == np.float64
    assert np.abs(y - h @ weights["v"]).max() / np.abs(y).max() < 2e-7  # Erf itself stays float32


@pytest.mark.parametrize("external", [False, True])
@pytest.mark.parametrize(
    "text",
    [
        "g (float[b, 64] x) => (float[b, 64] y) { a = MatMul(x, w)  c = Tanh(a)  y = MatMul(c, w) }",
        "g (float[b, 64] x) => (float[64, 64] y, float[b, 64] z) { y = Identity(w)  z = MatMul(x, y) }",
        """g (float[b, 64] x, bool k) => (float[b, 64] y) {
            y = If(k) <then_branch = t () => (float[b, 64] p) { p = MatMul(x, w) },
                       else_branch = e () => (float[b, 64] q) { q = Neg(x) }> }""",
    ],
    ids=["used twice", "given out", "in a body"],
)
def test_a_float64_copy_without_weights_of_its_own_is_the_one_with(
    onnx_file, random, tmp_path, text, external
):
    path = onnx_file(text, w=random(64, 64))
    if external:
        onnx.save(onnx.load(path), path, save_as_external_data=True, location="w.data", size_threshold=0)
    copy, case = write_copy(path, tmp_path / "copy.onnx", WIDER), {"x": random(3, 64, seed=1)}
    case |= {"k": np.array(True)} if "bool" in text else {}
    with Session(copy, optimised=False) as one, Session(path, optimised=False, graph=widened(path)) as other:
        wanted, found = one.run(case), other.run(case)
    assert found.keys() == wanted.keys()
    for name, output in found.items():
        assert output.dtype == np.float64
        assert np.array_equal(output, wanted[name])
    assert len(widened(path)[0]) < 64 * 64 * 4


def test_a_float64_copy_of_operators_that_all_have_kernels_is_exact(onnx_file, random, tmp_path):
    path = onnx_file(
        "g (float[b, 64] x) => (float[b, 4] y) { a = MatMul(x, w)  y = Tanh(a) }", w=random(64, 4)
    )
    copy = write_copy(path, tmp_path / "copy.onnx", WIDER)
    x = random(3, 64, seed=1)
    with Session(copy) as session:
        y = session.run({"x": x})["y"]
    assert np.abs(y - np.tanh(x.astype(np.float64) @ random(64, 4))).max() < 1e-14


def test_an_operator_that_is_expanded_into_one_without_a_float64_kernel_keeps_its_type(
    onnx_file, random, tmp_path
):
    path = onnx_file(
        "g (float[b, 64] x) => (float[b, 4] y) { a = HardSwish(x)  c = Swish(a)  y = MatMul(c, w) }",
        w=random(64, 4),
        opset=24,
    )
    copy = write_copy(path, tmp_path / "copy.onnx", WIDER)
    casts = [node.input[0] for node in onnx.load(copy).graph.node if node.op_type == "Cast"]
    assert len(casts) == 3, "at the input, and around HardSwish; all that Swish expands into has kernels"
    x = random(3, 64, seed=1)
    with Session(copy, optimised=False) as session:
        y = session.run({"x": x})["y"]
    a = (x * np.clip(x / np.float32(6) + np.float32(0.5), 0, 1)).astype(np.float64)
    wanted = (a / (1 + np.exp(-a))) @ random(64, 4)
    assert y.dtype == np.float64
    assert np.abs(y - wanted).max() < 2e-7 * np.abs(wanted).max()


def test_constants_casts_and_declared_types_follow_the_copy(onnx_file, tmp_path):
    path = onnx_file(STATISTICS, shape=np.array([1]))
    copy = write_copy(path, tmp_path / "copy.onnx", WIDER)
    onnx.checker.check_model(copy, full_check=True)
    with Session(copy) as session:
        outputs = session.run({"x": np.array([[1, 2, 6]], np.float32)})
    assert outputs["y"].dtype == outputs["m"].dtype == np.float64
    assert outputs["y"].tolist() == [[-2, -1, 3]]


def test_an_input_of_a_copy_keeps_its_type(feed_forward, tmp_path):
    copy = onnx.load(write_copy(feed_forward(), tmp_path / "copy.onnx", WIDER), load_external_data=False)
    assert copy.graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT
    assert copy.graph.output[0].type.tensor_type.elem_type == onnx.TensorProto.DOUBLE


def test_integers_computed_from_sizes_alone_are_the_same_in_a_copy(onnx_file, random, tmp_path):
    scale = np.float32(np.log(2.0))  # log(8) / scale is below 3 in one type, and not in the other
    path = onnx_file(
        BUCKETS,
        zero=np.int64(0),
        one=np.int64(1),
        first=np.float32(1),
        scale=scale,
        table=random(16, 4),
    )
    float32 = np.floor(np.log(np.arange(1, 65, dtype=np.float32)) / scale)
    float64 = np.floor(np.log(np.arange(1, 65, dtype=np.float64)) / scale.astype(np.float64))
    assert not np.array_equal(float32, float64), "the premise: these buckets hang on the last bit"
    assert own_rounding(path, [{"x": random(1, 64, 4)}]) < 1e-6


def test_a_copy_reaches_into_branches(onnx_file, tmp_path, random):
    path = onnx_file(
        """g (float[b, 4] x, bool c) => (float[b, 4] y) {
            y = If(c) <then_branch = t () => (float[b, 4] u) { u = MatMul(x, w) },
                       else_branch = e () => (float[b, 4] u) { u = Erf(x) }> }""",
        w=random(4, 4),
    )
    copy = write_copy(path, tmp_path / "copy.onnx", WIDER)
    x = random(2, 4, seed=3)
    with Session(copy, optimised=False) as session:
        taken = session.run({"x": x, "c": np.array(True)})["y"]
        other = session.run({"x": x, "c": np.array(False)})["y"]
    assert np.abs(taken - x.astype(np.float64) @ random(4, 4)).max() < 1e-14
    assert other.dtype == np.float64


@pytest.mark.parametrize("results", ["a, m, v, sum", "a, , , sum"])
def test_a_copy_leaves_fused_operators_that_know_no_float64(onnx_file, random, results):
    path = onnx_file(
        f"""g (float[b, s, 8] x, float[b, s, 8] z) => (float[b, s, 8] y) {{
            {results} = com.microsoft.SkipLayerNormalization(x, z, gain)  y = Add(a, sum) }}""",
        gain=random(8),
    )
    rounding = Rounding()
    cases = draw_cases(path)
    with ways(path, path, rounding, cases[0]) as others, Session(path) as session:
        measure(others, cases, [session.run(case) for case in cases], rounding)
    assert rounding.notes == []
    assert 0 < rounding.largest < 1e-6


def test_a_bfloat16_model_runs_as_a_float32_copy(feed_forward):
    path = feed_forward(ml_dtypes.bfloat16, "bfloat16")
    with pytest.raises(GrowError):
        Session(path)
    with runnable(path) as copy, Session(copy) as session:
        assert session.run({"x": np.ones((2, 16), np.float32)})["y"].dtype == np.float32
    with runnable(feed_forward()) as same:
        assert same == feed_forward()


def test_the_types_of_a_model_are_those_of_its_weights_inputs_and_casts(onnx_file):
    path = onnx_file("g (float[2] x) => (float[2] y) { a = Cast<to = 10>(x)  y = Cast<to = 1>(a) }")
    assert {dtype.name for dtype in float_types(path)} == {"FLOAT", "FLOAT16"}


def test_a_way_that_cannot_be_taken_is_noted_and_left_out(feed_forward, monkeypatch):
    def full(*_):
        raise OSError("no space")

    monkeypatch.setattr("growc.verification.rounding.write_copy", full)
    monkeypatch.setattr("growc.verification.rounding.widened", full)
    rounding = Rounding()
    path = feed_forward()
    with ways(path, path, rounding, draw_cases(path)[0]) as others:
        assert [way.label for way in others] == ["model without graph optimisations"]
    assert rounding.notes == [
        "own rounding not measured on the model with weights moved by their last place: no space",
        "own rounding not measured on the float64 copy: no space",
    ]


def test_integers_that_the_last_bit_decides_make_an_output_unstable():
    rounding = Rounding()
    rounding.add(
        {"i": np.array([1, 2]), "y": np.array([1.0])}, {"i": np.array([1, 3]), "y": np.array([1.25])}
    )
    assert rounding.unstable == {"i": 1}
    assert rounding.largest == 0.25


def test_16_bit_copies_hold_the_same_numbers(feed_forward, tmp_path):
    path = feed_forward(np.float16, "float16")
    copy = onnx.load(write_copy(path, tmp_path / "copy.onnx", SINGLE))
    stored = {tensor.name: onnx.numpy_helper.to_array(tensor) for tensor in copy.graph.initializer}
    source = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
    assert all(stored[name].dtype == np.float32 for name in source)
    assert all(np.array_equal(stored[name], source[name]) for name in source)


def test_the_kernels_that_the_copies_rely_on_are_told_by_onnxruntime():
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    assert state.get_all_opkernel_def()
    assert state.get_all_operator_schema(), onnxruntime.__version__
