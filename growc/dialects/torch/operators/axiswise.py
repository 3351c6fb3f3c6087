"""Rows that read an axis as a whole."""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir
import torch

from growc.dialects.torch.operators.call import Call, Dims, Extents, Operand, Size, UnknownError

REDUCTIONS = {
    "amax": "ReduceMax",
    "amin": "ReduceMin",
    "logsumexp": "ReduceLogSumExp",
    "max": "ReduceMax",
    "mean": "ReduceMean",
    "min": "ReduceMin",
    "prod": "ReduceProd",
    "sum": "ReduceSum",
}


def _kind(at: Call) -> str:
    return str(at.node.target).split(".")[1]


def _reduced(at: Call, op: str, value: ir.Value, axes: list[int], keep: bool) -> ir.Value:
    return at.add(op, value, at.constant(axes), keepdims=int(keep))


def reduce(at: Call, x: Operand, dim: Dims, keepdim: bool = False) -> ir.Value:
    """Sums, means, extremes of axes."""
    if at.rank(x) == 0:
        return at.tensor(x, at.dtype)
    return _reduced(at, REDUCTIONS[_kind(at)], at.tensor(x, at.dtype), at.axes(dim, x), keepdim)


def reduce_all(at: Call, x: Operand) -> ir.Value:
    """Sums, means, extremes of everything."""
    return reduce(at, x, None)


def every(at: Call, x: Operand, dim: Dims = None, keepdim: bool = False) -> ir.Value:
    """Whether nothing is zero."""
    return _logical(at, "ReduceMin", x, dim, keepdim)


def some(at: Call, x: Operand, dim: Dims = None, keepdim: bool = False) -> ir.Value:
    """Whether anything is not zero."""
    return _logical(at, "ReduceMax", x, dim, keepdim)


def _logical(at: Call, op: str, x: Operand, dim: Dims, keep: bool) -> ir.Value:
    numbers = at.cast(at.tensor(x, torch.bool), torch.int32)
    return at.cast(_reduced(at, op, numbers, at.axes(dim, x), keep), torch.bool)


def vector_norm(
    at: Call,
    x: Operand,
    p: float | None = None,
    ord_: float | None = None,
    dim: Dims = None,
    keepdim: bool = False,
) -> ir.Value:
    """The length of vectors, in the sum of squares or of magnitudes."""
    op = {1.0: "ReduceL1", 2.0: "ReduceL2"}.get(2 if p is None and ord_ is None else p or ord_ or 0)
    if op is None:
        raise UnknownError
    return _reduced(at, op, at.tensor(x, at.dtype), at.axes(dim, x), keepdim)


def softmax(at: Call, x: Operand, dim: int) -> ir.Value:
    """Softmax, or its logarithm."""
    op = "LogSoftmax" if "log" in _kind(at) else "Softmax"
    return at.add(op, at.tensor(x, at.dtype), axis=at.axis(dim, x))


def cumsum(at: Call, x: Operand, dim: int) -> ir.Value:
    """Sums of what came before."""
    return at.add("CumSum", at.tensor(x, at.dtype), at.constant(at.axis(dim, x)))


def extreme(at: Call, x: Operand, dim: int, keepdim: bool) -> list[ir.Value]:
    """The largest or smallest element, and its number."""
    axis, kind = at.axis(dim, x), _kind(at)
    value = at.tensor(x)
    number = at.add(f"Arg{kind.capitalize()}", value, axis=axis, keepdims=int(keepdim))
    return [_reduced(at, REDUCTIONS[kind], value, [axis], keepdim), number]


def arg_extreme(at: Call, x: Operand, dim: int | None, keepdim: bool) -> ir.Value:
    """The number of the largest or smallest element."""
    op = "ArgMax" if "max" in _kind(at) else "ArgMin"
    if dim is None:
        flat = at.add("Reshape", at.tensor(x), at.constant([-1]))
        return at.add(op, flat, axis=0, keepdims=0)
    return at.add(op, at.tensor(x), axis=at.axis(dim, x), keepdims=int(keepdim))


def topk(at: Call, x: Operand, k: Size, dim: int, largest: bool, sorted_: bool) -> list[ir.Value]:
    """The largest or smallest elements, and their numbers."""
    options = {"axis": at.axis(dim, x), "largest": int(largest), "sorted": int(sorted_)}
    return at.several("TopK", at.tensor(x), at.ints([k], "k"), outputs=2, **options)


def sort(at: Call, x: Operand, dim: int, descending: bool) -> list[ir.Value]:
    """All elements in order, and their numbers."""
    axis = at.axis(dim, x)
    count = at.shape(at.tensor(x), axis, axis + 1)
    return at.several("TopK", at.tensor(x), count, outputs=2, axis=axis, largest=int(descending))


def argsort(at: Call, x: Operand, dim: int, descending: bool) -> ir.Value:
    """The numbers of all elements in order."""
    return sort(at, x, dim, descending)[1]


# ---------------------------------------------------------------- windows


def average_pool(
    at: Call,
    x: Operand,
    kernel_size: Extents,
    stride: Extents,
    padding: Extents,
    ceil_mode: bool,
    count_include_pad: bool,
) -> ir.Value:
    """Means of windows."""
    return _pool(at, "AveragePool", x, kernel_size, stride, padding, 1, ceil_mode, int(count_include_pad))


def max_pool(
    at: Call,
    x: Operand,
    kernel_size: Extents,
    stride: Extents,
    padding: Extents,
    dilation: Extents,
    ceil_mode: bool,
) -> ir.Value:
    """The largest elements of windows."""
    return _pool(at, "MaxPool", x, kernel_size, stride, padding, dilation, ceil_mode, None)


def _pool(
    at: Call,
    op: str,
    x: Operand,
    kernel: Extents,
    stride: Extents,
    padding: Extents,
    dilation: Extents,
    ceil: bool,
    count: int | None,
) -> ir.Value:
    from growc.dialects.torch.operators.contract import spread

    space = 1 if "1d" in _kind(at) else 2
    if at.rank(x) != space + 2:
        raise UnknownError
    window = spread(kernel, space)
    return at.add(
        op,
        at.tensor(x),
        kernel_shape=window,
        strides=spread(stride, space) if stride else window,
        pads=spread(padding, space) * 2,
        dilations=spread(dilation, space),
        ceil_mode=int(ceil),
        count_include_pad=count,
    )


def adaptive_pool(at: Call, x: Operand, output_size: Sequence[int]) -> ir.Value:
    """Means of windows, so many that a given number of them covers the image."""
    space = len(output_size)
    if at.rank(x) != space + 2:
        raise UnknownError
    if all(s == 1 for s in output_size):
        axes = list(range(2, at.rank(x)))
        return at.add("GlobalAveragePool", at.tensor(x)) if axes else at.tensor(x)
    sizes = [at.fixed(x, k + 2) for k in range(space)]
    if any(s % o for s, o in zip(sizes, output_size, strict=True)):
        raise UnknownError
    window = [s // o for s, o in zip(sizes, output_size, strict=True)]
    return at.add("AveragePool", at.tensor(x), kernel_shape=window, strides=window)
