"""Rows that compute each element by itself."""

from __future__ import annotations

import onnx_ir as ir
import torch

from growc.dialects.torch.operators.call import Call, CallOperand, UnknownError


def dropout(at: Call, x: CallOperand, p: float, train: bool) -> ir.Value:
    """The identity outside of training."""
    if train and p:
        raise UnknownError
    return at.tensor(x)


def replaced(at: Call, x: CallOperand, src: CallOperand) -> ir.Value:
    """Another tensor in the dtype and shape of this one."""
    source = at.tensor(src, at.dtype)
    return source if at.sizes(src) == at.sizes() else at.add("Expand", source, at.shape(at.tensor(x)))


def filled(at: Call, x: CallOperand, value: CallOperand) -> ir.Value:
    """A tensor of the same shape, filled with one number."""
    return at.add("Expand", at.tensor(value, at.dtype, "value"), at.shape(at.tensor(x)))


# ---------------------------------------------------------------- one operand


def clamp(
    at: Call, x: CallOperand, min_: CallOperand | None = None, max_: CallOperand | None = None
) -> ir.Value:
    """Clip to bounds that are numbers or tensors."""
    value = at.tensor(x, at.dtype)
    if not any(hasattr(bound, "meta") for bound in (min_, max_)):
        bounds = [None if b is None else at.tensor(b, at.dtype, n) for b, n in ((min_, "min"), (max_, "max"))]
        return at.add("Clip", value, *bounds)
    if min_ is not None:
        value = at.add("Max", value, at.tensor(min_, at.dtype))
    return value if max_ is None else at.add("Min", value, at.tensor(max_, at.dtype))


WHOLE = {(-128, 127): torch.int8, (0, 255): torch.uint8}
"""Integer types of quantisation, by their smallest and largest number."""


def fake_quantize(
    at: Call, x: CallOperand, scale: CallOperand, zero_point: CallOperand, quant_min: int, quant_max: int
) -> ir.Value:
    """Quantise to integers, and dequantise."""
    integer = WHOLE.get((quant_min, quant_max))
    if integer is None or at.dtype not in (torch.float32, torch.float16) or not isinstance(zero_point, int):
        raise UnknownError
    parameters = at.tensor(scale, at.dtype, "scale"), at.constant(zero_point, integer)
    return at.add("DequantizeLinear", at.add("QuantizeLinear", at.tensor(x), *parameters), *parameters)


def elu(at: Call, x: CallOperand, alpha: float) -> ir.Value:
    """Elu."""
    return at.follows(at.add("Elu", at.tensor(x), alpha=float(alpha)), alpha="alpha")


def glu(at: Call, x: CallOperand, dim: int) -> ir.Value:
    """The first half times the sigmoid of the second."""
    axis = at.axis(dim, x)
    a, b = at.several("Split", at.tensor(x), outputs=2, axis=axis, num_outputs=2)
    return at.add("Mul", a, at.add("Sigmoid", b))


def prelu(at: Call, x: CallOperand, weight: CallOperand) -> ir.Value:
    """PRelu with one slope, or one for each channel."""
    slope, trailing = at.tensor(weight), at.rank(x) - 2
    if at.fixed(weight, 0) > 1 and trailing > 0:
        slope = at.add("Unsqueeze", slope, at.constant(list(range(1, trailing + 1))))
    return at.add("PRelu", at.tensor(x), slope)


# ---------------------------------------------------------------- several operands


def divide(at: Call, x: CallOperand, other: CallOperand, rounding_mode: str | None) -> ir.Value:
    """A quotient, with optional rounding."""
    if rounding_mode == "floor":
        return floor_divide(at, x, other)
    if rounding_mode is not None and at.dtype.is_floating_point:
        raise UnknownError
    return at.add("Div", at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other"))


def floor_divide(at: Call, x: CallOperand, other: CallOperand) -> ir.Value:
    """A quotient rounded down. ONNX rounds integer quotients towards zero."""
    a, b = at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other")
    if at.dtype.is_floating_point:
        return at.add("Floor", at.add("Div", a, b))
    return at.add("Div", at.add("Sub", a, at.add("Mod", a, b)), b)
