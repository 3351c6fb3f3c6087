"""Rows of sizes and of arithmetic on sizes. A number is a tensor of one element."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import Call, CallOperand, dtype_of, element


def common(at: Call, operands: Sequence[CallOperand]) -> torch.dtype:
    """Return the dtype of arithmetic on symbols and numbers: float64 or int64."""
    kinds = [dtype_of(a.meta["val"] if isinstance(a, fx.Node) else a) for a in (*operands, at.node)]
    return torch.float64 if torch.float64 in kinds else torch.int64


def operand(at: Call, size: CallOperand, dtype: torch.dtype) -> ir.Value:
    """Return a symbol or number as a tensor of one element."""
    if not isinstance(size, fx.Node):
        return at.constant([size], dtype)
    value: ir.Value = at.program.value(size)
    return value if dtype_of(size.meta["val"]) is dtype else at.cast(value, dtype)


def sym_size(at: Call, x: CallOperand, dim: int) -> ir.Value:
    """The size of one axis."""
    axis = at.axis(dim, x)
    return at.shape(at.tensor(x), axis, axis + 1)


def quotient(at: Call, a: CallOperand, b: CallOperand) -> ir.Value:
    """A quotient rounded down. ONNX rounds towards zero, which is the same for sizes."""
    dtype = common(at, [a, b])
    top, bottom = operand(at, a, dtype), operand(at, b, dtype)
    if not isinstance(a, fx.Node) or a.meta["val"].node.expr.is_nonnegative:
        return at.add("Div", top, bottom)
    return at.add("Div", at.add("Sub", top, at.add("Mod", top, bottom)), bottom)


def symbol_cast(at: Call, a: CallOperand) -> ir.Value:
    """A number cast to another dtype, truncated towards zero."""
    value: ir.Value = at.program.value(a)
    return at.add("Cast", value, to=element(dtype_of(at.result)))


def symbol_rounded(at: Call, a: CallOperand, op: str) -> ir.Value:
    """A number rounded up or down."""
    return at.cast(at.add(op, at.program.value(a)), torch.int64)
