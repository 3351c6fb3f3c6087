import math

import numpy as np
import pytest

from growc.errors.diagnostic import GrowError
from growc.plans.unitmaps import StateMap, UnitMap
from growc.verification.difference import compare
from growc.verification.feeds import draw_cases
from growc.verification.ort_session import Session
from growc.verification.verify import verify

MLP = "g (float[b, 6] x) => (float[b, 3] y) { a = MatMul(x, w)  c = Relu(a)  y = MatMul(c, v) }"
HEAD = "g (float[b, 6] x) => (float[b, d] y) { y = MatMul(x, w) }"
ILL = """g (float[b, 6] x) => (float[b, 3] y) {
    a = MatMul(x, w)  s = Add(a, far)  n = LayerNormalization(s, gain)  h = HardSwish(n)
    y = MatMul(h, v) }"""
EPS_FIRST = """g (float[b, 6] x) => (float[b, 3] y) {
    s = Mul(x, small)  m = ReduceMean<axes = [-1]>(s)  d = Sub(s, m)  p = Pow(d, two)
    v = ReduceMean<axes = [-1]>(p)  e = Add(eps, v)  r = Sqrt(e)  n = Div(d, r)  g = Mul(n, gain)
    o = Add(g, bias)  y = MatMul(o, w) }"""
CACHE = """g (float[b, 2, s, 4] new, float[b, h, p, 4] past) => (float[b, h, t, 4] present) {
    a = Gather<axis = 1>(new, heads)  c = Mul(a, scales)  present = Concat<axis = 2>(past, c) }"""


@pytest.fixture
def mlp(onnx_file, random):
    """A two-layer network; `units` gives the inner units by their number in the source."""

    def save(name="model.onnx", units=range(5), moved=0.0):
        units = np.array(units)
        counts = np.bincount(units)[units]
        v = random(5, 3, seed=1)[units] / counts[:, None]
        v[0, 0] += moved
        return onnx_file(MLP, name, w=random(6, 5)[:, units], v=v.astype(np.float32))

    return save


def test_a_model_is_the_same_as_itself(mlp):
    report = verify(mlp(), mlp("result.onnx"))
    assert (report.relative, report.max_abs, report.cases) == (0.0, 0.0, 2)
    assert set(report.outputs) == {"y"}
    assert report.notes == ()
    assert not report.refutes_exact()


def test_a_grown_model_is_the_same_within_rounding(mlp):
    report = verify(mlp(), mlp("result.onnx", units=[0, 1, 2, 3, 4, 1, 1, 3]))
    assert 0 < report.relative < 1e-6
    assert 0 < report.rounding < 1e-6
    assert not report.refutes_exact()


@pytest.mark.parametrize("moved", [1e-4, 1.0])
def test_a_planted_difference_is_seen(mlp, moved):
    report = verify(mlp(), mlp("result.onnx", moved=moved))
    assert report.relative > moved / 20
    assert report.refutes_exact()


@pytest.mark.parametrize("faulty", ["", "w", "far", "gain", "v"])
def test_a_small_fault_is_seen_in_an_ill_conditioned_model(onnx_file, random, faulty):
    units = [*range(8), *range(8)]
    weights = {"w": random(6, 8), "far": 30 + random(8), "gain": 1 + random(8) / 5, "v": random(8, 3)}
    grown = {name: array[..., units] for name, array in weights.items() if name != "v"}
    grown["v"] = weights["v"][units] / 2
    if faulty:  # the first copy of each unit
        np.moveaxis(grown[faulty], 0 if faulty == "v" else -1, 0)[:8] *= 1 + 1e-4
    report = verify(onnx_file(ILL, **weights), onnx_file(ILL, "grown.onnx", **grown))
    assert report.rounding > 3e-7, "the premise: it rounds by several last places"
    assert report.refutes_exact() == bool(faulty), report


