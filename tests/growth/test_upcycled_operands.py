"""Experts of networks whose operands are made of several stored tensors, or are no real numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from graphs import STREAM, save

import growc
from growc.errors.diagnostic import GrowError

WHOLE = "upcycle ffn to experts 4 top 2 with cyclic copy"
HALVES = "upcycle ffn to experts 6 top 4 with cyclic copy in 2 parts"
THIRDS = "upcycle ffn to experts 6 top 3 with cyclic copy in 3 parts"


def maker(weights: str, made: str) -> str:
    """The stream with another matrix that makes the units."""
    text = STREAM.replace("float[8, 12] up_weight", weights)
    return text.replace("u = MatMul(n1, up_weight)", f"up_weight = {made}\n u = MatMul(n1, up_weight)")


def reader(weights: str, made: str) -> str:
    """The stream with another matrix that reads the units."""
    text = STREAM.replace("float[12, 8] down_weight", weights)
    return text.replace(
        "d = MatMul(act, down_weight)", f"down_weight = {made}\n d = MatMul(act, down_weight)"
    )


def units(weights: str, *lines: str) -> str:
    """The stream with operators on each unit, of `ub` to `act`."""
    text = STREAM.replace("float[12] up_bias", f"float[12] up_bias, {weights}")
    return text.replace("act = Relu(ub)", "\n".join(["r = Relu(ub)", *lines]))


NETWORKS = {
    "joined maker": maker("float[4, 12] a, float[4, 12] b", "Concat <axis = 0> (a, b)"),
    "scaled maker": maker("float[8, 12] a, float[12] s", "Mul(a, s)"),
    "sum of makers": maker("float[8, 12] a, float[8, 12] b", "Add(a, b)"),
    "joined reader": reader("float[12, 4] a, float[12, 4] b", "Concat <axis = -1> (a, b)"),
    "scaled reader": reader("float[12, 8] a, float[12, 1] s", "Mul(a, s)"),
    "divided reader": reader("float[12, 8] a, float[8] s", "Div(a, s)"),
    "sum of readers": reader("float[12, 8] a, float[12, 8] b", "Sub(a, b)"),
    "mask": units("bool[12] mask, float zero", "act = Where(mask, r, zero)"),
    "integers": units("int64[12] whole", "real = Cast <to = 1> (whole)", "act = Mul(r, real)"),
}
PRODUCTS = {
    "maker": maker("float[8, 2] a, float[2, 12] b", "MatMul(a, b)"),
    "reader": reader("float[12, 2] a, float[2, 8] b", "MatMul(a, b)"),
}
VALUES = {
    "mask": np.arange(12) % 5 < 2,
    "whole": np.arange(12)[::-1] + 1,
    "zero": np.float32(0),
}


def network(path: Path, text: str) -> Path:
    """A model with random norms."""
    random = np.random.default_rng(3)
    vectors = {f"norm{k}_{x}": random.normal(1, 0.5, 8) for k in (1, 2) for x in ("weight", "bias")}
    own = {name: value for name, value in VALUES.items() if f" {name}" in text}
    return save(path, text, **{name: v.astype(np.float32) for name, v in vectors.items()}, **own)


def assert_exact(recipe: str, source: Path, target: Path) -> None:
    """The result is said to compute the same, and does so."""
    done = growc.apply(recipe, source, target, check=False)
    assert done.plan.certificate.exact
    runs = [onnxruntime.InferenceSession(path) for path in (source, done.written)]
    before, after = (run.run(None, {"tokens": np.arange(16)})[0] for run in runs)
    np.testing.assert_allclose(after, before, atol=1e-5 * np.abs(before).max())


@pytest.mark.parametrize("recipe", [WHOLE, HALVES, THIRDS], ids=["whole", "halves", "thirds"])
@pytest.mark.parametrize("text", NETWORKS.values(), ids=NETWORKS)
def test_each_expert_has_its_part_of_every_operand(tmp_path: Path, text: str, recipe: str) -> None:
    assert_exact(recipe, network(tmp_path / "model.onnx", text), tmp_path / "out.onnx")


@pytest.mark.parametrize("text", PRODUCTS.values(), ids=PRODUCTS)
def test_experts_have_products_of_weights_as_a_whole(tmp_path: Path, text: str) -> None:
    source = network(tmp_path / "model.onnx", text)
    assert_exact(WHOLE, source, tmp_path / "out.onnx")
    with pytest.raises(GrowError, match="ffn"):
        growc.plan(HALVES, source)


@pytest.mark.parametrize("name", ["joined maker", "scaled reader", "mask", "integers"])
def test_experts_share_no_operand_of_their_units(tmp_path: Path, name: str) -> None:
    source = network(tmp_path / "model.onnx", NETWORKS[name])
    done = growc.apply(WHOLE, source, tmp_path / "out.onnx", check=False)
    before = {w.name: tuple(w.dims) for w in onnx.load(source).graph.initializer}
    after = {w.name: tuple(w.dims) for w in onnx.load(done.written).graph.initializer}
    own = {name for name in before if name in after and after[name] != before[name]}
    assert {"a", "b", "s", "mask", "whole", "up_bias"} & set(before) <= own
    assert all(after[name][0] == 4 for name in own)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (maker("float[16, 12] a", "Slice(a, first, last)"), "`a` is moved on its way"),
        (
            reader("float[12, 8] a, float one", "Add(a, one)"),
            "no stored tensor scales the matrix that reads its units",
        ),
    ],
    ids=["slice", "added number"],
)
def test_operands_that_cannot_be_parts_are_refused(tmp_path: Path, text: str, words: str) -> None:
    text = text.replace("<float[16, 8] table", "<int64[1] first, int64[1] last, float[16, 8] table")
    source = save(tmp_path / "model.onnx", text, first=np.array([2]), last=np.array([10]))
    with pytest.raises(GrowError, match="cannot become experts") as refused:
        growc.plan(HALVES, source)
    assert words in str(refused.value)
