"""Operators on quantised tensors, of onnx and of onnxruntime: taken apart, grown, and whole again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import save
from judging import judge
from numpy.typing import NDArray
from onnx import numpy_helper

from growc import api

RANDOM = np.random.default_rng(1)

INTEGER = """
integer (float[N, 6] x) => (float[N, 3] y)
<float[8] bias>
{
    a, a_step, a_zero = DynamicQuantizeLinear(x)
    p = MatMulInteger(a, up, a_zero, up_zero)
    q = Cast <to = 1> (p)
    s = Mul(a_step, up_scale)
    r = Mul(q, s)
    t = Add(r, bias)
    u = Relu(t)
    b, b_step, b_zero = DynamicQuantizeLinear(u)
    v = MatMulInteger(b, down, b_zero, down_zero)
    w = Cast <to = 1> (v)
    z = Mul(b_step, down_scale)
    y = Mul(w, z)
}
"""

DYNAMIC = """
dynamic (float[N, 6] x) => (float[N, 3] y)
<float[8] bias>
{
    t = com.microsoft.DynamicQuantizeMatMul(x, up, up_scale, up_zero, bias)
    u = Relu(t)
    y = com.microsoft.DynamicQuantizeMatMul(u, down, down_scale, down_zero)
}
"""

STATIC = """
static (float[N, 6] x) => (float[N, 3] y)
{
    a = QuantizeLinear(x, step, middle)
    t = QLinearMatMul(a, step, middle, up, up_scale, up_zero, wide, middle)
    u = com.microsoft.QLinearSigmoid(t, wide, middle, step, middle)
    m = com.microsoft.QLinearMul(t, wide, middle, u, step, middle, wide, middle)
    v = QLinearMatMul(m, wide, middle, down, down_scale, down_zero, wide, middle)
    y = DequantizeLinear(v, wide, middle)
}
"""

CONVOLUTION = """
convolution (float[N, 6, 5, 5] x) => (float[N, 3, 1, 1] y)
{
    a = QuantizeLinear(x, step, middle)
    t = QLinearConv <pads = [1, 1, 1, 1]> (a, step, middle, up, up_scale, up_zero, wide, middle, bias)
    u = com.microsoft.QLinearGlobalAveragePool(t, wide, middle, wide, middle)
    v = QLinearConv(u, wide, middle, down, down_scale, down_zero, wide, middle)
    y = DequantizeLinear(v, wide, middle)
}
"""


def integers(*shape: int) -> NDArray[np.int8]:
    return RANDOM.integers(-60, 60, shape).astype(np.int8)


def matrices(per_channel: bool, kernels: bool = False) -> dict[str, object]:
    """Two quantised matrices (or stacks of kernels), and the scales of activations."""
    made: dict[str, object] = {"step": np.float32(0.03), "wide": np.float32(0.2), "middle": np.uint8(117)}
    for name, into, out in (("up", 6, 8), ("down", 8, 3)):
        size = 3 if name == "up" else 1
        count = (out,) if per_channel else ()
        made[name] = integers(out, into, size, size) if kernels else integers(into, out)
        made[f"{name}_scale"] = RANDOM.uniform(0.005, 0.02, count).astype(np.float32)
        made[f"{name}_zero"] = np.zeros(count, np.int8) if kernels else integers(*count)
    return made


def microsoft(path: Path) -> Path:
    """Let a model use onnxruntime's own operators."""
    model = onnx.load(path)
    model.opset_import.add(domain="com.microsoft", version=1)
    onnx.save(model, path)
    return path


def operators(path: Path) -> list[str]:
    return [n.op_type for n in onnx.load(path).graph.node]


