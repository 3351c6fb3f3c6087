"""Rows of sizes and of arithmetic on them: a number is a tensor of one element."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import Call, Operand, dtype_of, element


def operands(at: Call, given: Sequence[Operand]) -> list[ir.Value]:
    """Symbols and numbers as tensors of one element, of one type."""
    kinds = [dtype_of(a.meta["val"] if isinstance(a, fx.Node) else a) for a in given]
    real = torch.float64 in kinds or dtype_of(at.result) is torch.float64
    return [_in_type(at, a, torch.float64 if real else torch.int64) for a in given]


def _in_type(at: Call, given: Operand, dtype: torch.dtype) -> ir.Value:
    if not isinstance(given, fx.Node):
        return at.constant([given], dtype)
    value: ir.Value = at.program.value(given)
    return value if dtype_of(given.meta["val"]) is dtype else at.cast(value, dtype)


def sym_size(at: Call, x: Operand, dim: int) -> ir.Value:
    """The size of one axis."""
    axis = at.axis(dim, x)
    return at.shape(at.tensor(x), axis, axis + 1)


def quotient(at: Call, a: Operand, b: Operand) -> ir.Value:
    """A quotient rounded down; onnx rounds to zero, which is the same for sizes."""
    top, bottom = operands(at, [a, b])
    if not isinstance(a, fx.Node) or _never_negative(a.meta["val"]):
        return at.add("Div", top, bottom)
    return at.add("Div", at.add("Sub", top, at.add("Mod", top, bottom)), bottom)


def _never_negative(symbol: torch.SymInt) -> bool:
    return bool(symbol.node.expr.is_nonnegative)


def true_quotient(at: Call, a: Operand, b: Operand) -> ir.Value:
    """A quotient of real numbers."""
    inputs = [at.cast(v, torch.float64) for v in operands(at, [a, b])]
    return at.add("Div", *inputs)


def symbol_cast(at: Call, a: Operand) -> ir.Value:
    """A number in another type, cut off towards zero."""
    value: ir.Value = at.program.value(a)
    return at.add("Cast", value, to=element(dtype_of(at.result)))


def symbol_ceil(at: Call, a: Operand) -> ir.Value:
    """A number rounded up."""
    return at.cast(at.add("Ceil", at.program.value(a)), torch.int64)


def symbol_floor(at: Call, a: Operand) -> ir.Value:
    """A number rounded down."""
    return at.cast(at.add("Floor", at.program.value(a)), torch.int64)
