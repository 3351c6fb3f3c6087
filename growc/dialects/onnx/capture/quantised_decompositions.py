"""Decompositions of operators on quantised tensors: real numbers in the middle, rounding around them.

See growc.dialects.onnx.capture.fused_decompositions. `growc::Shift` subtracts a zero point. `growc::Unpacked`
returns the real numbers of integers that share bytes. `growc::Rounded` rounds to steps that the extremes of
its operand decide. `growc::Largest` and `growc::Least` are these extremes, of the operand's numbers and zero.
"""

from __future__ import annotations

from collections.abc import Callable

import onnx_ir as ir

from growc.dialects.onnx.capture.fused_ops import MICROSOFT, Lowering, PlainValues, Rules
from growc.dialects.onnx.operators.table import has
from growc.ir.traits import QUANTISE, WHOLE

_ROUNDING = ("DynamicQuantize", "QLinear", "QGemm")
"""Prefixes of the names of operators that quantise their results."""


def rounds(node: ir.Node) -> bool:
    """Whether an operator rounds its results to whole numbers."""
    return has(node, WHOLE, QUANTISE) or node.op_type.startswith(_ROUNDING)


def _real(at: Lowering, first: int, axis: int = 1) -> ir.Value:
    """Return the real numbers of an integer operand, whose scale and zero point stand next to it."""
    return at.add("DequantizeLinear", *(at.input(first + k) for k in range(3)), axis=axis)


def _rounded(at: Lowering, value: ir.Value, first: int) -> ir.Value:
    return at.add("QuantizeLinear", value, at.input(first), at.input(first + 1))


def _dynamic(at: Lowering, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """Return the integers, step and zero point of a tensor that is quantised by its own extremes."""
    top, bottom = (at.add(op, x, keepdims=0) for op in ("growc::Largest", "growc::Least"))
    return (
        at.add("growc::Rounded", x, top, bottom),
        at.add("growc::Step", top, bottom),
        at.add("growc::Zero", top, bottom),
    )


def _bias(at: Lowering, place: int) -> ir.Value | None:
    """Return an integer bias as real numbers. Its scale is the product of both factors' scales."""
    bias = at.input(place)
    return None if bias is None else at.add("growc::Shift", bias)


def dynamic_quantize_linear(at: Lowering) -> PlainValues:
    """Quantisation by the extremes of the whole tensor."""
    return _dynamic(at, at.operand(0))


def matmul_integer(at: Lowering) -> PlainValues:
    """A product of integers minus their zero points."""
    a, b = (at.add("growc::Shift", at.operand(i), at.input(i + 2)) for i in range(2))
    return (at.add("MatMul", a, b),)


def matmul_integer_to_float(at: Lowering) -> PlainValues:
    """A product of integers with scales, as real numbers, plus a bias."""
    a, b = (at.add("DequantizeLinear", *(at.input(i + k) for k in (0, 2, 4)), axis=1) for i in range(2))
    return (at.total(at.add("MatMul", a, b), at.input(6)),)


def dynamic_quantize_matmul(at: Lowering) -> PlainValues:
    """A product of an activation, quantised on the way, with a quantised weight."""
    whole, step, zero = _dynamic(at, at.operand(0))
    real = at.add("Mul", at.add("growc::Shift", whole, zero), step)
    weight = at.add("DequantizeLinear", *(at.input(i) for i in (1, 2, 3)), axis=1)
    return (at.total(at.add("MatMul", real, weight), at.input(4)),)


def qlinear_matmul(at: Lowering) -> PlainValues:
    """A matrix product, quantised."""
    return (_rounded(at, at.add("MatMul", _real(at, 0), _real(at, 3)), 6),)


def qlinear_conv(at: Lowering) -> PlainValues:
    """A convolution, quantised."""
    bias = _bias(at, 8)
    convolved = at.add("Conv", _real(at, 0), _real(at, 3, axis=0), bias, **at.attributes)
    return (_rounded(at, at.carry(convolved, group="group"), 6),)


def qlinear_pair(op: str) -> Callable[[Lowering], PlainValues]:
    """An elementwise operator on two tensors, quantised."""
    return lambda at: (_rounded(at, at.add(op, _real(at, 0), _real(at, 3)), 6),)


def qlinear_function(op: str) -> Callable[[Lowering], PlainValues]:
    """A function of one tensor, quantised."""
    return lambda at: (_rounded(at, at.add(op, _real(at, 0), **at.attributes), 3),)


def qlinear_pool(at: Lowering) -> PlainValues:
    """The mean of each channel, quantised."""
    if at.attributes.get("channels_last", 0):
        return None
    return (_rounded(at, at.add("GlobalAveragePool", _real(at, 0)), 3),)


def qgemm(at: Lowering) -> PlainValues:
    """A matrix product with a bias, quantised if there is a scale for the result."""
    bias = _bias(at, 6)
    weight = _real(at, 3, axis=0 if at.attributes.get("transB") else 1)
    product = at.add("Gemm", _real(at, 0), weight, bias, **at.attributes)
    return (product if at.input(7) is None else _rounded(at, product, 7),)


def matmul_nbits(at: Lowering) -> PlainValues:
    """A product with a weight (N, K) of a few bits, with one scale for each block of K."""
    if at.input(4) is not None:  # `g_idx` orders the channels
        return None
    own = {name: at.attributes.get(name) for name in ("K", "N", "bits", "block_size")}
    weight = at.add("growc::Unpacked", at.operand(1), at.operand(2), at.input(3), **own)
    at.carry(weight, K="K", N="N")
    turned = at.add("Transpose", weight, perm=[1, 0])
    return (at.total(at.add("MatMul", at.operand(0), turned), at.input(5)),)


def gather_block_quantized(at: Lowering) -> PlainValues:
    """Rows of a table of a few bits."""
    if at.attributes.get("gather_axis", 0) != 0 or at.attributes.get("quantize_axis", 1) not in (1, -1):
        return None
    own = {"bits": at.attributes.get("bits", 4), "block_size": at.attributes.get("block_size", 128)}
    table = at.add("growc::Unpacked", at.operand(0), at.operand(2), at.input(3), **own)
    return (at.add("Gather", table, at.operand(1)),)


QUANTISED: Rules = {
    ("", "DynamicQuantizeLinear"): dynamic_quantize_linear,
    ("", "MatMulInteger"): matmul_integer,
    ("", "QLinearMatMul"): qlinear_matmul,
    ("", "QLinearConv"): qlinear_conv,
    (MICROSOFT, "QLinearAdd"): qlinear_pair("Add"),
    (MICROSOFT, "QLinearMul"): qlinear_pair("Mul"),
    (MICROSOFT, "QLinearSigmoid"): qlinear_function("Sigmoid"),
    (MICROSOFT, "QLinearLeakyRelu"): qlinear_function("LeakyRelu"),
    (MICROSOFT, "QLinearGlobalAveragePool"): qlinear_pool,
    (MICROSOFT, "QGemm"): qgemm,
    (MICROSOFT, "MatMulIntegerToFloat"): matmul_integer_to_float,
    (MICROSOFT, "DynamicQuantizeMatMul"): dynamic_quantize_matmul,
    (MICROSOFT, "MatMulNBits"): matmul_nbits,
    (MICROSOFT, "GatherBlockQuantized"): gather_block_quantized,
}
"""The decompositions of quantised operators, by (domain, operator)."""
