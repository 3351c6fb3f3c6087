"""FLOPs of files: by hand, of results before they are written, at which sizes, and what is not counted."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import pytest
from control.test_bodies import BRANCHES, LAYER
from fused.graphs_of_onnxruntime import GRAPHS, OPSETS
from graphs import DEMO, MLP, TINY, save

import growc
from growc import api
from growc.algebra.space import Size
from growc.errors.diagnostic import GrowError
from growc.ir.graph import Value
from growc.render.flops import amount, change_line, flops_data, flops_line
from growc.reports.flops import Flops, before_and_after, grown, inputs_at

MODELS = TINY.parent

TRIPS = """
g (float[N, 8] x, int64 trips) => (float[T, M, 4] y) <float[8, 16] w, float[16, 4] v>
{
    a = MatMul(x, w)
    last, all = Loop <body = b (int64 i, bool go, float[N, 16] s) => (bool on, float[N, 16] t, float[N, 16] o)
        { on = Identity(go)  t = Identity(s)  o = Relu(s) }> (trips, , a)
    y = MatMul(all, v)
}"""


def test_a_product_costs_two_for_each_term_and_once_more_for_each_gradient(tmp_path: Path) -> None:
    found = growc.flops(save(tmp_path / "mlp.onnx", MLP))
    first, second = 2 * 4 * 8, 2 * 8 * 3
    assert (found.unit, found.forward, found.backward) == ("sample", first + second, first + 2 * second)
    assert (found.each, found.uncounted) == (((4,),), ())


def test_tokens_stand_in_a_row_as_positions_allow() -> None:
    assert growc.flops(TINY).inputs == {"input_ids": (3, 128)}
    assert growc.flops(MODELS / "tiny-llama.onnx").each == ((1024,),)
    assert growc.flops(MODELS / "tiny-t5.onnx").each == ((1024,), (1024,))


def test_attention_grows_with_the_tokens_in_a_row_and_all_else_does_not() -> None:
    c = growc.inspect(TINY)
    short, middle, long = (growc.flops(c, sizes={"input_ids": (1, n)}).forward for n in (16, 32, 64))
    layers, hidden = 4, 96
    assert middle - short == layers * 2 * 2 * hidden * 16
    assert long - middle == 2 * (middle - short)


@pytest.mark.parametrize("name", ["llama", "t5"])
def test_many_tokens_in_a_row_need_no_memory_for_a_value_of_each_pair(name: str) -> None:
    c = growc.inspect(MODELS / f"tiny-{name}.onnx")
    tokens = 1 << 13
    tracemalloc.start()
    try:
        found = growc.flops(c, sizes={v.name: (1, tokens) for v in c.graph.inputs})
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.units in (tokens, 2 * tokens)
    assert found.uncounted == growc.flops(c).uncounted
    assert peak < tokens**2 // 4


def test_sizes_that_a_model_does_not_take_are_refused() -> None:
    for sizes in ({"image": (2, 3, 16, 17)}, {"image": (2, 3)}, {"picture": (2, 3, 16, 16)}):
        with pytest.raises(GrowError, match="takes no inputs of these sizes"):
            growc.flops(MODELS / "tiny-conv.onnx", sizes=sizes)
    assert growc.flops(MODELS / "tiny-conv.onnx", sizes={"image": (7, 3, 16, 16)}).units == 7


RESULTS = {
    "gpt": DEMO.read_text(),
    "bert": "stack layers to 2 * layers by each with zero outputs\nwiden vocab to vocab + 7 with random fill",
    "llama": "widen hidden to 2 * hidden with cyclic copy\nwiden kv_heads to 2 * kv_heads with neighbor copy",
    "t5": "widen hidden to 2 * hidden with cyclic copy\nsubclone heads to heads / 2 by first\n"
    "subclone layers to 1 by even",
    "conv": "widen channels to 2 * channels with neighbor copy",
    "vit": "widen head_dim to 2 * head_dim with cyclic copy\nwiden ffn to ffn + 8 with tail copy",
}


@pytest.mark.parametrize("name", RESULTS)
def test_the_result_of_a_plan_costs_what_the_file_costs_that_is_written(tmp_path: Path, name: str) -> None:
    source = MODELS / f"tiny-{name}.onnx"
    before, after = before_and_after(api.compile(api.recipe(RESULTS[name]), source))
    done = growc.apply(RESULTS[name], source, tmp_path / "grown.onnx", check=False)
    assert before == growc.flops(source)
    assert after == growc.flops(done.written, sizes=before.inputs)
    assert after.forward != before.forward


TWO_ROWS = """
reads (int64[B, 12] ids, int64[B, T] source) => (float[B, 12, 4] y)
<float[9, 4] words, float[9, 4] others, float[4, 4] key, float[4, 6] up, float[6, 4] down, float[4] gain,
 float[4] bias>
{
    x = Gather(words, ids)
    q = LayerNormalization <axis = -1> (x, gain, bias)
    e = Gather(others, source)
    s = MatMul(e, key)
    turned = Transpose <perm = [0, 2, 1]> (s)
    seen = MatMul(q, turned)
    weighed = Softmax <axis = -1> (seen)
    read = MatMul(weighed, s)
    met = Add(x, read)
    z = LayerNormalization <axis = -1> (met, gain, bias)
    u = MatMul(z, up)
    r = Relu(u)
    d = MatMul(r, down)
    y = Add(met, d)
}
"""


def test_rows_of_unlike_lengths_stay_as_long_in_the_result(tmp_path: Path) -> None:
    path = save(tmp_path / "two.onnx", TWO_ROWS)
    before, after = before_and_after(api.compile(api.recipe("widen ffn to 7 with zero fill"), path))
    assert before.each == after.each == ((12,), (1024,))
    assert after.total_forward - before.total_forward == after.inputs["ids"][0] * 12 * 2 * 2 * 4


FUSED = {"bert": (576, 8, 0), "gpt": (576, 8, 7), "llama": (1952, 64, 7), "opset23": (704, 16, 7)}
"""Weights of products, width of all heads, cached tokens."""


@pytest.mark.parametrize("name", FUSED)
def test_operators_of_onnxruntime_cost_what_they_are_made_of(tmp_path: Path, name: str) -> None:
    path = save(tmp_path / f"{name}.onnx", GRAPHS[name], opset=OPSETS.get(name, 17))
    found = growc.flops(path, sizes={"ids": (2, 16)})
    weights, width, past = FUSED[name]
    assert found.forward == 2 * weights + 2 * 2 * width * (16 + past)
    assert found.backward == 2 * found.forward
    assert (found.unit, found.uncounted) == ("token", ())
    assert found.cached == ((past,) if past else ())


def test_a_mask_over_cached_tokens_is_as_long_as_both() -> None:
    sampled: dict[Value, tuple[Size, ...] | None] = {
        Value("ids"): ((3, 5), (11, 13)),
        Value("past"): ((3, 5), (7, 17)),
        Value("mask"): ((3, 5), (18, 30)),
        Value("unknown"): None,
    }
    found = inputs_at(sampled, {(11, 13): 64}, {"past": (2, 9)})
    sizes = {v.name: rows and [s[0] for s in rows] for v, rows in found.items()}
    assert sizes == {"ids": [2, 64], "past": [2, 9], "mask": [2, 73], "unknown": None}


@pytest.mark.parametrize(
    ("now", "before", "after", "made"),
    [
        ((64, 64), (11, 13), (11, 13), (64, 64)),
        ((64, 64), (11, 13), (14, 16), (67, 67)),
        ((64, 64), (11, 13), (22, 26), (128, 128)),
        ((8, 8), (8, 8), (12, 12), (12, 12)),
        ((64, 64), (11, 13), (22, 25), None),
        ((9, 9), (4, 8), (6, 12), None),
    ],
)
def test_sizes_that_grow_by_a_sum_or_factor_at_the_sample_points_do_so_elsewhere(
    now: Size, before: Size, after: Size, made: Size | None
) -> None:
    assert grown((now,), (before,), (after,)) == (None if made is None else (made,))


# --------------------------------------------------------------------------------------- what is not counted


def test_products_in_bodies_are_not_counted(tmp_path: Path) -> None:
    branches = growc.flops(save(tmp_path / "branches.onnx", BRANCHES))
    assert branches.forward == 2 * 8 * 3
    assert branches.uncounted == ("MatMul h", "MatMul k")
    assert growc.flops(save(tmp_path / "loop.onnx", LAYER)).uncounted == ("MatMul u", "MatMul d")


def test_products_of_sizes_that_data_decide_are_not_counted(tmp_path: Path) -> None:
    found = growc.flops(save(tmp_path / "chosen.onnx", CHOSEN))
    assert found.uncounted == ("MatMul y",)
    assert found.forward == 2 * 8 * 4


def test_the_trips_of_a_loop_are_not_counted(tmp_path: Path) -> None:
    found = growc.flops(save(tmp_path / "trips.onnx", TRIPS, opset=18), sizes={"x": (10, 8)})
    assert found.uncounted == ("MatMul y",)
    assert found.total_forward == 2 * 10 * 8 * 16


def test_an_operator_that_nobody_knows_is_not_counted(tmp_path: Path) -> None:
    text = MLP.replace("Relu(a)", "com.microsoft.Strange(a)")
    assert growc.flops(save(tmp_path / "odd.onnx", text)).uncounted[0] == "com.microsoft::Strange b"


def test_a_product_that_sums_nothing_is_elementwise(tmp_path: Path) -> None:
    text = MLP.replace("Relu(a)", 'Einsum <equation = "ij,j->ij"> (a, fc1_bias)')
    assert growc.flops(save(tmp_path / "scaled.onnx", text)).forward == 2 * 4 * 8 + 2 * 8 * 3


CHOSEN = """
chosen (float[N, 8] x, float[N] scores) => (float[K, 6] y, float[N, 4] z)
<float[8, 6] weight, float[8, 4] other>
{
    zero = Constant <value_float = 0.0> ()
    some = Greater(scores, zero)
    found = NonZero(some)
    axis = Constant <value_ints = [0]> ()
    places = Squeeze(found, axis)
    rows = Gather(x, places)
    y = MatMul(rows, weight)
    z = MatMul(x, other)
}
"""


# ------------------------------------------------------------------------------------------- as it is shown


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 FLOP"), (999, "999 FLOP"), (1234, "1.2 KFLOP"), (2.5e9, "2.5 GFLOP"), (7e16, "70.0 PFLOP")],
)
def test_an_amount_has_a_prefix(number: float, text: str) -> None:
    assert amount(number) == text


def test_a_line_says_for_which_sizes_and_what_is_missing() -> None:
    cached = Flops("token", 16, 64000, 128000, {}, ((16,),), cached=(7,))
    assert flops_line(cached).endswith("backward 8.0 KFLOP, at 16 tokens behind 7 cached")
    tokens = Flops("token", 32, 64000, 128000, {}, ((16,), (9,)), ("MatMul h",))
    assert flops_line(tokens) == (
        "forward 2.0 KFLOP a token, backward 4.0 KFLOP, at 16 + 9 tokens; 1 node not counted (--json)"
    )
    sample = Flops("sample", 2, 30, 61, {"x": (2, 3, 8)}, ((3, 8),))
    assert flops_line(sample) == "forward 15 FLOP a sample, backward 30 FLOP, at 3 × 8"
    assert flops_data(sample)["forward"] == 15
    assert flops_data(sample)["backward"] == 30.5
    more = Flops("sample", 2, 3000, 6000, {"x": (2, 3, 8)}, ((3, 8),))
    assert change_line(sample, more) == (
        "FLOPs: forward 15 FLOP -> 1.5 KFLOP a sample, backward 30 FLOP -> 3.0 KFLOP, at 3 × 8."
    )
