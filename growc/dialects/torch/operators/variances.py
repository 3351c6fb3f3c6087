"""Variances that divide by n − correction, where n counts the elements.

Such a variance is the mean square times `excess`, n/(n − correction). The result keeps the source's number,
as it keeps every number that a model computes from sizes. With n' elements its correction is
correction · n'/n, for then n'/(n' − correction') is n/(n − correction).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import SITE, Call, Dims, Operand, Path, UnknownError, sizes_of

_ROWS = ("std", "std_mean", "var", "var_mean")
VARIANCES = frozenset(getattr(torch.ops.aten, name).correction for name in _ROWS)
"""The operators with a correction."""

T = TypeVar("T")


def deviation(
    at: Call,
    x: Operand,
    dim: Dims,
    correction: Operand,
    keepdim: bool,
    root: bool = False,
    both: bool = False,
) -> ir.Value | list[ir.Value]:
    """Variance, or its root, the standard deviation; or both of it and the mean."""
    axes, value = at.axes(dim, x), at.tensor(x)
    mean = at.add("ReduceMean", value, at.constant(axes), keepdims=1)
    off = at.add("Sub", value, mean)
    squares = at.add("ReduceMean", at.add("Mul", off, off), at.constant(axes), keepdims=int(keepdim))
    if correction != 0:
        factor = _excess([at.fixed(x, a) for a in axes], correction)
        if not math.isfinite(factor):
            raise UnknownError
        squares = at.add("Mul", squares, at.constant(factor, at.dtype))
    made = at.add("Sqrt", squares) if root else squares
    if not both:
        return made
    return [made, mean if keepdim else at.add("Squeeze", mean, at.constant(axes))]


def _excess(sizes: Sequence[int], correction: object) -> float:
    """n/(n − correction), infinite where nothing is left to divide by. Without a correction it is one."""
    count, less = math.prod(sizes), _less(correction)
    return count / (count - less) if count > less else math.inf


def _less(correction: object) -> float:
    """By how much less than the count a call divides."""
    assert correction is None or isinstance(correction, int | float)
    return 1.0 if correction is None else float(correction)


def excess_of(shape: Sequence[int], dim: Dims, correction: float | None) -> float:
    """That of an operator over axes of a tensor."""
    return _excess(_along(shape, dim), correction)


def _along(shape: Sequence[T], dim: Dims) -> list[T]:
    dims = range(len(shape)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return [shape[d] for d in dims]


def corrections(call: fx.Node, parts: Sequence[ir.Node]) -> Iterator[tuple[Path, float]]:
    """The correction of a call in the result, where the axes that it runs over have other sizes by now."""
    given, dim, correction = call.args[0], _argument(call, 1, "dim"), call.kwargs.get("correction", 1)
    assert isinstance(given, fx.Node)
    operands = (p.inputs[i] for p in parts for i, named in p.meta[SITE].operands.items() if named is given)
    data = next(operands, None)
    if data is None or data.shape is None:
        return
    before, after = (_along(shape, dim) for shape in (sizes_of(given.meta["val"]), tuple(data.shape)))
    stood, stands = ([n for n in sizes if isinstance(n, int)] for sizes in (before, after))
    if before != after and len(stood) == len(stands) == len(before):
        yield ("correction",), _less(correction) * math.prod(stands) / math.prod(stood)


def _argument(call: fx.Node, place: int, name: str) -> Any:
    return call.args[place] if len(call.args) > place else call.kwargs.get(name)
