"""Images of unit ranges under operators (growc.algebra.unit_ranges): a rule for each operator, by name.

An operator without a rule returns any finite number for finite ones, or what its traits and other laws imply
(growc.passes.dataflow.images). A new operator with a pole has the trait `pole`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np

from growc.algebra.indexmap import Bools, Floats, Ints
from growc.algebra.unit_ranges import STILL, TINY, VARIES, UnitRange
from growc.ir.graph import Image, Node, OperandRanges
from growc.passes.axes.norms import scalar
from growc.passes.dataflow.images import number_or_any

Function = Callable[[Floats], Floats]


def _quiet(function: Function) -> Function:
    def called(x: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.asarray(function(x), dtype=np.float64)

    return called


@dataclass(frozen=True)
class _Increasing:
    """An increasing function of one operand.

    analytic: it takes no value on more than a null set, if its operand takes none. limits: numbers that it
    approaches, and is rounded to.
    """

    function: Function
    analytic: bool = True
    limits: tuple[int, ...] = ()

    def __call__(self, node: Node, operand_ranges: OperandRanges, domain: Bools) -> UnitRange:
        x = operand_ranges[min(operand_ranges)]
        low, high = map(_quiet(self.function), (x.low, x.high))
        near = [np.isin(end.astype(np.float32), self.limits) for end in (low, high)]
        return replace(x.within(low, high, analytic=self.analytic), ends=near[0] | near[1])


def _bounded(
    low: float, high: float, function: Function = lambda x: x * np.nan, *, near: bool = False
) -> Image:
    """Return the image of a function with these bounds. `function` gives its value at a known number.

    near: whether results approach the upper bound, and are rounded to it.
    """

    def made(node: Node, operand_ranges: OperandRanges, domain: Bools) -> UnitRange:
        x = operand_ranges[min(operand_ranges)]
        known = (x.low == x.high) & np.isfinite(x.low)
        value = function(np.where(known, x.low, 0.0))
        known &= ~np.isnan(value)
        image = x.within(np.where(known, value, low), np.where(known, value, high), analytic=True)
        return replace(image, ends=np.full(len(x.low), near))

    return made


@dataclass(frozen=True)
class _Interval:
    """A function that is finite only on an interval from low to high, with these ends if closed.

    Its results lie between bottom and top. function: given if it is increasing.
    """

    low: float
    high: float
    closed: bool
    bottom: float
    top: float
    function: Function | None = None

    def __call__(self, node: Node, operand_ranges: OperandRanges, domain: Bools) -> UnitRange:
        x = operand_ranges[min(operand_ranges)]
        inside = (x.low >= self.low) & (x.high <= self.high)
        finite = [x.holds(end) for end in (self.low, self.high) if np.isfinite(end)]
        at_end = np.logical_or.reduce(finite) & (not self.closed)
        image = x.within(self.bottom, self.top, analytic=True)
        if self.function is not None:
            ends = (_quiet(self.function)(np.clip(end, self.low, self.high)) for end in (x.low, x.high))
            image = x.within(*ends, analytic=True)
        low, high = np.where(domain, self.bottom, image.low), np.where(domain, self.top, image.high)
        return replace(image, low=low, high=high).bad(~inside | at_end)


# -------------------------------------------------------------------- operators with several operands


def _operands(node: Node, operand_ranges: OperandRanges) -> list[UnitRange]:
    """Return the ranges of all operands. One number for all units stands for each of them."""
    size = len(operand_ranges[min(operand_ranges)].low)
    inputs = ((i, value) for i, value in enumerate(node.inputs) if value is not None)
    return [operand_ranges[i] if i in operand_ranges else number_or_any(v, size) for i, v in inputs]


def _abs(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    x = operand_ranges[0]
    low = np.where(x.holds(0) | (x.low <= 0) & (x.high >= 0), 0, np.minimum(abs(x.low), abs(x.high)))
    return x.within(low, np.maximum(abs(x.low), abs(x.high)), analytic=True)


def _elu(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    x, scale = operand_ranges[0], node.real("alpha", 1.0)
    if scale < 0:
        return UnitRange.anything(len(x.low))
    with np.errstate(over="ignore"):
        low, high = (np.where(end < 0, scale * np.expm1(end), end) for end in (x.low, x.high))
    image = x.within(low, high, analytic=scale > 0)
    return replace(image, ends=image.low == -scale)


def _hard_sigmoid(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    x, slope = operand_ranges[0], node.real("alpha", 0.2)
    if slope <= 0:
        return UnitRange.anything(len(x.low)).within(0.0, 1.0)
    low, high = (np.clip(slope * end + node.real("beta", 0.5), 0, 1) for end in (x.low, x.high))
    return replace(x.within(low, high, analytic=True), ends=(low == 0) | (high == 1))


def _negative(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    return operand_ranges[0].within(-operand_ranges[0].high, -operand_ranges[0].low, analytic=True)


def _sum(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    return reduce(lambda a, b: _plus(a, b, 1), _operands(node, operand_ranges))


def _difference(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    a, b = _operands(node, operand_ranges)
    return _plus(a, b, -1)


def _plus(a: UnitRange, b: UnitRange, sign: int) -> UnitRange:
    low, high = (b.low, b.high) if sign > 0 else (-b.high, -b.low)
    with np.errstate(invalid="ignore"):
        total = a.within(a.low + low, a.high + high)
    return replace(total, motion=_together(a, b))


def _together(a: UnitRange, b: UnitRange) -> Ints:
    """Return how a sum or a product moves: as one operand does if the other is a number; else VARIES."""
    return np.where(a.motion == STILL, b.motion, np.where(b.motion == STILL, a.motion, VARIES))


def _multiply(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    a, b = _operands(node, operand_ranges)
    if node.inputs[0] is node.inputs[1]:
        size = _abs(node, {0: a})
        return size.within(size.low**2, size.high**2, analytic=True)
    return _times(a, b)


def _times(a: UnitRange, b: UnitRange) -> UnitRange:
    with np.errstate(invalid="ignore", over="ignore"):
        ends = np.stack([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    ends = np.where(np.isnan(ends), 0.0, ends)  # zero times any finite number
    product = a.within(ends.min(axis=0), ends.max(axis=0))
    motion = np.where((product.low == 0) & (product.high == 0), STILL, _together(a, b))
    return replace(product, motion=motion)


def _inverse(x: UnitRange) -> UnitRange:
    """Return the range of 1/x, with a pole if x is zero on more than a null set."""
    with np.errstate(divide="ignore", over="ignore"):
        ends = np.stack([1 / x.low, 1 / x.high])
    low, high = ends.min(axis=0), ends.max(axis=0)
    across = (x.low <= 0) & (x.high >= 0)
    low = np.where(across, np.where(x.low == 0, TINY, -np.inf), np.where(low == 0, TINY, low))
    high = np.where(across, np.where(x.high == 0, -TINY, np.inf), np.where(high == 0, -TINY, high))
    return x.within(low, high, analytic=True).bad(x.holds(0))


def _reciprocal(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    return _inverse(operand_ranges[0])


def _divide(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    a, b = _operands(node, operand_ranges)
    if 1 not in operand_ranges:
        return _times(a, replace(_inverse(b), wild=b.wild))
    return _times(a, _inverse(b)).bad(b.holds(0))


def _modulo(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    a, b = _operands(node, operand_ranges)
    return UnitRange.anything(len(a.low)).bad(b.holds(0) if 1 in operand_ranges else b.wild)


def _total(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    x = operand_ranges[0]
    return x.within(np.where(x.low >= 0, x.low, -np.inf), np.where(x.high <= 0, x.high, np.inf))


def _with_zero(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    """Return the range of an extreme of numbers and zero."""
    x = operand_ranges[0]
    return x.within(np.minimum(x.low, 0), np.maximum(x.high, 0))


def _power(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    x, _ = _operands(node, operand_ranges)
    exponent = scalar(node.inputs[1])
    anything = UnitRange.anything(len(x.low))
    if exponent is None:
        positive = anything.within(TINY, np.inf)
        return positive.bad((x.low < 0) | x.holds(0))
    image = anything.within(0.0, np.inf) if exponent % 2 == 0 or exponent % 1 else anything
    image = replace(image, motion=x.motion)
    outside = x.low < 0 if exponent % 1 else np.zeros(len(x.low), dtype=bool)
    return image.bad(outside | (x.holds(0) if exponent < 0 else outside))


def _softsign(x: Floats) -> Floats:
    return np.where(np.isinf(x), np.sign(x), x / (1 + abs(x)))


def _chosen(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    _, a, b = _operands(node, operand_ranges)
    return a.union(b)


def _by_variance(node: Node, operand_ranges: OperandRanges) -> UnitRange:
    """Return the range of a division by the root of a stored variance plus eps.

    A unit of variance zero is divided by the root of eps.
    """
    anything = UnitRange.anything(len(operand_ranges[min(operand_ranges)].low))
    eps = node.real("epsilon", 1e-5)
    stored = 4 in operand_ranges and not node.integer("training_mode", 0)
    return anything.bad(operand_ranges[4].holds(-eps)) if stored else anything


def _of_all(function: Callable[[Node, OperandRanges], UnitRange]) -> Image:
    """Return the image of a function of several operands, whose domain is never widened."""
    return lambda node, operand_ranges, domain: function(node, operand_ranges)


IMAGES: Mapping[str, Image] = {
    "Exp": _Increasing(lambda x: np.maximum(np.exp(x), TINY)),
    "Sigmoid": _Increasing(lambda x: 1 / (1 + np.exp(-x)), limits=(0, 1)),  # onnxruntime: 0 at -18
    "Softplus": _Increasing(lambda x: np.maximum(np.logaddexp(0, x), TINY)),
    "Tanh": _Increasing(np.tanh, limits=(-1, 1)),
    "Erf": _Increasing(np.vectorize(math.erf, [np.float64]), limits=(-1, 1)),
    "Atan": _Increasing(np.arctan),
    "Asinh": _Increasing(np.arcsinh),
    "Sinh": _Increasing(np.sinh),
    "Softsign": _Increasing(_softsign, limits=(-1, 1)),
    "Floor": _Increasing(np.floor, analytic=False),
    "Ceil": _Increasing(np.ceil, analytic=False),
    "Round": _Increasing(np.round, analytic=False),
    "Sign": _Increasing(np.sign, analytic=False),
    "Sin": _bounded(-1, 1, np.sin),
    "Cos": _bounded(-1, 1, np.cos),
    "Cosh": _bounded(1, np.inf, np.cosh),
    "ReduceL1": _bounded(0, np.inf),
    "ReduceL2": _bounded(0, np.inf),
    "ReduceSumSquare": _bounded(0, np.inf),
    "Softmax": _bounded(TINY, 1, near=True),
    "HardSigmoid": _of_all(_hard_sigmoid),
    "Log": _Interval(0, np.inf, False, -np.inf, np.inf, np.log),
    "Sqrt": _Interval(0, np.inf, True, 0, np.inf, np.sqrt),
    "Asin": _Interval(-1, 1, True, -np.pi / 2, np.pi / 2, np.arcsin),
    "Acos": _Interval(-1, 1, True, 0, np.pi),
    "Atanh": _Interval(-1, 1, False, -np.inf, np.inf, np.arctanh),
    "Acosh": _Interval(1, np.inf, True, 0, np.inf),
    "ReduceLogSum": _Interval(0, np.inf, False, -np.inf, np.inf),
    "Abs": _of_all(_abs),
    "BatchNormalization": _of_all(_by_variance),
    "Elu": _of_all(_elu),
    "Neg": _of_all(_negative),
    "Add": _of_all(_sum),
    "Sum": _of_all(_sum),
    "Sub": _of_all(_difference),
    "Mul": _of_all(_multiply),
    "Div": _of_all(_divide),
    "Reciprocal": _of_all(_reciprocal),
    "Mod": _of_all(_modulo),
    "Pow": _of_all(_power),
    "MaxPool": _of_all(lambda node, ranges: reduce(UnitRange.union, ranges.values())),
    "Where": _of_all(_chosen),
    "ReduceSum": _of_all(_total),
    "growc::Largest": _of_all(_with_zero),
    "growc::Least": _of_all(_with_zero),
}

INCREASING = frozenset(
    op
    for op, image in IMAGES.items()
    if isinstance(image, _Increasing) or (isinstance(image, _Interval) and image.function is not None)
)
"""The functions of one operand that never decrease."""
