"""Numbers that look rows up: below zero they count from the end, which moves when rows are appended."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc import api
from growc.dialects.onnx.operators.number_ranges import RANGES
from growc.ir.graph import Value
from growc.passes.dataflow.ranges import Ranges

WIDEN = 'widen axis 0 of "table" to 20 with random fill'


def looked_up(path: Path, numbers: str, **weights: object) -> Path:
    """Rows of a table of 16 by numbers `i`, computed from tokens and a mask, which are 0 or more."""
    graph = f"""
    m (int64[N, S] tokens, int64[N, S] mask) => (float[N, S, 6] y)
    <float[16, 6] table, int64 zero = {{0}}, int64 one = {{1}}, int64 two = {{2}}, int64 eight = {{8}},
     int64 last = {{15}}, int64[1] axis = {{1}}, int64[1] z0 = {{0}}>
    {{ {numbers}
       y = Gather(table, i) }}
    """
    return save(path / "m.onnx", graph, **weights)


SIZE = "s = Shape(table) n = Gather(s, zero)"
BELOW = {
    "difference": "i = Sub(tokens, one)",
    "negation": "i = Neg(tokens)",
    "clamped above only": "d = Sub(tokens, one) i = Min(d, last)",
    "clamped at minus one": "m = Neg(one) d = Sub(tokens, two) i = Max(d, m)",
    "running sum less one": "c = CumSum(mask, axis) i = Sub(c, one)",
    "masked with minus one": "m = Neg(one) b = Greater(tokens, one) i = Where(b, tokens, m)",
    "remainder with the sign of the number": "d = Sub(tokens, one) i = Mod<fmod = 1>(d, last)",
    "quotient of a difference": "d = Sub(tokens, eight) i = Div(d, two)",
    "countdown": f"{SIZE} l = Sub(n, one) t = Add(tokens, last) i = Sub(l, t)",
    "product with minus one": "m = Neg(one) i = Mul(tokens, m)",
    "a real number cast": "f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) g = Sub(f, h) i = Cast<to = 7>(g)",
    "a logarithm": "f = Cast<to = 1>(tokens) g = Log(f) h = Max(g, g) i = Cast<to = 7>(h)",
    "the absolute of no number": """f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) d = Sub(f, h) g = Log(d)
        c = Cast<to = 7>(g) i = Abs(c)""",
    "the absolute of no number, twice": """f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) d = Sub(f, h)
        g = Log(d) c = Cast<to = 7>(g) a = Abs(c) i = Abs(a)""",
    "the square of more than no number": """f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) d = Sub(f, h)
        g = Log(d) c = Cast<to = 7>(g) e = Sub(c, one) i = Pow(e, two)""",
    "the negative of no number": """f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) d = Sub(f, h) g = Log(d)
        c = Cast<to = 7>(g) m = Neg(one) l = Min(c, m) i = Neg(l)""",
    "one less than no number": """f = Cast<to = 1>(tokens) h = Cast<to = 1>(two) d = Sub(f, h) g = Log(d)
        c = Cast<to = 7>(g) l = Min(c, last) e = Sub(l, one) i = Sub(last, e)""",
    "the wrong branch": "b = Less(tokens, two) d = Sub(tokens, two) i = Where(b, d, tokens)",
}
FROM_ZERO = {
    "as they come": "i = Identity(tokens)",
    "sums": "i = Add(tokens, mask)",
    "a mask's running sum": "c = CumSum(mask, axis) p = Mul(c, mask) i = Add(p, one)",
    "a running sum where the mask is": """c = CumSum(mask, axis) d = Sub(c, one) b = Equal(mask, zero)
        i = Where(b, one, d)""",
    "a running sum in fewer bits": """c = CumSum(mask, axis) n = Cast<to = 6>(c) m = Cast<to = 6>(mask)
        p = Mul(n, m) w = Cast<to = 7>(p) i = Add(w, one)""",
    "clamped": "d = Sub(tokens, one) i = Clip(d, zero, last)",
    "by maximum": "d = Sub(tokens, one) i = Max(d, zero)",
    "absolute": "d = Sub(tokens, two) i = Abs(d)",
    "remainder": "d = Sub(tokens, one) i = Mod(d, last)",
    "remainder by the size": f"{SIZE} d = Sub(tokens, one) i = Mod(d, n)",
    "clamped by the size": f"{SIZE} l = Sub(n, one) i = Min(tokens, l)",
    "comparison": "b = Less(tokens, mask) i = Cast<to = 7>(b)",
    "unequal": "b = Equal(tokens, one) u = Not(b) i = Cast<to = 7>(u)",
    "places": """h = Shape(tokens) s = Gather(h, one) r = Range(zero, s, one) e = Unsqueeze(r, z0)
        i = Expand(e, h)""",
    "padding in front": "b = Greater(tokens, zero) d = Sub(tokens, one) i = Where(b, d, zero)",
    "padding behind Not": """b = LessOrEqual(tokens, zero) u = Not(b) d = Sub(tokens, one)
        i = Where(u, d, zero)""",
    "padding behind a cast": "b = Cast<to = 9>(tokens) d = Sub(tokens, one) i = Where(b, d, zero)",
    "the real numbers between": "f = Cast<to = 1>(tokens) g = Sqrt(f) r = Floor(g) i = Cast<to = 7>(r)",
    "halves": "i = Div(tokens, two)",
    "least and largest": "h = ReduceMax<keepdims = 1>(tokens) i = Min(tokens, h)",
    "through a small table": "t = Constant<value = int64[4] {3, 0, 2, 1}>() i = Gather(t, mask)",
    "where it is largest": "a = ArgMax<axis = 1, keepdims = 1>(tokens) i = Add(a, mask)",
}


@pytest.mark.parametrize("numbers", BELOW.values(), ids=BELOW)
def test_numbers_that_may_be_below_zero_are_a_gap_at_their_look_up(tmp_path: Path, numbers: str) -> None:
    found = api.plan(WIDEN, looked_up(tmp_path, numbers)).certificate
    assert [g.op for g in found.gaps] == ["Gather"]
    assert "may be negative" in found.gaps[0].cause


@pytest.mark.parametrize("numbers", FROM_ZERO.values(), ids=FROM_ZERO)
def test_numbers_from_zero_on_stay_exact(tmp_path: Path, numbers: str) -> None:
    source = looked_up(tmp_path, numbers)
    judge(WIDEN, source, tmp_path / "o.onnx").assert_exact()


def test_the_gap_is_there_where_it_is_measured(tmp_path: Path) -> None:
    source = looked_up(tmp_path, BELOW["difference"])
    judge(WIDEN, source, tmp_path / "o.onnx").assert_gap("may be negative")


def test_the_gap_s_remedy_is_exact(tmp_path: Path) -> None:
    n = np.array(16)
    source = looked_up(tmp_path, "d = Sub(tokens, one) i = Mod(d, n)", n=n)
    judge(WIDEN, source, tmp_path / "o.onnx").assert_exact()


def test_the_plan_says_which_inputs_are_taken_to_be_not_negative(tmp_path: Path) -> None:
    notes = api.plan(WIDEN, looked_up(tmp_path, FROM_ZERO["a mask's running sum"])).notes
    assert notes == ("`mask` is taken to hold no negative numbers: they would count from an end that moves",)


def test_a_proven_bound_rests_on_no_input(tmp_path: Path) -> None:
    assert not api.plan(WIDEN, looked_up(tmp_path, FROM_ZERO["clamped"])).notes


def test_a_table_that_keeps_its_size_is_no_concern(tmp_path: Path) -> None:
    found = api.plan(
        'widen axis 0 of "table" to 16 with random fill', looked_up(tmp_path, BELOW["difference"])
    )
    assert found.certificate.exact


BUCKETS = """
m (int64[N, S] tokens) => (float[S, S, 6] y)
<float[32, 6] table, int64 zero = {0}, int64 one = {1}, int64 half = {8}, int64 most = {15},
 float base = {8.0}, float span = {2.7725887}, float eight = {8.0}, int64 side = {16}>
{ h = Shape(tokens)
  s = Gather(h, one)
  r = Range(zero, s, one)
  a = Unsqueeze(r, zero1)
  b = Unsqueeze(r, one1)
  d = Sub(a, b)
  p = Greater(d, zero)
  pi = Cast<to = 7>(p)
  sided = Mul(pi, side)
  away = Abs(d)
  near = Less(away, half)
  f = Cast<to = 1>(away)
  q = Div(f, base)
  l = Log(q)
  ls = Div(l, span)
  le = Mul(ls, eight)
  li = Cast<to = 7>(le)
  lh = Add(half, li)
  far = Min(lh, most)
  bucket = Where(near, away, far)
  i = Add(sided, bucket)
  y = Gather(table, i) }
