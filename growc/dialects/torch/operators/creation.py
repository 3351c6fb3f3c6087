"""Rows of operators that create tensors from sizes and numbers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import TYPES, Call, CallOperand, CallSize, UnknownError


def full(at: Call, size: Sequence[CallSize], fill_value: CallOperand) -> ir.Value:
    """A tensor filled with one number."""
    return _everywhere(at, at.ints(size, "size"), fill_value)


def full_like(at: Call, x: CallOperand, fill_value: CallOperand) -> ir.Value:
    """A tensor filled with one number, in the shape of another tensor."""
    return _everywhere(at, at.shape(at.tensor(x)), fill_value)


def _everywhere(at: Call, shape: ir.Value, number: CallOperand) -> ir.Value:
    if not isinstance(number, (bool, int, float)):
        return at.add("Expand", at.tensor(number, at.dtype), shape)
    return at.add("ConstantOfShape", shape, value=_one(at, number))


def _one(at: Call, number: CallOperand) -> ir.TensorProtocol:
    if at.dtype not in TYPES:
        raise UnknownError
    dtype = TYPES[at.dtype]
    return ir.Tensor(np.asarray([number]).astype(dtype.numpy()), dtype=dtype)


def linspace(at: Call, start: CallOperand, end: CallOperand, steps: CallOperand) -> ir.Value:
    """Evenly spaced numbers from a start to an end."""
    if isinstance(start, fx.Node) or isinstance(end, fx.Node) or not isinstance(steps, int):
        raise UnknownError
    numbers = torch.linspace(start, end, steps, dtype=at.dtype)
    return at.constant(numbers.to(torch.float64).numpy(), at.dtype)


def eye(at: Call, n: CallSize) -> ir.Value:
    """Ones on the diagonal."""
    shape = at.ints([n, n])
    return at.add("EyeLike", at.add("ConstantOfShape", shape, value=_one(at, 0)))
