"""Constants that number the units of an axis, where that shrinks, grows, or keeps some of its units."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import draw, judge, run
from models import stored

from growc import api
from growc.errors.diagnostic import GrowError

PERMUTED = """
m (float[N, 5] x) => (float[N, 6] y)
<float[5, 8] up, float[8, 6] down>
{ h = MatMul(x, up)
  p = Constant<value = int64[8] {3, 1, 0, 2, 7, 5, 6, 4}>()
  g = Gather<axis = 1>(h, p)
  r = Relu(g)
  y = MatMul(r, down) }
"""
SOME = """
m (int64[N] tokens) => (float[N, 6] y)
<float[16, 6] table>
{{ k = Constant<value = {numbers}>()
   {lookup}
   b = Gather(table, tokens)
   s = ReduceSum<keepdims = 0>(a, z)
   y = Add(b, s) }}
"""
GATHER = "a = Gather(table, k) z = Constant<value = int64[1] {0}>()"
VECTORS = "a = GatherND(table, k) z = Constant<value = int64[1] {0}>()"


def kept(path: Path, *units: int) -> str:
    """A recipe that keeps these rows."""
    (path / "kept.txt").write_text("\n".join(map(str, units)))
    return f'subclone vocab to {len(units)} by keep "{path / "kept.txt"}"'


def test_units_that_constants_number_cannot_go(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", PERMUTED)
    with pytest.raises(GrowError, match="`g` numbers them by constants") as found:
        api.plan('subclone axis 1 of "up" to 4 by first', source)
    assert found.value.diagnostics[0].code == "G313"


def test_a_permuted_axis_grows(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", PERMUTED)
    judge('widen axis 1 of "up" to 13 with uniform copy', source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize(
    ("numbers", "lookup"),
    [
        ("int64[3] {-1, 3, 9}", GATHER),
        ("int64[3] {2, -16, -9}", GATHER),
        ("int64[3, 1] {-1, 3, 9}", VECTORS),
        ("int32[3] {-1, 3, 9}", GATHER),
    ],
)
def test_constants_that_count_from_the_end_find_their_rows_in_a_longer_table(
    tmp_path: Path, numbers: str, lookup: str
) -> None:
    source = save(tmp_path / "m.onnx", SOME.format(numbers=numbers, lookup=lookup))
    judge("widen vocab to 21 with random fill", source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize("numbers", ["int64[3] {-1, 3, 9}", "int64[3] {9, 15, 3}", "int64[3] {3, -7, -1}"])
def test_constants_follow_the_rows_that_are_kept(tmp_path: Path, numbers: str) -> None:
    source = save(tmp_path / "m.onnx", SOME.format(numbers=numbers, lookup=GATHER))
    out = tmp_path / "o.onnx"
    api.apply(kept(tmp_path, 0, 1, 2, 3, 9, 12, 15), source, out, check=False)
    np.testing.assert_array_equal(stored(out)["table"], stored(source)["table"][[0, 1, 2, 3, 9, 12, 15]])
    feeds = draw(source, 3)  # numbers below 3 are what they were
    np.testing.assert_allclose(run(out, feeds)["y"], run(source, feeds)["y"], rtol=1e-5)


def test_constants_that_number_rows_that_go_are_refused(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", SOME.format(numbers="int64[3] {-1, 3, 9}", lookup=GATHER))
    with pytest.raises(GrowError, match="numbers them by constants"):
        api.plan(kept(tmp_path, 0, 1, 2, 3, 9, 12), source)


def test_numbers_that_stay_at_their_place_are_not_rewritten(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", SOME.format(numbers="int64[3] {1, 3, 0}", lookup=GATHER))
    api.apply("widen vocab to 21 with random fill", source, tmp_path / "o.onnx", check=False)
    before, after = (onnx.load(p).graph.node for p in (source, tmp_path / "o.onnx"))
    assert [(n.op_type, list(n.input)) for n in after] == [(n.op_type, list(n.input)) for n in before]


@pytest.mark.parametrize("fits", [True, False])
def test_many_stored_numbers_stay_within_what_is_kept(tmp_path: Path, fits: bool) -> None:
    numbers = np.random.default_rng(0).integers(0, 8, 600)
    numbers[7] = 7 if fits else 15
    graph = """
    m (int64[N] tokens) => (float[600, 6] y)
    <float[16, 6] table, int64[600] numbers>
    { y = Gather(table, numbers) }
    """
    source = save(tmp_path / "m.onnx", graph, numbers=numbers)
    recipe = 'subclone axis 0 of "table" to 8 by first'
    if fits:
        done = api.apply(recipe, source, tmp_path / "o.onnx", check=False)
        feeds = draw(source, 2)
        np.testing.assert_array_equal(run(done.written, feeds)["y"], run(source, feeds)["y"])
    else:
        with pytest.raises(GrowError, match="numbers them by constants"):
            api.plan(recipe, source)