"""


def test_buckets_of_relative_positions_are_not_negative(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", BUCKETS, zero1=np.array([0]), one1=np.array([1]))
    recipe = 'widen axis 0 of "table" to 40 with random fill'
    judge(recipe, source, tmp_path / "o.onnx").assert_exact()


MANY = """
m (int64[N, S] tokens) => (float[N, S, 6] y)
<float[16, 6] table, int64[600] numbers>
{ i = Gather(numbers, tokens)
  y = Gather(table, i) }
"""


@pytest.mark.parametrize("least", [0, -1])
def test_many_stored_numbers_are_read(tmp_path: Path, least: int) -> None:
    numbers = np.random.default_rng(0).integers(0, 16, 600)
    numbers[2] = least
    source = save(tmp_path / "m.onnx", MANY, numbers=numbers)
    recipe = 'widen axis 0 of "table" to 20 with random fill'
    judged = judge(recipe, source, tmp_path / "o.onnx")
    if least < 0:
        judged.assert_gap("may be negative")
    else:
        judged.assert_exact()


def ranged(path: Path, numbers: str) -> tuple[float, float]:
    """The bounds of `i`."""
    graph = api.compile(api.recipe(WIDEN), looked_up(path, numbers), analysis_only=True).graph
    [value] = {v: None for n in graph.nodes for v in n.inputs if isinstance(v, Value) and v.name == "i"}
    found = Ranges(RANGES).of(value)
    return found.low, found.high


@pytest.mark.parametrize(
    ("numbers", "low", "high"),
    [
        ("i = Clip(tokens, one, last)", 1, 15),
        ("d = Sub(zero, last) i = Clip(tokens, zero, d)", -15, -15),  # the upper bound comes last
        ("m = Clip(mask, zero, one) e = Mul(m, eight) i = Sub(e, two)", -2, 6),
        ("m = Clip(mask, zero, one) e = Sub(m, two) i = Mul(e, eight)", -16, -8),
        ("d = Sub(zero, last) i = Mod(tokens, d)", -15, 0),
        ("m = Clip(mask, zero, one) e = Sub(m, last) i = Div(e, two)", -7, -7),
        ("b = Less(tokens, eight) t = Min(tokens, eight) i = Where(b, t, eight)", 0, 8),
    ],
)
def test_numbers_stay_within_their_bounds(tmp_path: Path, numbers: str, low: int, high: int) -> None:
    assert ranged(tmp_path, numbers) == (low, high)
