"""Decisions by sizes that a recipe changes: nothing is claimed of what compares or bounds them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import judge

from growc.errors.diagnostic import GrowError

NET = """
net (float[B, S, 3] x) => (float[B, S, 4] y)
<float[3, 8] up, float[8, 4] down, int64[1] last, int64 width, int64 limit, int64 few, int64 zero,
 int64 one>
{
    a = MatMul(x, up)
    t = Tanh(a)
    n = Neg(a)
    shape = Shape(a)
    own = Gather <axis = 0> (shape, width)
    some = Gather <axis = 0> (shape, zero)
    long = Gather <axis = 0> (shape, one)
    all = Size(a)
    DECISION
    y = MatMul(o, down)
}
"""
BY_CONDITION = "o = Where(c, t, n)"
BY_BRANCH = (
    "o = If (c) <then_branch = one () => (p) { p = Identity(t) }, else_branch = two () => (q) { q = Neg(a) }>"
)
CHANGED = {
    "a product of sizes against a number": f"c = Greater(all, limit) {BY_CONDITION}",
    "a number against a product of sizes": f"c = LessOrEqual(limit, all) {BY_CONDITION}",
    "equality": f"c = Equal(all, limit) {BY_CONDITION}",
    "the larger of both": f"m = Max(all, limit) c = Equal(m, limit) {BY_CONDITION}",
    "what is not larger": f"g = Greater(all, limit) c = Not(g) {BY_CONDITION}",
    "a bounded number": f"l = Clip(all, limit) c = Equal(l, limit) {BY_CONDITION}",
    "real numbers": f"r = Cast <to = 1> (all) s = Cast <to = 1> (limit) c = Less(r, s) {BY_CONDITION}",
    "the width itself": f"c = Less(own, few) {BY_CONDITION}",
    "a branch by a product": f"c = Greater(all, limit) {BY_BRANCH}",
    "steps as wide as the width": "e = Mul(long, own) r = Range(zero, e, own) u = Unsqueeze(r, last) "
    f"c = Less(u, limit) {BY_CONDITION}",
    "steps as wide as the width, by one of them": "e = Mul(long, own) r = Range(zero, e, own) "
    f"u = Unsqueeze(r, last) c = Less(u, few) {BY_CONDITION}",
    "a branch by the width": f"c = Less(own, few) {BY_BRANCH}",
}
KEPT = {
    "a size that stays": f"c = Greater(some, zero) {BY_CONDITION}",
    "as many numbers as there are places": "r = Range(zero, long, one) u = Unsqueeze(r, last) "
    f"c = Less(u, few) {BY_CONDITION}",
    "places against places": "r = Range(zero, long, one) u = Unsqueeze(r, last) c = LessOrEqual(r, u) "
    "f = Cast <to = 1> (c) o = MatMul(f, t)",
    "a branch by a size that stays": f"c = Greater(some, few) {BY_BRANCH}",
    "a shape without unknown entries": "m = Equal(shape, zero) e = Where(m, shape, shape) o = Reshape(t, e)",
    "a product of sizes as a shape": "m = Max(all, zero) u = Unsqueeze(m, last) f = Flatten(t) "
    "i = Reshape(f, u) o = Reshape(i, shape)",
}
NUMBERS = {"width": 2, "limit": 100_000, "few": 10, "zero": 0, "one": 1}


def net(folder: Path, decision: str) -> Path:
    numbers = {name: np.int64(n) for name, n in NUMBERS.items()}
    return save(folder / "net.onnx", NET.replace("DECISION", decision), last=np.array([-1]), **numbers)


@pytest.mark.parametrize("name", CHANGED)
def test_decisions_by_a_size_that_changes_are_refused(tmp_path: Path, name: str) -> None:
    model = net(tmp_path, CHANGED[name])
    with pytest.raises(GrowError) as refused:
        judge('widen axis 1 of "up" to 16 with cyclic copy', model, tmp_path / "grown.onnx")
    assert refused.value.diagnostics[0].code == "G308"
    assert "computed from sizes that change" in refused.value.diagnostics[0].notes[0]


@pytest.mark.parametrize("name", KEPT)
def test_decisions_by_other_sizes_are_exact(tmp_path: Path, name: str) -> None:
    model = net(tmp_path, KEPT[name])
    judge('widen axis 1 of "up" to 16 with cyclic copy', model, tmp_path / "grown.onnx").assert_exact()