@pytest.mark.parametrize("moved", [0, 1e-4])
def test_a_source_that_onnxruntime_fuses_wrongly_is_run_as_it_stands(onnx_file, random, moved):
    weights = {"small": np.float32(0.01), "two": np.float32(2), "eps": np.float32(1e-3), "w": random(6, 3)}
    weights |= {"gain": 1 + random(6) / 5, "bias": random(6)}
    source = onnx_file(EPS_FIRST, **weights)
    result = onnx_file(EPS_FIRST, "result.onnx", **weights | {"w": weights["w"] * np.float32(1 + moved)})
    case = {"x": random(2, 6, seed=1)}
    with Session(source) as fused, Session(source, optimised=False) as plain:
        assert compare(plain.run(case)["y"], fused.run(case)["y"]).relative > 0.1, "the premise"
    report = verify(source, result)
    assert report.rounding < 1e-6
    assert report.relative == pytest.approx(moved, rel=0.1, abs=1e-6)
    assert report.refutes_exact() == bool(moved)
    assert "without onnxruntime's graph optimisations" in report.notes[0]


def test_the_largest_difference_over_all_outputs_is_reported(onnx_file, random):
    graph = "g (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Mul(x, u)  z = Mul(x, v) }"
    source = onnx_file(graph, u=np.float32(1), v=np.float32(1))
    result = onnx_file(graph, "result.onnx", u=np.float32(1.25), v=np.float32(0.5))
    report = verify(source, result)
    assert report.relative == 0.5
    assert report.outputs["y"].relative == pytest.approx(0.25)


def test_a_difference_in_right_padded_places_alone_is_seen(onnx_file):
    graph = """g (int64[b, s] mask, float[b, s] x) => (float[b, s] y) {
        m = Cast<to = 1>(mask)  a = Sub(one, m)  c = Mul(a, low)  y = Add(x, c) }"""
    source = onnx_file(graph, one=np.float32(1), low=np.float32(-5))
    result = onnx_file(graph, "result.onnx", one=np.float32(1), low=np.float32(-6))
    assert verify(source, result).refutes_exact()


def test_a_difference_that_shows_at_the_second_size_alone_is_seen(onnx_file, random):
    graph = "g (int64[b, s] ids) => (float[b, n, 4] y) { e = Gather(t, ids)  y = Slice(e, zero, end, axis) }"
    common = {"t": random(9, 4), "zero": np.array([0]), "axis": np.array([1])}
    source = onnx_file(graph, end=np.array([100]), **common)
    result = onnx_file(graph, "result.onnx", end=np.array([11]), **common)
    report = verify(source, result)
    assert report.relative == math.inf
    assert report.notes == ("output `y`: shape [3, 11, 4] instead of [3, 12, 4]",)


@pytest.mark.parametrize(("sign", "refuted"), [(1, False), (-1, True)])
def test_an_integer_output_must_be_equal(onnx_file, sign, refuted):
    graph = "g (float[b, 3] x) => (int64[b] y) { c = Mul(x, s)  y = ArgMax<axis = 1, keepdims = 0>(c) }"
    source = onnx_file(graph, s=np.float32(1))
    result = onnx_file(graph, "result.onnx", s=np.array([1, 1, sign], np.float32))
    report = verify(source, result)
    assert report.refutes_exact() is refuted
    assert (report.relative == math.inf) is refuted


@pytest.mark.parametrize(
    ("value", "refuted"), [(-np.inf, False), (-3.3e38, False), (np.inf, True), (0.0, True)]
)
def test_closed_places_must_stay_closed(onnx_file, value, refuted):
    graph = "g (float[b, 3] x) => (float[b, 3] y) { y = Where(open, x, low) }"
    open_places = np.array([True, False, True])
    source = onnx_file(graph, open=open_places, low=np.float32(-np.inf))
    result = onnx_file(graph, "result.onnx", open=open_places, low=np.float32(value))
    assert verify(source, result).refutes_exact() is refuted


@pytest.mark.parametrize(("moved", "refuted"), [(5e-7, False), (1e-5, True)])
def test_an_output_that_is_zero_may_move_by_a_millionth(onnx_file, moved, refuted):
    graph = "g (float[b, 3] x) => (float[b, 3] y) { a = Mul(x, zero)  y = Add(a, shift) }"
    source = onnx_file(graph, zero=np.float32(0), shift=np.float32(0))
    result = onnx_file(graph, "result.onnx", zero=np.float32(0), shift=np.float32(moved))
    assert verify(source, result).refutes_exact() is refuted


