"""Rows that compute each element by itself."""

from __future__ import annotations

import math

import onnx_ir as ir
import torch

from growc.dialects.torch.operators.call import Call, Operand, UnknownError


def same(at: Call, x: Operand, other: Operand | None = None) -> ir.Value:
    """The tensor itself, perhaps in another type."""
    return at.tensor(x, at.dtype)


def dropout(at: Call, x: Operand, p: float, train: bool) -> ir.Value:
    """Nothing happens outside of training."""
    if train and p:
        raise UnknownError
    return at.tensor(x)


def replaced(at: Call, x: Operand, src: Operand) -> ir.Value:
    """Another tensor in the type and sizes of this one."""
    made = at.tensor(src, at.dtype)
    return made if at.sizes(src) == at.sizes() else at.add("Expand", made, at.shape(at.tensor(x)))


def filled(at: Call, x: Operand, value: Operand) -> ir.Value:
    """One number everywhere."""
    return at.add("Expand", at.tensor(value, at.dtype, "value"), at.shape(at.tensor(x)))


# ---------------------------------------------------------------- one operand


def rounding(at: Call, x: Operand, decimals: int = 0) -> ir.Value:
    """Whole numbers; those that are whole already stay."""
    value = at.tensor(x)
    if decimals or not at.dtype.is_floating_point:
        if decimals:
            raise UnknownError
        return value
    return at.add(str(at.node.target).split(".")[1].capitalize(), value)


def bitwise_not(at: Call, x: Operand) -> ir.Value:
    """Not, for numbers bit by bit."""
    return at.add("Not" if at.dtype is torch.bool else "BitwiseNot", at.tensor(x))


def logical_not(at: Call, x: Operand) -> ir.Value:
    """Whether a number is zero."""
    return at.add("Not", at.tensor(x, torch.bool))


def isinf(at: Call, x: Operand) -> ir.Value:
    """IsInf."""
    return at.add("IsInf", at.tensor(x))


def clamp(at: Call, x: Operand, min_: Operand | None = None, max_: Operand | None = None) -> ir.Value:
    """Bounds that are numbers, or tensors."""
    value = at.tensor(x, at.dtype)
    if not any(hasattr(bound, "meta") for bound in (min_, max_)):
        bounds = [None if b is None else at.tensor(b, at.dtype, n) for b, n in ((min_, "min"), (max_, "max"))]
        return at.add("Clip", value, *bounds)
    if min_ is not None:
        value = at.add("Max", value, at.tensor(min_, at.dtype))
    return value if max_ is None else at.add("Min", value, at.tensor(max_, at.dtype))


WHOLE = {(-128, 127): torch.int8, (0, 255): torch.uint8}
"""The whole numbers that a tensor is rounded to, by the least and the largest of them."""


def fake_quantize(
    at: Call, x: Operand, scale: Operand, zero_point: Operand, quant_min: int, quant_max: int
) -> ir.Value:
    """Rounded to whole numbers, and back."""
    whole = WHOLE.get((quant_min, quant_max))
    if whole is None or at.dtype not in (torch.float32, torch.float16) or not isinstance(zero_point, int):
        raise UnknownError
    steps = at.tensor(scale, at.dtype, "scale"), at.constant(zero_point, whole)
    return at.add("DequantizeLinear", at.add("QuantizeLinear", at.tensor(x), *steps), *steps)


def relu6(at: Call, x: Operand) -> ir.Value:
    """Between 0 and 6."""
    return clamp(at, x, 0, 6)


def hardtanh(at: Call, x: Operand, min_val: Operand, max_val: Operand) -> ir.Value:
    """Between two numbers."""
    return clamp(at, x, min_val, max_val)


def hardsigmoid(at: Call, x: Operand) -> ir.Value:
    """x / 6 + 1 / 2 between 0 and 1."""
    return at.add("HardSigmoid", at.tensor(x), alpha=1 / 6, beta=0.5)


def elu(at: Call, x: Operand, alpha: float) -> ir.Value:
    """Elu."""
    return at.follows(at.add("Elu", at.tensor(x), alpha=float(alpha)), alpha="alpha")


def exp2(at: Call, x: Operand) -> ir.Value:
    """2 to the power of x."""
    return at.add("Pow", at.constant(2, at.dtype), at.tensor(x, at.dtype))


def expm1(at: Call, x: Operand) -> ir.Value:
    """e to the power of x, less 1."""
    return at.add("Sub", at.add("Exp", at.tensor(x, at.dtype)), at.constant(1, at.dtype))


def log1p(at: Call, x: Operand) -> ir.Value:
    """The logarithm of 1 + x."""
    return at.add("Log", at.add("Add", at.tensor(x, at.dtype), at.constant(1, at.dtype)))


def log_of_base(at: Call, x: Operand) -> ir.Value:
    """Logarithms to the bases 2 and 10."""
    base = 2 if "log2" in str(at.node.target) else 10
    return at.add("Div", at.add("Log", at.tensor(x, at.dtype)), at.constant(math.log(base), at.dtype))


def log_sigmoid(at: Call, x: Operand) -> ir.Value:
    """-softplus(-x), which is large where x is."""
    return at.add("Neg", at.add("Softplus", at.add("Neg", at.tensor(x))))


def rsqrt(at: Call, x: Operand) -> ir.Value:
    """1 / sqrt(x)."""
    return at.add("Reciprocal", at.add("Sqrt", at.tensor(x, at.dtype)))


def silu(at: Call, x: Operand) -> ir.Value:
    """x · sigmoid(x)."""
    value = at.tensor(x)
    return at.add("Mul", value, at.add("Sigmoid", value))


