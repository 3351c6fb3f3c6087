"""Rows of operators that read whole axes: reductions, sorting, pooling."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from growc.dialects.torch.operators.call import (
    AxisNumbers,
    Call,
    CallOperand,
    CallSize,
    Extents,
    UnknownError,
)
from growc.dialects.torch.operators.contract import spread


def _reduced(at: Call, op: str, value: ir.Value, axes: list[int], keep: bool) -> ir.Value:
    return at.add(op, value, at.constant(axes), keepdims=int(keep))


def reduce(at: Call, x: CallOperand, op: str, dim: AxisNumbers = None, keepdim: bool = False) -> ir.Value:
    """Reduce axes, or all of them, by sum, mean or extreme."""
    if at.rank(x) == 0:
        return at.tensor(x, at.dtype)
    return _reduced(at, op, at.tensor(x, at.dtype), at.axes(dim, x), keepdim)


def logical(at: Call, x: CallOperand, op: str, dim: AxisNumbers = None, keepdim: bool = False) -> ir.Value:
    """Lower `any` and `all`: whether some or all elements are non-zero."""
    numbers = at.cast(at.tensor(x, torch.bool), torch.int32)
    return at.cast(_reduced(at, op, numbers, at.axes(dim, x), keepdim), torch.bool)


def vector_norm(
    at: Call, x: CallOperand, p: float | None, dim: AxisNumbers = None, keepdim: bool = False
) -> ir.Value:
    """Return the L2 or L1 norm along axes."""
    op = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(2 if p is None else p)
    if op is None:
        raise UnknownError
    return _reduced(at, op, at.tensor(x, at.dtype), at.axes(dim, x), keepdim)


def cumsum(at: Call, x: CallOperand, dim: int) -> ir.Value:
    """Return cumulative sums."""
    return at.add("CumSum", at.tensor(x, at.dtype), at.constant(at.axis(dim, x)))


def extreme(at: Call, x: CallOperand, kind: str, dim: int, keepdim: bool) -> list[ir.Value]:
    """Return the largest or smallest element, and its index."""
    axis, value = at.axis(dim, x), at.tensor(x)
    number = at.add(f"Arg{kind}", value, axis=axis, keepdims=int(keepdim))
    return [_reduced(at, f"Reduce{kind}", value, [axis], keepdim), number]


def arg_extreme(at: Call, x: CallOperand, op: str, dim: int | None, keepdim: bool) -> ir.Value:
    """Return the index of the largest or smallest element."""
    if dim is None:
        flat = at.add("Reshape", at.tensor(x), at.constant([-1]))
        return at.add(op, flat, axis=0, keepdims=0)
    return at.add(op, at.tensor(x), axis=at.axis(dim, x), keepdims=int(keepdim))


def topk(at: Call, x: CallOperand, k: CallSize, dim: int, largest: bool, sorted_: bool) -> list[ir.Value]:
    """Return the largest or smallest elements, and their indices."""
    options = {"axis": at.axis(dim, x), "largest": int(largest), "sorted": int(sorted_)}
    return at.several("TopK", at.tensor(x), at.ints([k], "k"), outputs=2, **options)


def sort(at: Call, x: CallOperand, dim: int, descending: bool) -> list[ir.Value]:
    """Return all elements in sorted order, and their indices."""
    axis = at.axis(dim, x)
    count = at.shape(at.tensor(x), axis, axis + 1)
    return at.several("TopK", at.tensor(x), count, outputs=2, axis=axis, largest=int(descending))


def argsort(at: Call, x: CallOperand, dim: int, descending: bool) -> ir.Value:
    """Return the indices of all elements in sorted order."""
    return sort(at, x, dim, descending)[1]


# ---------------------------------------------------------------- windows


def pool(
    at: Call,
    x: CallOperand,
    op: str,
    space: int,
    kernel_size: Extents,
    stride: Extents,
    padding: Extents,
    dilation: Extents = 1,
    ceil_mode: bool = False,
    count_include_pad: bool | None = None,
) -> ir.Value | list[ir.Value]:
    """Return means or largest elements of windows."""
    if at.rank(x) != space + 2:
        raise UnknownError
    window = spread(kernel_size, space)
    pooled = at.add(
        op,
        at.tensor(x),
        kernel_shape=window,
        strides=spread(stride, space) if stride else window,
        pads=spread(padding, space) * 2,
        dilations=spread(dilation, space),
        ceil_mode=int(ceil_mode),
        count_include_pad=None if count_include_pad is None else int(count_include_pad),
    )
    return _first(at, pooled)


def adaptive_pool(
    at: Call, x: CallOperand, output_size: Sequence[int], statistic: str = "Mean"
) -> ir.Value | list[ir.Value]:
    """Return means or largest elements of windows, of which a given number covers the image.

    Windows that may overlap are computed one axis after the other. Window k of n goes from ⌊k·size/n⌋ to
    ⌈(k+1)·size/n⌉.
    """
    space, value = len(output_size), at.tensor(x)
    if at.rank(x) != space + 2:
        raise UnknownError
    operator = {"Mean": "Average", "Max": "Max"}[statistic]
    if all(s == 1 for s in output_size):
        return _first(at, at.add(f"Global{operator}Pool", value))
    pairs = [(at.fixed(x, k), count) for k, count in enumerate(output_size, start=2)]
    if not any(size % count for size, count in pairs):
        window = [size // count for size, count in pairs]
        return _first(at, at.add(f"{operator}Pool", value, kernel_shape=window, strides=window))
    for axis, (size, count) in enumerate(pairs, start=2):
        parts: list[ir.Value] = []
        for k in range(count):
            ends = ([k * size // count], [-(-(k + 1) * size // count)])
            part = at.add("Slice", value, *map(at.constant, (*ends, [axis])))
            parts.append(_reduced(at, f"Reduce{statistic}", part, [axis], keep=True))
        value = at.add("Concat", *parts, axis=axis)
    return _first(at, value)


def _first(at: Call, result: ir.Value) -> ir.Value | list[ir.Value]:
    """Return the only result of a call, or the first of several if the others (indices) are unused."""
    if not isinstance(at.result, (list, tuple)):
        return result
    if any(user.args[1] for user in at.node.users):
        raise UnknownError
    return [result]