def test_a_resized_output_is_compared_on_the_units_of_the_source(onnx_file, random):
    w, extra = random(6, 3), random(6, 2, seed=5)
    source = onnx_file(HEAD, w=w)
    result = onnx_file(
        HEAD, "result.onnx", w=np.stack([w[:, 2] * 2, extra[:, 0], w[:, 0], w[:, 1], extra[:, 1]], 1)
    )
    shown = UnitMap(1, np.array([2, 3, 0]), np.array([1, 1, 2], np.float32))
    assert verify(source, result, output_maps={"y": [shown]}).relative < 1e-6
    plain = UnitMap(1, np.array([2, 3, 0]))
    assert verify(source, result, output_maps={"y": [plain]}).refutes_exact()
    assert verify(source, result).notes == (
        "output `y`: shape [2, 5] instead of [2, 3]",
        "output `y`: shape [3, 5] instead of [3, 3]",
    )


def test_a_map_that_does_not_fit_the_grown_output_is_reported(onnx_file, random):
    source, result = onnx_file(HEAD, w=random(6, 3)), onnx_file(HEAD, "result.onnx", w=random(6, 2))
    report = verify(source, result, output_maps={"y": [UnitMap(1, np.array([0, 1, 2]))]})
    assert report.refutes_exact()
    assert "has no place for the source's units" in report.notes[0]


def test_a_resized_cache_is_filled_from_the_source(onnx_file):
    ones = np.ones((4, 1, 1), np.float32)
    heads, scales = np.array([0, 0, 1, 1]), np.array([1, 2, 1, 0], np.float32)
    text = CACHE.replace("h,", "HEADS,")
    source = onnx_file(text.replace("HEADS", "2"), heads=np.array([0, 1]), scales=ones[:2])
    result = onnx_file(
        text.replace("HEADS", "4"), "result.onnx", heads=heads, scales=ones * scales[:, None, None]
    )
    grown = StateMap(1, np.array([0, 0, 1, -1]), np.array([1, 2, 1, 1], np.float32))
    shown = UnitMap(1, np.array([1, 2]), np.array([2, 1], np.float32))
    report = verify(source, result, input_maps={"past": [grown]}, output_maps={"present": [shown]})
    assert report.relative == 0.0
    with pytest.raises(GrowError):
        verify(source, result, output_maps={"present": [shown]})


def test_an_input_that_only_the_grown_model_has_is_fed(onnx_file):
    source = onnx_file("g (float[b, s] x) => (float[b, s] y) { y = Relu(x) }")
    result = onnx_file(
        "g (float[b, s] x, float[b, s] extra) => (float[b, s] y, float[b, s] z)"
        " { y = Relu(x)  z = Relu(extra) }",
        "result.onnx",
    )
    report = verify(source, result)
    assert report.relative == 0.0
    assert set(report.outputs) == {"y"}


def test_renamed_inputs_and_outputs_are_compared(onnx_file):
    source = onnx_file("g (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Relu(x)  z = Neg(x) }")
    result = onnx_file("g (float[b, 3] u) => (float[b, 3] v) { v = Relu(u) }", "result.onnx")
    report = verify(source, result, renamed={"x": "u", "y": "v", "z": None})
    assert report.relative == 0.0
    assert report.notes == ("output `z` is not in the grown model",)


def test_an_output_that_the_grown_model_lacks_is_no_agreement(onnx_file):
    source = onnx_file("g (float[b, 3] x) => (float[b, 3] y, float[b, 3] z) { y = Relu(x)  z = Neg(x) }")
    result = onnx_file("g (float[b, 3] x) => (float[b, 3] y) { y = Relu(x) }", "result.onnx")
    report = verify(source, result)
    assert report.relative == math.inf
    assert report.refutes_exact()
    assert report.notes == ("output `z`: the grown model lacks it",)


