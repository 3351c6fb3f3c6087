"""Ranges of operators' results, derived from the ranges of their operands.

growc.passes.dataflow.ranges uses these rows, and traits and laws where there is no row. The condition of
`Where` restricts its other operands. In `where(x < 8, a, f(x))`, f sees numbers from 8 on, as long as only
elementwise operators stand between.

Several operators also have a row in growc.dialects.onnx.operators.unit_images, which is no copy. A pole is a
number here (infinity); units are no numbers behind it. Here x + x and x · x are a sum and a product of any
two numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from growc.passes.dataflow.intervals import ANY, At, TensorRange, says, union
from growc.passes.dataflow.ranges import RangeRule, moved, stated, wrapping


def _corners(a: TensorRange, b: TensorRange, function: Callable[[float, float], float]) -> TensorRange:
    """Return the range of a function that is monotonic in each of two numbers."""
    corners = [function(x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    return TensorRange(min(corners), max(corners), a.rests | b.rests, a.wild or b.wild)


def _subtract(at: At) -> TensorRange:
    a, b = at(0), at(1)
    return TensorRange(a.low - b.high, a.high - b.low, a.rests, a.wild or b.wild)


def _multiply(at: At) -> TensorRange:
    return _corners(at(0), at(1), lambda x, y: 0.0 if x == 0 or y == 0 else x * y)


def _divide(at: At) -> TensorRange:
    a, b = at(0), at(1)
    if b.low <= 0 <= b.high:  # integers are never divided by zero
        return TensorRange(0, a.high, a.rests | b.rests) if at.whole and min(a.low, b.low) >= 0 else WILD

    def quotient(x: float, y: float) -> float:
        if math.isinf(y):
            return 0.0 if math.isfinite(x) else math.copysign(math.inf, x) * math.copysign(1, y)
        return float(math.trunc(x / y)) if at.whole and math.isfinite(x) else x / y

    return _corners(a, b, quotient)


def _remainder(at: At) -> TensorRange:
    a, b = at(0), at(1)
    wild = not at.whole and (a.wild or b.wild or b.low <= 0)
    if at.node.attributes.get("fmod", 0):  # fmod has the sign of the dividend, Mod that of the divisor
        return TensorRange(0 if a.low >= 0 else a.low, max(a.high, 0), a.rests, wild)
    return TensorRange(min(b.low, 0), max(b.high, 0), b.rests, wild)


def _power(at: At) -> TensorRange:
    a, b = at(0), at(1)
    if b.low == b.high == 2:
        return TensorRange(0, wild=a.wild)
    return TensorRange(0, wild=a.wild or b.wild or b.low < 0) if a.low >= 0 else WILD


def _monotonic(function: Callable[[float], float], least: float = -math.inf) -> RangeRule:
    """Return the rule of a function that increases with its number, and has no value below `least`."""

    def rule(at: At) -> TensorRange:
        x = at(0)
        ends = [function(max(n, least)) for n in (x.low, x.high)]
        return TensorRange(min(ends), max(ends), x.rests, x.wild or x.low < least)

    return rule


def _rounded(function: Callable[[float], int]) -> RangeRule:
    return _monotonic(lambda x: float(function(x)) if math.isfinite(x) else x)


def _logarithm(x: float) -> float:
    return -math.inf if x == 0 else math.log(x)


def _negative(at: At) -> TensorRange:
    x = at(0)
    return TensorRange(-x.high, -x.low, wild=x.wild)


def _absolute(at: At) -> TensorRange:
    x = at(0)
    return x if x.low >= 0 and not x.rests else TensorRange(max(0, -x.high), max(-x.low, x.high), wild=x.wild)


def _numbers(first: int = 0) -> RangeRule:
    """Return the rule of results that number units from index `first` on.

    Results before hold elements of operand 0.
    """
    return lambda at: moved(at) if at.place < first else TensorRange(0)


def _count_up(at: At) -> TensorRange:
    start, limit, step = at.all(elementwise=False)
    if step.low > 0:
        return TensorRange(start.low, max(start.low, limit.high), start.rests)
    return union(start, limit)


def _running_sum(at: At) -> TensorRange:
    x, own = at(0, elementwise=False), at(0)
    if x.low >= 0:  # each sum includes the element at its own place
        return TensorRange(
            0 if at.node.attributes.get("exclusive", 0) else own.low, rests=x.rests, wild=x.wild
        )
    return TensorRange(high=0 if x.high <= 0 else math.inf, wild=x.wild)


def _sum_along(at: At) -> TensorRange:
    x = moved(at)
    return TensorRange(0 if x.low >= 0 else -math.inf, 0 if x.high <= 0 else math.inf, x.rests, x.wild)


def _products(at: At) -> TensorRange:
    ranges = at.all(elementwise=False)
    wild = any(r.wild for r in ranges)
    return TensorRange(0, rests=union(*ranges).rests, wild=wild) if min(r.low for r in ranges) >= 0 else ANY


def _chosen(at: At) -> TensorRange:
    condition = at.node.inputs[0]
    assert condition is not None
    return union(*(at(i, *says(at, condition, i == 1)) for i in (1, 2)))


def _common_bits(at: At) -> TensorRange:
    least = min(at.all(), key=lambda x: (x.low < 0, x.high))
    return TensorRange(0, least.high, least.rests) if least.low >= 0 else ANY


WILD = TensorRange(wild=True)

RANGES: Mapping[str, RangeRule] = {
    "Abs": wrapping(_absolute),
    "BitwiseAnd": _common_bits,
    "Ceil": _rounded(math.ceil),
    "CumSum": wrapping(_running_sum),
    "Div": _divide,
    "EyeLike": lambda at: TensorRange(0, 1),
    "Floor": _rounded(math.floor),
    "Hardmax": lambda at: TensorRange(0, 1),
    "Log": _monotonic(_logarithm, 0),
    "Loop begin": lambda at: TensorRange(0) if at.place == 0 else stated(at),  # the number of the iteration
    "MatMul": _products,
    "MaxPool": _numbers(1),
    "Mean": lambda at: union(*at.all()),
    "Mod": _remainder,
    "Mul": wrapping(_multiply),
    "Neg": wrapping(_negative),
    "NonMaxSuppression": _numbers(),
    "NonZero": _numbers(),
    "OneHot": lambda at: at(2, elementwise=False),
    "Pow": wrapping(_power),
    "Range": _count_up,
    "ReduceSum": wrapping(_sum_along),
    "Round": _rounded(round),
    "Sign": _rounded(lambda x: (x > 0) - (x < 0)),
    "Sqrt": _monotonic(math.sqrt, 0),
    "Sub": wrapping(_subtract),
    "Unique": _numbers(1),
    "Where": _chosen,
    "growc::Positions": _numbers(),
}
"""The rules of operators whose traits and laws give wider ranges."""