def softplus(at: Call, x: Operand, beta: float) -> ir.Value:
    """log(1 + e^(βx)) / β. Torch's threshold is where the difference from x is lost in rounding."""
    if beta == 1:
        return at.add("Softplus", at.tensor(x))
    factor = at.constant(beta, at.dtype)
    return at.add("Div", at.add("Softplus", at.add("Mul", at.tensor(x), factor)), factor)


def glu(at: Call, x: Operand, dim: int) -> ir.Value:
    """One half times the sigmoid of the other."""
    axis = at.axis(dim, x)
    a, b = at.several("Split", at.tensor(x), outputs=2, axis=axis, num_outputs=2)
    return at.add("Mul", a, at.add("Sigmoid", b))


def prelu(at: Call, x: Operand, weight: Operand) -> ir.Value:
    """One slope, or one for each channel."""
    slope, behind = at.tensor(weight), at.rank(x) - 2
    if at.fixed(weight, 0) > 1 and behind > 0:
        slope = at.add("Unsqueeze", slope, at.constant(list(range(1, behind + 1))))
    return at.add("PRelu", at.tensor(x), slope)


# ---------------------------------------------------------------- several operands


def _scaled(at: Call, other: Operand, alpha: Operand) -> ir.Value:
    value = at.tensor(other, at.dtype, "other")
    return value if alpha == 1 else at.add("Mul", value, at.tensor(alpha, at.dtype, "alpha"))


def add(at: Call, x: Operand, other: Operand, alpha: Operand = 1) -> ir.Value:
    """x + alpha · other."""
    return at.add(
        "Or" if at.dtype is torch.bool else "Add", at.tensor(x, at.dtype), _scaled(at, other, alpha)
    )


def sub(at: Call, x: Operand, other: Operand, alpha: Operand = 1) -> ir.Value:
    """x - alpha · other."""
    return at.add("Sub", at.tensor(x, at.dtype), _scaled(at, other, alpha))


def rsub(at: Call, x: Operand, other: Operand) -> ir.Value:
    """other - x."""
    return at.add("Sub", at.tensor(other, at.dtype, "other"), at.tensor(x, at.dtype))


def mul(at: Call, x: Operand, other: Operand) -> ir.Value:
    """x · other; of truth values whether both are true."""
    operands = at.tensor(x, at.dtype, "self"), at.tensor(other, at.dtype, "other")
    return at.add("And" if at.dtype is torch.bool else "Mul", *operands)


def addcmul(at: Call, x: Operand, tensor1: Operand, tensor2: Operand, value: Operand) -> ir.Value:
    """x + value · a · b."""
    product = at.add("Mul", at.tensor(tensor1, at.dtype), at.tensor(tensor2, at.dtype))
    if value != 1:
        product = at.add("Mul", product, at.tensor(value, at.dtype, "value"))
    return at.add("Add", at.tensor(x, at.dtype), product)


def lerp(at: Call, x: Operand, end: Operand, weight: Operand) -> ir.Value:
    """x + weight · (end - x)."""
    start = at.tensor(x, at.dtype)
    way = at.add("Sub", at.tensor(end, at.dtype), start)
    return at.add("Add", start, at.add("Mul", way, at.tensor(weight, at.dtype, "weight")))


def divide(at: Call, x: Operand, other: Operand, rounding_mode: str | None) -> ir.Value:
    """A quotient, perhaps rounded."""
    if rounding_mode == "floor":
        return floor_divide(at, x, other)
    if rounding_mode is not None and not at.dtype.is_floating_point:
        return at.add("Div", at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other"))
    if rounding_mode is not None:
        raise UnknownError
    return at.add("Div", at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other"))


def floor_divide(at: Call, x: Operand, other: Operand) -> ir.Value:
    """A quotient rounded down; onnx rounds whole numbers to zero."""
    a, b = at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other")
    if at.dtype.is_floating_point:
        return at.add("Floor", at.add("Div", a, b))
    return at.add("Div", at.add("Sub", a, at.add("Mod", a, b)), b)


def remainder(at: Call, x: Operand, other: Operand) -> ir.Value:
    """What is left of x, with the sign of the other."""
    a, b = at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other")
    if not at.dtype.is_floating_point:
        return at.add("Mod", a, b)
    return at.add("Sub", a, at.add("Mul", at.add("Floor", at.add("Div", a, b)), b))


def bitwise(at: Call, x: Operand, other: Operand) -> ir.Value:
    """And, Or, Xor; of numbers bit by bit."""
    name = str(at.node.target).split(".")[1].strip("_").removeprefix("bitwise_").capitalize()
    inputs = [at.tensor(x, at.dtype), at.tensor(other, at.dtype, "other")]
    return at.add(name if at.dtype is torch.bool else f"Bitwise{name}", *inputs)


def logical(at: Call, x: Operand, other: Operand) -> ir.Value:
    """And, Or, Xor of what is not zero."""
    name = str(at.node.target).split(".")[1].removeprefix("logical_").capitalize()
    return at.add(name, at.tensor(x, torch.bool), at.tensor(other, torch.bool))


def unequal(at: Call, x: Operand, other: Operand) -> ir.Value:
    """Not equal."""
    from growc.dialects.torch.operators.call import promoted

    dtype = promoted([x, other])
    return at.add("Not", at.add("Equal", at.tensor(x, dtype), at.tensor(other, dtype, "other")))


def where(at: Call, condition: Operand, x: Operand, other: Operand) -> ir.Value:
    """One or the other."""
    chosen = [at.tensor(x, at.dtype, "self"), at.tensor(other, at.dtype, "other")]
    return at.add("Where", at.tensor(condition, torch.bool), *chosen)


def masked_fill(at: Call, x: Operand, mask: Operand, value: Operand) -> ir.Value:
    """A number where the mask is true."""
    return at.add("Where", at.tensor(mask), at.tensor(value, at.dtype, "value"), at.tensor(x))
