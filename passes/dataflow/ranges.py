"""The ranges of the numbers of tensors.

Needs: a simulated graph, and rules by operator (growc.dialects.onnx.operators.number_ranges). Gives:
`Ranges`, the range of any value, computed on demand. The range of an operator without a rule follows from its
traits and laws; without these it is any number.

Integers of model inputs are assumed not to be negative, and a range names the inputs for which its lower
bound assumes that. Integers are assumed not to overflow, also where they are cast.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from growc.algebra import unit_ranges
from growc.ir.graph import Clamp, Image, Value, Weight, backward
from growc.ir.traits import JOIN, RANK, REPEAT, SAME, SIZES, SUM, TAKE, TURN, VIEW, WRITE, Trait
from growc.passes.dataflow.images import MEANS
from growc.passes.dataflow.intervals import (
    ANY,
    LIMITS,
    NOTHING,
    At,
    Seen,
    TensorRange,
    UnknownRangeError,
    in_place,
    of_array,
    of_type,
    union,
)

RangeRule = Callable[[At], TensorRange]

FEW = 1024
"""Number of elements. Real weights with more elements are not read."""


@dataclass
class Ranges:
    """The ranges of one graph that were asked for so far."""

    rules: Mapping[str, RangeRule]
    ranges: dict[tuple[Value, Seen], TensorRange] = field(default_factory=dict)
    stored: dict[Weight, TensorRange] = field(default_factory=dict)

    def of(self, value: Value) -> TensorRange:
        """The range of a value. Computed without recursion, since graphs are deep."""
        pending = [(value, NOTHING)]
        while pending:
            key = pending[-1]
            try:
                if key not in self.ranges:
                    self.ranges[key] = self._made(*key)
                pending.pop()
            except UnknownRangeError as missing:
                pending.append(missing.key)
        return self.ranges[value, NOTHING]

    def _made(self, value: Value, seen: Seen) -> TensorRange:
        interval = self._source(value)
        if interval is None:
            node = value.producer
            assert node is not None
            at, clamp = At(self.ranges, node, value, seen), node.laws.clamp
            interval = self.rules.get(node.op, stated)(at)
            interval = interval if clamp is None else _clamped(at, clamp(node))
            interval = interval.meet(of_type(value.dtype))
        for known, known_range in seen:
            interval = interval.meet(known_range) if known is value else interval
        return interval

    def _source(self, value: Value) -> TensorRange | None:
        """The range of a value that no operator computes, or of a size; None for all others."""
        if value.weight is not None:
            return self._weight(value.weight)
        if value.known is not None and _is_size(value):
            return of_array(value.known[0])
        if value.producer is not None:
            return None
        whole = of_type(value.dtype)
        return TensorRange(0, whole.high, frozenset([value])) if -math.inf < whole.low < 0 else whole

    def _weight(self, weight: Weight) -> TensorRange:
        if weight not in self.stored:
            few = weight.dtype != "string" and (not weight.floating or weight.elements <= FEW)
            self.stored[weight] = of_array(np.asarray(weight.read())) if few and weight.known else ANY
        return self.stored[weight]


def _clamped(at: At, clamp: Clamp) -> TensorRange:
    """The range of a clamp: the largest of some operands, then the least of that and other operands."""

    def of(bound: Value | float) -> TensorRange:
        return TensorRange(bound, bound) if isinstance(bound, float) else at.of(bound, at.seen)

    lower_bounds = [*map(of, clamp.largest)]
    low = max(r.low for r in lower_bounds)
    is_certain = any(r.low == low and not r.rests for r in lower_bounds)
    rests = frozenset[Value]() if is_certain else union(*lower_bounds).rests
    larger = TensorRange(low, max(r.high for r in lower_bounds), rests, any(r.wild for r in lower_bounds))
    both = [larger, *map(of, clamp.least)]
    return replace(union(*both), high=min(r.high for r in both))


def stated(at: At) -> TensorRange:
    """The range of a result by the traits and laws of its operator."""
    node, laws = at.node, at.node.laws
    if node.made_of is not None and (operands := node.sources(at.result)):
        return union(*map(at.of, operands))
    if laws.constant is not None:
        return of_array(laws.constant(node))
    if laws.puts is not None:
        return union(at(0), *(TensorRange(x, x) for x in laws.puts))
    for trait, rule in BY_TRAIT.items():
        if node.has(trait):
            return rule(at)
    if laws.image is not None:
        return _of_anything(at, laws.image)
    return moved(at) if node.treatment in MEANS else ANY


def _of_anything(at: At, image: Image) -> TensorRange:
    """The range of an operator's results on any operands in its domain.

    The bounds are rounded outwards to whole numbers, since element types round others.
    """
    every = {i: unit_ranges.UnitRange.anything(1) for i, v in enumerate(at.node.inputs) if v is not None}
    interval = image(at.node, every, np.zeros(1, dtype=bool))
    wild = any(x.wild for x in at.all(elementwise=False))
    low, high = np.floor(interval.low).item(), np.ceil(interval.high).item()
    return ANY if interval.wild.any() else TensorRange(low, high, wild=wild)


def moved(at: At) -> TensorRange:
    """The range of operand 0, whose elements move."""
    return at(0, elementwise=False)


def total(at: At) -> TensorRange:
    """The range of the sum of all operands."""
    whole, *others = at.all()
    for x in others:
        wild = whole.wild or x.wild
        whole = TensorRange(whole.low + x.low, whole.high + x.high, whole.rests | x.rests, wild)
    return whole


def wrapping(rule: RangeRule) -> RangeRule:
    """The rule of a sum or product of integers that may be wild, made from the plain rule.

    A cast may have turned NaN into the least number of the type. Arithmetic wraps around there, and its
    results may be any.
    """

    def made(at: At) -> TensorRange:
        interval, type_range = rule(at), of_type(at.result.dtype)
        fits = type_range.low < interval.low and interval.high < type_range.high
        return replace(type_range, wild=True) if at.whole and interval.wild and not fits else interval

    return made


def _cast(at: At) -> TensorRange:
    x, type_range = at(0), of_type(at.result.dtype)
    if not at.whole:
        return x
    operand = at.node.inputs[0]
    if type_range.low < 0 and operand is not None and operand.dtype in LIMITS:
        return x.meet(type_range)
    if x.wild or x.low < type_range.low or x.high > type_range.high:
        return replace(type_range, wild=True)
    return TensorRange(math.trunc(x.low), math.trunc(x.high), x.rests)


def _size(at: At) -> TensorRange:
    value, node = at.node.inputs[0], at.node
    sizes = (None if value is None else value.sizes) or ()
    sizes = sizes[node.integer("start") : node.integer("end", len(sizes))]
    return TensorRange(min((s[0] if len(set(s)) == 1 else 0 for s in sizes), default=0))


def _written(at: At) -> TensorRange:
    value = at.node.real("value")
    filler = TensorRange(value, value) if at.node.input(2) is None else at(2, elementwise=False)
    both = union(moved(at), filler)
    if at.node.attributes.get("reduction", "none") == "none":
        return both
    return TensorRange(0, rests=both.rests) if both.low >= 0 else ANY


BY_TRAIT: Mapping[Trait, RangeRule] = {
    SAME: _cast,
    VIEW: moved,
    TURN: moved,
    REPEAT: lambda at: at(0, elementwise=in_place(at.node)),
    TAKE: moved,
    JOIN: lambda at: union(*at.all(elementwise=False)),
    WRITE: _written,
    SIZES: _size,
    SUM: wrapping(total),
    RANK: lambda at: TensorRange(0) if at.result is at.node.outputs[-1] else moved(at),
}
"""The rules of operators by their trait."""


def _is_size(value: Value) -> bool:
    """Whether a value has elements of a shape, and they are the same for all inputs."""
    known = value.known or ()
    if any(not np.array_equal(k, known[0]) for k in known):
        return False
    node = backward(value, lambda node: node.has(SAME, VIEW, TAKE)).producer
    return node is not None and node.has(SIZES)
