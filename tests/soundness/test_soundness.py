"""Small graphs on which a compiler that matches sizes, or trusts shapes alone, would be silently wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from streams import INNER, VOCAB, WIDTH, Builder, stream

from growc.api import apply, plan
from growc.errors.diagnostic import GrowError

HALF = WIDTH // 2


def slice_halves(b: Builder, x: str) -> str:
    """The halves of the stream change places: bounds that would still fit after growth must move."""
    bounds = [b.constant(f"bound{k}", np.array([k], dtype=np.int64)) for k in (0, HALF, WIDTH)]
    axis = b.constant("axis", np.array([2], dtype=np.int64))
    low = b.node("Slice", [x, bounds[0], bounds[1], axis])
    high = b.node("Slice", [x, bounds[1], bounds[2], axis])
    return b.node("Concat", [high, low], axis=-1)


def ramp(b: Builder, x: str) -> str:
    """Adds 0, 1, 2, … computed from the run-time width: grows by itself, with other values."""
    width = b.node("Gather", [b.node("Shape", [x]), b.constant("two", np.array(2, dtype=np.int64))])
    zero, one = (b.constant(n, np.array(k, dtype=np.int64)) for n, k in (("zero", 0), ("one", 1)))
    return b.node("Add", [x, b.node("Cast", [b.node("Range", [zero, width, one])], to=1)])


def divided_by_width(b: Builder, x: str) -> str:
    """Divides by the square root of the run-time width: the source's number must stay."""
    width = b.node("Gather", [b.node("Shape", [x]), b.constant("two", np.array(2, dtype=np.int64))])
    return b.node("Div", [x, b.node("Sqrt", [b.node("Cast", [width], to=1)])])


def last_unit(b: Builder, x: str) -> str:
    """Adds the last unit of the stream, addressed by a number, to all of them."""
    last = b.node("Gather", [x, b.constant("last", np.array([WIDTH - 1], dtype=np.int64))], axis=2)
    return b.node("Add", [x, last])


def total(b: Builder, x: str) -> str:
    """Adds the sum over the stream: copies would be counted twice."""
    axes = b.constant("axes", np.array([2], dtype=np.int64))
    return b.node("Add", [x, b.node("ReduceSum", [x, axes], keepdims=1)])


def average(b: Builder, x: str) -> str:
    """Adds the mean over the stream: kept where all units are copied equally often."""
    return b.node("Add", [x, b.node("ReduceMean", [x], axes=[2], keepdims=1)])


def outer_product(b: Builder, x: str) -> str:
    """The stream contracted with itself: two activations."""
    square = b.node("MatMul", [x, b.node("Transpose", [x], perm=[0, 2, 1])])
    return b.node("Add", [x, b.node("ReduceMean", [square], axes=[2], keepdims=1)])


def shifted(b: Builder, x: str) -> str:
    """Adds one number to every unit: zero units do not stay zero."""
    return b.node("Add", [x, b.constant("shift", np.array(0.7, dtype=np.float32))])


MIDDLES = [slice_halves, ramp, divided_by_width, last_unit, total, average, outer_product, shifted]
RECIPES = [
    f"widen hidden to {2 * WIDTH} with cyclic copy",
    f"widen hidden to {2 * WIDTH} with neighbor copy",
    f"widen hidden to {WIDTH + 4} with average fill",
    f"widen hidden to {WIDTH + 4} with zero fill",
    f"widen hidden to {WIDTH + 3} with uniform copy",
    f"widen ffn to {INNER + 5} with zero fill",
    f"widen ffn to {INNER + 5} with random fill with zero outputs",
]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("middle", MIDDLES, ids=lambda m: m.__name__)
def test_exact_is_never_claimed_falsely(
    tmp_path: Path, middle: Callable[[Builder, str], str], recipe: str
) -> None:
    """`apply` would raise G402; a refusal or a gap is an answer."""
    model = stream(tmp_path / "model.onnx", middle)
    try:
        done = apply(recipe, model, tmp_path / "grown.onnx")
    except GrowError as refusal:
        assert {d.code for d in refusal.diagnostics} <= {"G304", "G305", "G308"}  # noqa: PT017 - one answer
        return
    assert done.verification is not None
    equal = done.verification.relative < 1e-5
    assert equal or not done.plan.certificate.exact


@pytest.mark.parametrize("middle", [slice_halves, divided_by_width, average], ids=lambda m: m.__name__)
def test_operators_that_survive_doubling_are_claimed_exact(
    tmp_path: Path, middle: Callable[[Builder, str], str]
) -> None:
    model = stream(tmp_path / "model.onnx", middle)
    done = apply(f"widen hidden to {2 * WIDTH} with cyclic copy", model, tmp_path / "grown.onnx")
    assert done.plan.certificate.exact


@pytest.mark.parametrize("middle", [total, outer_product], ids=lambda m: m.__name__)
def test_operators_that_do_not_survive_copies_are_gaps_that_name_the_node(
    tmp_path: Path, middle: Callable[[Builder, str], str]
) -> None:
    model = stream(tmp_path / "model.onnx", middle)
    found = plan(f"widen hidden to {2 * WIDTH} with cyclic copy", model)
    assert not found.certificate.exact
    assert all(g.node for g in found.certificate.gaps)


def test_sizes_that_coincide_are_not_confused(tmp_path: Path) -> None:
    """The inner width equals the vocabulary; growing one leaves the other."""
    b = Builder()
    x = b.node("Gather", [b.weight("embedding", INNER, WIDTH), "ids"])
    x = b.block(x, "first")
    model = b.save(tmp_path / "model.onnx", b.node("MatMul", [x, b.weight("head", WIDTH, INNER)]), INNER)
    found = plan(f"widen ffn to {2 * INNER} with uniform copy", model)
    assert [w.name for w in found.weights if w.changed] == ["first.up", "first.down"]
    assert VOCAB != INNER