@pytest.mark.parametrize("per_channel", [False, True])
@pytest.mark.parametrize("graph", [INTEGER, DYNAMIC, STATIC, CONVOLUTION])
def test_integer_operators_grow_bit_by_bit(tmp_path: Path, graph: str, per_channel: bool) -> None:
    kernels = graph == CONVOLUTION
    weights = matrices(per_channel, kernels)
    if kernels:
        weights["bias"] = RANDOM.integers(-500, 500, 8).astype(np.int32)
    source = microsoft(save(tmp_path / "model.onnx", graph, opset=17, **weights))
    axis = 0 if kernels else 1
    text = f'widen axis {axis} of "up" to 13 with uniform copy split random\nexpect exact'
    done = api.apply(text, source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6
    assert operators(tmp_path / "grown.onnx") == operators(source)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("zeros", [True, False])
def test_weights_of_a_few_bits_in_blocks(tmp_path: Path, bits: int, zeros: bool) -> None:
    graph = """
    bits (int64[N] ids) => (float[N, 7] y) <float[64] bias>
    {
        x = com.microsoft.GatherBlockQuantized <block_size = 32, bits = BITS>
            (table, ids, table_scale OF_TABLE)
        a = com.microsoft.MatMulNBits <K = 64, N = 64, bits = BITS, block_size = 32>
            (x, up, up_scale OF_UP)
        b = Add(a, bias)
        c = Relu(b)
        y = com.microsoft.MatMulNBits <K = 64, N = 7, bits = BITS, block_size = 32>
            (c, down, down_scale OF_DOWN)
    }"""
    made: dict[str, object] = {}
    for name, rows in (("table", 20), ("up", 64), ("down", 7)):
        each = 32 * bits // 8
        shape = (rows, 2 * each) if name == "table" else (rows, 2, each)
        made[name] = RANDOM.integers(0, 256, shape, dtype=np.uint8)
        made[f"{name}_scale"] = RANDOM.uniform(0.01, 0.05, (rows, 2)).astype(np.float32)
        if zeros:
            made[f"{name}_zero"] = RANDOM.integers(0, 256, (rows, 2 * bits // 8), dtype=np.uint8)
        graph = graph.replace(f"OF_{name.upper()}", f", {name}_zero" if zeros else "")
    source = microsoft(save(tmp_path / "model.onnx", graph.replace("BITS", str(bits)), opset=17, **made))
    text = 'widen axis 0 of "up" to 128 with tail copy\nexpect exact'
    done = api.apply(text, source, tmp_path / "grown.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6
    after = {t.name: numpy_helper.to_array(t) for t in onnx.load(tmp_path / "grown.onnx").graph.initializer}
    assert done.plan.bytes_to_write == sum(tensor.nbytes for tensor in after.values())
    assert after["up"].shape[:2] == (128, 2)
    assert after["down"].shape[:2] == (7, 4)
    assert after["down_scale"].shape == (7, 4)
    assert operators(tmp_path / "grown.onnx") == operators(source)
    both = api.apply(
        'widen axis 1 of "table" to 128 with cyclic copy\nexpect exact', source, tmp_path / "wide.onnx"
    )
    assert both.verification is not None
    assert both.verification.relative < 1e-5


@pytest.mark.parametrize(("form", "held"), [("SCALED", True), ("BARE", False)])
def test_integers_hold_other_multiples_where_they_have_scales(tmp_path: Path, form: str, held: bool) -> None:
    """Queries and keys that grow are divided by a root; scales take that, integers alone do not."""
    graph = """
    scores (float[B, S, 6] x) => (float[B, S, S] y) <float[6, 6] keys>
    {
        a, step, shift = DynamicQuantizeLinear(x)
        QUERIES
        k = MatMul(x, keys)
        t = Transpose <perm = [0, 2, 1]> (k)
        y = MatMul(q, t)
    }"""
    forms = {
        "SCALED": "w = DequantizeLinear(up, up_scale)\n        q = MatMul(x, w)",
        "BARE": "p = MatMulInteger(a, up, shift)\n        q = Cast <to = 1> (p)",
    }
    made = {"up": integers(6, 6), "up_scale": np.float32(0.01)}
    source = save(tmp_path / "model.onnx", graph.replace("QUERIES", forms[form]), **made)
    judged = judge('widen axis 1 of "keys" to 12 with cyclic copy', source, tmp_path / "wide.onnx")
    if held:
        judged.assert_exact()
    else:
        judged.assert_gap("shares are rounded to the steps")


@pytest.mark.parametrize(("between", "exact"), [("Relu(b)", True), ("Identity(b)", True), ("NORM", False)])
def test_means_are_rounded_to_steps_where_nobody_reads_them(
    tmp_path: Path, between: str, exact: bool
) -> None:
    norm = "LayerNormalization <axis = -1> (b, gain, bias)"
    graph = """
    means (float[B, 6] x) => (float[B, 3] y) <float[8] bias, float[8] gain, float[8, 3] columns>
    {
        w = DequantizeLinear(up, up_scale)
        a = MatMul(x, w)
        b = Add(a, bias)
        h = BETWEEN
        y = MatMul(h, columns)
    }"""
    made = {"up": integers(6, 8), "up_scale": np.float32(0.01)}
    graph = graph.replace("BETWEEN", norm if between == "NORM" else between)
    source = save(tmp_path / "model.onnx", graph, **made)
    judged = judge('widen axis 1 of "up" to 11 with average fill', source, tmp_path / "wide.onnx")
    if exact:
        judged.assert_exact()
    else:
        judged.assert_gap("means are rounded to the steps")