def test_outputs_that_the_last_bit_decides_refute_nothing(onnx_file, random):
    """The sign of a sum that is zero but for rounding: unoptimised and float64 runs give another one."""
    graph = """g (float[b, 64] x) => (float[b, 1] y, int64[b, 1] i) {
        a = MatMul(x, w)  c = MatMul(x, v)  d = Sub(a, c)  e = Greater(d, zero)  i = Cast<to = 7>(e)
        y = Add(a, c) }"""
    w = random(64, 32)
    common = {"zero": np.float32(0)}
    source = onnx_file(graph.replace("64[b, 1]", "64[b, 32]"), w=w, v=w + 3e-8 * np.sign(w), **common)
    result = onnx_file(graph.replace("64[b, 1]", "64[b, 32]"), "result.onnx", w=w, v=w - 3e-8, **common)
    report = verify(source, result)
    assert set(report.unstable) == {"i"}
    assert report.outputs["i"].misplaced
    assert not report.refutes_exact()


@pytest.mark.parametrize("text", ["float16", "bfloat16"])
def test_a_16_bit_model_may_move_by_what_storing_its_weights_costs(onnx_file, random, text):
    import ml_dtypes

    dtype = np.dtype(np.float16) if text == "float16" else np.dtype(ml_dtypes.bfloat16)
    graph = MLP.replace("float", text)

    def save(name, units, moved=1.0):
        counts = np.bincount(units)[units]
        v = moved * random(32, 3, seed=1)[units] / counts[:, None]
        return onnx_file(graph, name, w=random(6, 32)[:, units].astype(dtype), v=v.astype(dtype))

    units = np.arange(32)
    source = save("model.onnx", units)
    grown = verify(source, save("result.onnx", np.concatenate([units, units, units])))
    assert grown.relative > 1e-5
    assert not grown.refutes_exact()
    assert verify(source, save("wrong.onnx", units, moved=1.5)).refutes_exact()


def test_given_inputs_are_used_instead_of_drawn_ones(mlp, tmp_path):
    np.savez(tmp_path / "inputs.npz", x=np.zeros((20, 6), np.float32))
    report = verify(mlp(), mlp("result.onnx", moved=1.0), inputs=tmp_path / "inputs.npz")
    assert report.cases == 3
    assert report.relative == 0.0


def test_models_are_loaded_again_where_the_outputs_would_take_too_much(mlp, tmp_path, monkeypatch):
    np.savez(tmp_path / "inputs.npz", x=np.random.default_rng(0).standard_normal((20, 6)).astype(np.float32))
    phrases = []
    whole = verify(mlp(), mlp("result.onnx", moved=0.5), inputs=tmp_path / "inputs.npz")
    monkeypatch.setattr("growc.verification.verify.HELD_BYTES", 1)
    parts = verify(
        mlp(), mlp("result.onnx", moved=0.5), inputs=tmp_path / "inputs.npz", progress=phrases.append
    )
    assert parts == whole
    assert phrases == 3 * [
        "running the source",
        "measuring the source's own rounding",
        "running the grown model",
    ]


def test_external_data_is_found_beside_both_models(onnx_file, random, tmp_path):
    (tmp_path / "other").mkdir()
    w, v = random(6, 5), random(5, 3)
    source = onnx_file(MLP, external=True, w=w, v=v)
    result = onnx_file(MLP, "other/result.onnx", w=w, v=v)
    assert verify(source, result).relative == 0.0


def test_a_model_that_onnxruntime_cannot_run_is_an_error_that_names_it(mlp, onnx_file, random):
    result = onnx_file(MLP, "result.onnx", w=random(6, 5), v=random(4, 3))
    with pytest.raises(GrowError) as caught:
        verify(mlp(), result)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "G403"
    assert "`result.onnx`" in diagnostic.message
    assert diagnostic.notes


def test_a_model_that_is_missing_is_an_error(mlp, tmp_path):
    with pytest.raises(GrowError) as caught:
        verify(mlp(), tmp_path / "missing.onnx")
    assert caught.value.diagnostics[0].code == "G310"


def test_verification_draws_the_same_cases_as_draw_cases(mlp):
    assert verify(mlp(), mlp("result.onnx")).cases == len(draw_cases(mlp()))
