"""What operators make of ranges: elementwise ones, and those that move elements.

Needs: a node, and the ranges of its operands. Gives: the range of its result. An operator that is not here
gives any finite number for finite ones: a new one that has a pole belongs into POLES.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import reduce

import numpy as np

from growc.graph import Node
from growc.indexmap import Bools, Floats, Ints
from growc.passes.norms import scalar, without_eps
from growc.passes.unit_ranges import STILL, TINY, VARIES, Range

Operands = Mapping[int, Range]
"""The ranges of operands, by their numbers: those that have an element for each unit."""


def image(node: Node, given: Operands, domain: Bools) -> Range:
    """What an elementwise operator, or one that moves elements, gives.

    domain: rows that are in the domain of the operator since the source's units are: means of its interval.
    """
    first = given[min(given)]
    wild, ends = (np.logical_or.reduce([getattr(x, of) for x in given.values()]) for of in ("wild", "ends"))
    op = node.op.removeprefix("growc::").removeprefix("com.microsoft::")
    if op in DECIDED:
        return Range.anything(len(wild)).within(0.0, 1.0)
    if op in TOGETHER:
        made = TOGETHER[op](node, given)
    elif op in INCREASING:
        made = first.within(*map(INCREASING[op], (first.low, first.high)), analytic=op in ANALYTIC)
        near = [np.isin(end.astype(np.float32), LIMITS.get(op, ())) for end in (made.low, made.high)]
        made = replace(made, ends=near[0] | near[1])
    elif op in BOUNDED:
        made = _bounded(op, first)
    elif op in DOMAINS:
        made = _restricted(op, first, domain)
    elif op in MOVED:
        made = reduce(Range.union, given.values())
        if not node.outputs[0].floating:
            made = made.within(np.trunc(made.low), np.trunc(made.high))
    else:
        made = Range.anything(len(wild))
    return replace(made, wild=(made.wild & ~domain) | wild, ends=made.ends | ends)


def _quiet(function: Callable[[Floats], Floats]) -> Callable[[Floats], Floats]:
    def called(x: Floats) -> Floats:
        with np.errstate(all="ignore"):
            return np.asarray(function(x), dtype=np.float64)

    return called


DECIDED = frozenset(
    {"And", "Or", "Xor", "Not", "Equal", "Less", "LessOrEqual", "Greater", "GreaterOrEqual", "IsNaN", "IsInf"}
)
"""Truth values, whatever is compared."""

_MOVED = """
    Identity Cast CastLike Dropout Transpose Reshape Flatten Squeeze Unsqueeze Expand Tile Concat Split Slice
    Gather GatherND Compress SplitHeads MergeHeads Repeat Unfold ReduceMean ReduceMax ReduceMin
    GlobalAveragePool GlobalMaxPool MaxPool
