"""Weights that a graph makes from stored tensors by norms over them (weight norm)."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge

from growc import api

NORMED = """
normed (float[B, S, 8] x) => (float[B, S, 5] y)
<float[8, 8] inward, float[8, 8] direction, float[8, 1] size, float[8, 16] up, float[16, 8] down,
 float[8] gain, float[8] bias, float[8, 5] out>
{
    stream = MatMul(x, inward)
    square = Mul(direction, direction)
    axes = Constant <value_ints = [1]> ()
    total = ReduceSum <keepdims = 1> (square, axes)
    length = Sqrt(total)
    unit = Div(direction, length)
    weight = Mul(size, unit)
    turned = Transpose <perm = [1, 0]> (weight)
    normed = LayerNormalization <axis = -1> (stream, gain, bias)
    mixed = MatMul(normed, turned)
    sum = Add(stream, mixed)
    inner = MatMul(sum, up)
    act = Relu(inner)
    back = MatMul(act, down)
    last = Add(sum, back)
    y = MatMul(last, out)
}
"""


@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 16 with cyclic copy",
        "widen hidden to 16 with cyclic copy split random noise 0.1 balanced",
        "widen hidden to 11 with average fill",
    ],
)
def test_a_normed_weight_grows_as_what_it_is(tmp_path, recipe):
    source = save(tmp_path / "normed.onnx", NORMED)
    judged = judge(recipe, source, tmp_path / "grown.onnx")
    judged.assert_exact()
    kinds = [n.op_type for n in onnx.load(judged.path).graph.node]
    assert "ReduceSum" not in kinds
    assert len(kinds) == 10


def test_a_warning_says_that_a_computed_weight_becomes_stored(tmp_path):
    source = save(tmp_path / "normed.onnx", NORMED)
    [warning] = [w for w in api.plan("widen hidden to 11 with average fill", source).warnings if "norm" in w]
    assert "becomes a stored tensor itself" in warning


def test_an_unchanged_weight_is_computed_as_before(tmp_path):
    source = save(tmp_path / "normed.onnx", NORMED)
    done = api.apply("widen ffn to 24 with uniform copy", source, tmp_path / "grown.onnx")
    before, after = (onnx.load(path).graph for path in (source, done.written))
    spelt = [[(n.op_type, list(n.input), list(n.output)) for n in graph.node] for graph in (before, after)]
    assert spelt[0] == spelt[1]
    assert [t.name for t in after.initializer] == [t.name for t in before.initializer]
    assert not any("norm" in w for w in done.plan.warnings)


def test_sixteen_bit_weights_are_computed_in_thirty_two_and_rounded_once(tmp_path):
    halves = {
        name: np.random.default_rng(k).standard_normal(shape).astype(np.float16)
        for k, (name, shape) in enumerate({"direction": (8, 8), "size": (8, 1)}.items())
    }
    text = NORMED.replace("float[", "float16[")
    shapes = {"inward": (8, 8), "up": (8, 16), "down": (16, 8), "gain": (8,), "bias": (8,), "out": (8, 5)}
    others = {n: np.full(s, 0.25, dtype=np.float16) for n, s in shapes.items()}
    source = save(tmp_path / "normed.onnx", text, **halves, **others)
    done = api.apply("widen hidden to 16 with cyclic copy", source, tmp_path / "grown.onnx", check=False)
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(done.written).graph.initializer}
    [name] = [n for n in stored if n not in halves and n not in others]
    v, g = (halves[n].astype(np.float32) for n in ("direction", "size"))
    wanted = (g * (v / np.sqrt((v * v).sum(1, keepdims=True)))).astype(np.float16)
    np.testing.assert_array_equal(stored[name][:8, :8], (wanted / 2).astype(np.float16))


def test_a_product_with_an_input_is_no_weight_and_is_computed_as_before(tmp_path):
    text = NORMED.replace("(float[B, S, 8] x)", "(float[B, S, 8] x, float[1] z)")
    text = text.replace("direction, direction", "scaled, scaled").replace("Div(direction", "Div(scaled")
    text = text.replace("    square =", "    scaled = Mul(direction, z)\n    square =")
    source = save(tmp_path / "normed.onnx", text)
    judged = judge("widen hidden to 16 with cyclic copy split random", source, tmp_path / "grown.onnx")
    judged.assert_exact()
    assert len(onnx.load(judged.path).graph.node) == len(onnx.load(source).graph.node)
