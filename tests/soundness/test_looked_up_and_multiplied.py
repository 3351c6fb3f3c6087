"""One matrix whose rows are looked up by number and contracted: its first rows must stay what they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from graphs import save
from judging import judge

BOTH = """
m (int64[N] tokens, float[N, 5] x) => (float[N, 6] y)
<float[5, 16] up, float[16, 6] wte>
{{ {lookup}
   h = MatMul(x, up)
   p = Relu(h)
   b = MatMul(p, wte)
   y = Add(a, b) }}
"""
LOOKUPS = {
    "Gather": "a = Gather(wte, tokens)",
    "GatherND": "one = Constant<value = int64[1] {-1}>() t = Unsqueeze(tokens, one) a = GatherND(wte, t)",
    "Slice": """n = Shape(tokens) z = Constant<value = int64[1] {0}>() a = Slice(wte, z, n, z)""",
    "constants": """k = Constant<value = int64[2] {5, 3}>() r = Gather(wte, k)
        z = Constant<value = int64[1] {0}>() a = ReduceSum<keepdims = 0>(r, z)""",
}
AFTER = """
m (int64[N] tokens, float[N, 5] x) => (float[N, 6] y)
<float[5, 16] up, float[16, 6] wte, int64 zero = {0}, int64 five = {5}>
{ h = MatMul(x, up)
  p = Relu(h)
  b = MatMul(p, wte)
  l = ReduceMax<axes = [1], keepdims = 0>(b)
  w = Cast<to = 7>(l)
  i = Clip(w, zero, five)
  a = Gather(wte, i)
  y = Add(a, b) }
"""
COPIES = ("uniform", "cyclic", "tail", "last", "neighbor")


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
@pytest.mark.parametrize("fill", [*(f"{c} copy" for c in COPIES), "average fill", "random fill"])
def test_shares_of_copies_are_a_gap(tmp_path: Path, lookup: str, fill: str) -> None:
    source = save(tmp_path / "m.onnx", BOTH.format(lookup=lookup))
    judge(f'widen axis 0 of "wte" to 37 with {fill}', source, tmp_path / "o.onnx").assert_gap("untie head")


@pytest.mark.parametrize("lookup", LOOKUPS.values(), ids=LOOKUPS)
def test_zeros_are_exact(tmp_path: Path, lookup: str) -> None:
    source = save(tmp_path / "m.onnx", BOTH.format(lookup=lookup))
    judge('widen axis 0 of "wte" to 37 with zero fill', source, tmp_path / "o.onnx").assert_exact()


@pytest.mark.parametrize("fill", ["uniform copy", "cyclic copy", "average fill"])
def test_a_look_up_behind_the_contraction_finds_its_rows(tmp_path: Path, fill: str) -> None:
    source = save(tmp_path / "m.onnx", AFTER)
    judged = judge(f'widen axis 0 of "wte" to 37 with {fill}', source, tmp_path / "o.onnx")
    judged.assert_gap("by their numbers", "untie head")


def test_the_gap_s_remedy_is_exact(tmp_path: Path) -> None:
    source = save(tmp_path / "m.onnx", BOTH.format(lookup=LOOKUPS["Gather"]))
    recipe = "untie head\nwiden vocab to 37 with uniform copy"
    judge(recipe, source, tmp_path / "o.onnx").assert_exact()