"""
MOVED = frozenset(_MOVED.split())
"""Operators that give elements that they are given, or means of these."""

_INCREASING: dict[str, Callable[[Floats], Floats]] = {
    "Exp": lambda x: np.maximum(np.exp(x), TINY),
    "Sigmoid": lambda x: np.maximum(1 / (1 + np.exp(-x)), TINY),
    "Softplus": lambda x: np.maximum(np.logaddexp(0, x), TINY),
    "Tanh": np.tanh,
    "Erf": lambda x: np.vectorize(math.erf, otypes=[np.float64])(x),
    "Atan": np.arctan,
    "Asinh": np.arcsinh,
    "Sinh": np.sinh,
    "Softsign": lambda x: np.where(np.isinf(x), np.sign(x), x / (1 + abs(x))),
    "Relu": lambda x: np.maximum(x, 0),
    "Floor": np.floor,
    "Ceil": np.ceil,
    "Round": np.round,
    "Sign": np.sign,
}
INCREASING = {name: _quiet(function) for name, function in _INCREASING.items()}
ANALYTIC = frozenset({"Exp", "Sigmoid", "Softplus", "Tanh", "Erf", "Atan", "Asinh", "Sinh", "Softsign"})
"""Those that take no value on more than a null set, if their operand takes none."""

LIMITS = {"Sigmoid": (1,), "Tanh": (-1, 1), "Erf": (-1, 1), "Softsign": (-1, 1)}
"""Numbers other than zero that functions come near to, and are rounded to."""

BOUNDED: dict[str, tuple[float, float, Callable[[Floats], Floats]]] = {
    "Sin": (-1, 1, np.sin),
    "Cos": (-1, 1, np.cos),
    "Cosh": (1, np.inf, np.cosh),
    **dict.fromkeys(("ReduceL1", "ReduceL2", "ReduceSumSquare"), (0, np.inf, lambda x: x * np.nan)),
    "Softmax": (TINY, 1, lambda x: x * np.nan),
}
"""From where to where the results go, and the function where it is easily said."""
NEAR_ONE = frozenset({"Softmax"})
"""Those that come near to their upper bound, and are rounded to it."""

DOMAINS: dict[str, tuple[float, float, bool, float, float]] = {
    "Log": (0, np.inf, False, -np.inf, np.inf),
    "Sqrt": (0, np.inf, True, 0, np.inf),
    "Asin": (-1, 1, True, -np.pi / 2, np.pi / 2),
    "Acos": (-1, 1, True, 0, np.pi),
    "Atanh": (-1, 1, False, -np.inf, np.inf),
    "Acosh": (1, np.inf, True, 0, np.inf),
    "ReduceLogSum": (0, np.inf, False, -np.inf, np.inf),
}
"""From where to where, whether the ends belong to it, and from where to where the results go."""
MONOTONE = {
    "Log": _quiet(np.log),
    "Sqrt": _quiet(np.sqrt),
    "Asin": _quiet(np.arcsin),
    "Atanh": _quiet(np.arctanh),
}


def _bounded(op: str, x: Range) -> Range:
    low, high, function = BOUNDED[op]
    known = (x.low == x.high) & np.isfinite(x.low)
    value = function(np.where(known, x.low, 0.0))
    known &= ~np.isnan(value)
    made = x.within(np.where(known, value, low), np.where(known, value, high), analytic=True)
    return replace(made, ends=np.full(len(x.low), op in NEAR_ONE))


def _restricted(op: str, x: Range, domain: Bools) -> Range:
    """A function that is finite on an interval alone."""
    low, high, closed, bottom, top = DOMAINS[op]
    inside = (x.low >= low) & (x.high <= high)
    ends = np.logical_or.reduce([x.holds(end) for end in (low, high) if np.isfinite(end)]) & (not closed)
    function = MONOTONE.get(op)
    if function is None:
        made = x.within(bottom, top, analytic=True)
    else:
        made = x.within(*(function(np.clip(end, low, high)) for end in (x.low, x.high)), analytic=True)
    made = replace(made, low=np.where(domain, bottom, made.low), high=np.where(domain, top, made.high))
    return made.bad(~inside | ends)


# -------------------------------------------------------------------- operators with several operands


def _operands(node: Node, given: Operands) -> list[Range]:
    """All operands: what is one number for all units stands for each of them."""
    size = len(given[min(given)].low)
    found = []
    for i, value in enumerate(node.inputs):
        number = scalar(value)
        other = Range.anything(size)
        if number is not None and np.isfinite(number):
            other = Range.anything(size, STILL).within(number, number)
        if value is not None:
            found.append(given.get(i, other))
    return found


def _abs(node: Node, given: Operands) -> Range:
    x = given[0]
    low = np.where(x.holds(0) | (x.low <= 0) & (x.high >= 0), 0, np.minimum(abs(x.low), abs(x.high)))
    return x.within(low, np.maximum(abs(x.low), abs(x.high)), analytic=True)


def _elu(node: Node, given: Operands) -> Range:
    x, scale = given[0], float(node.attributes.get("alpha", 1.0))
    if scale < 0:
        return Range.anything(len(x.low))
    with np.errstate(over="ignore"):
        low, high = (np.where(end < 0, scale * np.expm1(end), end) for end in (x.low, x.high))
    made = x.within(low, high, analytic=scale > 0)
    return replace(made, ends=made.low == -scale)


def _hard_sigmoid(node: Node, given: Operands) -> Range:
    x, slope = given[0], float(node.attributes.get("alpha", 0.2))
    if slope <= 0:
        return Range.anything(len(x.low)).within(0.0, 1.0)
    low, high = (np.clip(slope * end + node.attributes.get("beta", 0.5), 0, 1) for end in (x.low, x.high))
    return replace(x.within(low, high, analytic=True), ends=(low == 0) | (high == 1))


def _negative(node: Node, given: Operands) -> Range:
    return given[0].within(-given[0].high, -given[0].low, analytic=True)


def _sum(node: Node, given: Operands) -> Range:
    return reduce(lambda a, b: _plus(a, b, 1), _operands(node, given))


def _difference(node: Node, given: Operands) -> Range:
    a, b = _operands(node, given)
    return _plus(a, b, -1)


def _plus(a: Range, b: Range, sign: int) -> Range:
    low, high = (b.low, b.high) if sign > 0 else (-b.high, -b.low)
    with np.errstate(invalid="ignore"):
        made = a.within(a.low + low, a.high + high)
    return replace(made, motion=_together(a, b))


def _together(a: Range, b: Range) -> Ints:
    """How a sum or a product moves: as one does where the other is a number, and else nobody knows."""
    return np.where(a.motion == STILL, b.motion, np.where(b.motion == STILL, a.motion, VARIES))


def _multiply(node: Node, given: Operands) -> Range:
    a, b = _operands(node, given)
    if node.inputs[0] is node.inputs[1]:
        size = _abs(node, {0: a})
        return size.within(size.low**2, size.high**2, analytic=True)
    return _times(a, b)


def _times(a: Range, b: Range) -> Range:
    with np.errstate(invalid="ignore", over="ignore"):
        ends = np.stack([x * y for x in (a.low, a.high) for y in (b.low, b.high)])
    ends = np.where(np.isnan(ends), 0.0, ends)  # zero times any finite number
    made = a.within(ends.min(axis=0), ends.max(axis=0))
    motion = np.where((made.low == 0) & (made.high == 0), STILL, _together(a, b))
    return replace(made, motion=motion)


def _inverse(x: Range) -> Range:
    """1/x: a pole where x is zero on more than a null set."""
    with np.errstate(divide="ignore", over="ignore"):
        ends = np.stack([1 / x.low, 1 / x.high])
    low, high = ends.min(axis=0), ends.max(axis=0)
    across = (x.low <= 0) & (x.high >= 0)
    low = np.where(across, np.where(x.low == 0, TINY, -np.inf), np.where(low == 0, TINY, low))
    high = np.where(across, np.where(x.high == 0, -TINY, np.inf), np.where(high == 0, -TINY, high))
    return x.within(low, high, analytic=True).bad(x.holds(0))


def _reciprocal(node: Node, given: Operands) -> Range:
    return _inverse(given[0])


def _divide(node: Node, given: Operands) -> Range:
    a, b = _operands(node, given)
    if 1 not in given:
        return _times(a, replace(_inverse(b), wild=b.wild))
    return _times(a, _inverse(b)).bad(b.holds(0))


def _modulo(node: Node, given: Operands) -> Range:
    a, b = _operands(node, given)
    return Range.anything(len(a.low)).bad(b.holds(0) if 1 in given else b.wild)


def _total(node: Node, given: Operands) -> Range:
    x = given[0]
    return x.within(np.where(x.low >= 0, x.low, -np.inf), np.where(x.high <= 0, x.high, np.inf))


def _power(node: Node, given: Operands) -> Range:
    x, _ = _operands(node, given)
    exponent = scalar(node.inputs[1])
    anything = Range.anything(len(x.low))
    if exponent is None:
        positive = anything.within(TINY, np.inf)
        return positive.bad((x.low < 0) | x.holds(0))
    made = anything.within(0.0, np.inf) if exponent % 2 == 0 or exponent % 1 else anything
    made = replace(made, motion=x.motion)
    outside = x.low < 0 if exponent % 1 else np.zeros(len(x.low), dtype=bool)
    return made.bad(outside | (x.holds(0) if exponent < 0 else outside))


def _clip(node: Node, given: Operands) -> Range:
    bounds = [node.attributes.get("min", -np.inf), node.attributes.get("max", np.inf)]
    for k in (1, 2):
        if node.input(k) is not None:
            number = scalar(node.input(k))
            bounds[k - 1] = bounds[k - 1] if number is None else number
    x = given[0]
    return x.within(np.clip(x.low, *bounds), np.clip(x.high, *bounds))


def _largest(node: Node, given: Operands) -> Range:
    function = np.maximum if node.op == "Max" else np.minimum
    ranges = _operands(node, given)
    low, high = (reduce(function, [getattr(r, end) for r in ranges]) for end in ("low", "high"))
    return ranges[0].within(low, high)


def _chosen(node: Node, given: Operands) -> Range:
    _, a, b = _operands(node, given)
    return a.union(b)


def _by_variance(node: Node, given: Operands) -> Range:
    """Divided by the root of a stored variance and eps: a unit of none is divided by the root of eps."""
    made = Range.anything(len(given[min(given)].low))
    eps = float(node.attributes.get("epsilon", 1e-5))
    return made.bad(given[4].holds(-eps)) if 4 in given else made


TOGETHER: dict[str, Callable[[Node, Operands], Range]] = {
    "Abs": _abs,
    "BatchNormalization": _by_variance,
    "Elu": _elu,
    "HardSigmoid": _hard_sigmoid,
    "Neg": _negative,
    "Add": _sum,
    "Sum": _sum,
    "Sub": _difference,
    "Mul": _multiply,
    "Div": _divide,
    "Reciprocal": _reciprocal,
    "Mod": _modulo,
    "Pow": _power,
    "Clip": _clip,
    "Max": _largest,
    "Min": _largest,
    "Where": _chosen,
    "ReduceSum": _total,
}

POLES = frozenset({*DOMAINS, "Div", "Reciprocal", "Mod", "Pow"})
"""Operators that are not finite on all finite numbers. No number of a machine is a pole of Tan."""


def has_pole(node: Node) -> bool:
    """Whether a node may be infinite on finite numbers: by what it computes, or for want of an eps."""
    return node.op in POLES or without_eps(node)
