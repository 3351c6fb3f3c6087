"""Rows that make tensors out of sizes and numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir
import torch

from growc.dialects.torch.call import TYPES, Call, UnknownError


def full(at: Call, size: Any, fill_value: Any = None) -> ir.Value:
    """One number everywhere."""
    return _everywhere(at, at.ints(size, "size"), fill_value)


def full_like(at: Call, x: Any, fill_value: Any = None) -> ir.Value:
    """One number everywhere, in the sizes of another tensor."""
    return _everywhere(at, at.shape(at.tensor(x)), fill_value)


def _everywhere(at: Call, shape: ir.Value, number: Any) -> ir.Value:
    kind = str(at.node.target).split(".")[1]
    number = number if "full" in kind else int("ones" in kind)
    if not isinstance(number, (bool, int, float)):
        return at.add("Expand", at.tensor(number, at.dtype), shape)
    return at.add("ConstantOfShape", shape, value=_one(at, number))


def _one(at: Call, number: Any) -> ir.TensorProtocol:
    if at.dtype not in TYPES:
        raise UnknownError
    dtype = TYPES[at.dtype]
    return ir.Tensor(np.asarray([number]).astype(dtype.numpy()), dtype=dtype)


def scalar_tensor(at: Call, s: Any) -> ir.Value:
    """A number."""
    return at.tensor(s, at.dtype, "s")


def arange(at: Call, end: Any, start: Any = 0, step: Any = 1) -> ir.Value:
    """Numbers from a start to an end, in steps."""
    bounds = [at.tensor(n, at.dtype, a) for n, a in ((start, "start"), (end, "end"), (step, "step"))]
    return at.add("Range", *bounds)


def linspace(at: Call, start: Any, end: Any, steps: Any) -> ir.Value:
    """Numbers from a start to an end."""
    if not all(isinstance(n, (int, float)) for n in (start, end, steps)):
        raise UnknownError
    numbers = torch.linspace(start, end, steps, dtype=at.dtype)
    return at.constant(numbers.to(torch.float64).numpy(), at.dtype)


def eye(at: Call, n: Any) -> ir.Value:
    """Ones on the diagonal."""
    shape = at.ints([n, n])
    return at.add("EyeLike", at.add("ConstantOfShape", shape, value=_one(at, 0)))
