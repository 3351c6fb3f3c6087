"""Variances with divisor n − correction, where n is the number of elements.

Such a variance is the mean square times `excess`, n/(n − correction). The result keeps the source's excess,
as it keeps every number that a model computes from sizes. With n' elements its correction is correction ·
n'/n, so that n'/(n' − correction') equals n/(n − correction).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import onnx_ir as ir
import torch
from torch import fx

from growc.dialects.torch.operators.call import (
    SITE,
    ArgumentPath,
    AxisNumbers,
    Call,
    CallOperand,
    UnknownError,
    sizes_of,
)

_ROWS = ("std", "std_mean", "var", "var_mean")
VARIANCES = frozenset(getattr(torch.ops.aten, name).correction for name in _ROWS)
"""The operators with a correction."""

T = TypeVar("T")


def deviation(
    at: Call,
    x: CallOperand,
    dim: AxisNumbers,
    correction: CallOperand,
    keepdim: bool,
    root: bool = False,
    both: bool = False,
) -> ir.Value | list[ir.Value]:
    """Return the variance or standard deviation (`root`), together with the mean if `both`."""
    axes, value = at.axes(dim, x), at.tensor(x)
    mean = at.add("ReduceMean", value, at.constant(axes), keepdims=1)
    deviations = at.add("Sub", value, mean)
    squares = at.add(
        "ReduceMean", at.add("Mul", deviations, deviations), at.constant(axes), keepdims=int(keepdim)
    )
    if correction != 0:
        factor = _excess([at.fixed(x, a) for a in axes], correction)
        if not math.isfinite(factor):
            raise UnknownError
        squares = at.add("Mul", squares, at.constant(factor, at.dtype))
    spread = at.add("Sqrt", squares) if root else squares
    if not both:
        return spread
    return [spread, mean if keepdim else at.add("Squeeze", mean, at.constant(axes))]


def _excess(sizes: Sequence[int], correction: object) -> float:
    """Return n/(n − correction), or infinity if the divisor is not positive. `correction` defaults to 1."""
    count, subtracted = math.prod(sizes), _less(correction)
    return count / (count - subtracted) if count > subtracted else math.inf


def _less(correction: object) -> float:
    """Return the correction of a call as a float, 1 by default."""
    assert correction is None or isinstance(correction, int | float)
    return 1.0 if correction is None else float(correction)


def excess_of(shape: Sequence[int], dim: AxisNumbers, correction: float | None) -> float:
    """Return the excess of an operator over axes of a tensor."""
    return _excess(_along(shape, dim), correction)


def _along(shape: Sequence[T], dim: AxisNumbers) -> list[T]:
    dims = range(len(shape)) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return [shape[d] for d in dims]


def corrections(call: fx.Node, parts: Sequence[ir.Node]) -> Iterator[tuple[ArgumentPath, float]]:
    """Yield the new correction of a call whose reduced axes have new sizes in the result."""
    operand, dim, correction = call.args[0], _argument(call, 1, "dim"), call.kwargs.get("correction", 1)
    assert isinstance(operand, fx.Node)
    operands = (p.inputs[i] for p in parts for i, named in p.meta[SITE].operands.items() if named is operand)
    data = next(operands, None)
    if data is None or data.shape is None:
        return
    before, after = (_along(shape, dim) for shape in (sizes_of(operand.meta["val"]), tuple(data.shape)))
    old_sizes, new_sizes = ([n for n in sizes if isinstance(n, int)] for sizes in (before, after))
    if before != after and len(old_sizes) == len(new_sizes) == len(before):
        yield ("correction",), _less(correction) * math.prod(new_sizes) / math.prod(old_sizes)


def _argument(call: fx.Node, place: int, name: str) -> Any:
    return call.args[place] if len(call.args) > place else call.kwargs.get(name)
