"""Intervals that contain the numbers of a tensor, and bounds that follow from conditions.

Needs: a node, the intervals of its operands. Gives: `TensorRange`, `At` (a node as the rules of
growc.passes.dataflow.ranges see it) and `says`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Array
from growc.ir.graph import Node, Value
from growc.ir.traits import REPEAT, SAME

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
LIMITS: dict[str, tuple[float, float]] = {
    **{name: (float(np.iinfo(name).min), float(np.iinfo(name).max)) for name in INTEGERS},
    "bool": (0.0, 1.0),
}
"""The least and the largest number of each type that has only integers."""


@dataclass(frozen=True)
class TensorRange:
    """An interval [low, high] that contains all numbers of a tensor.

    wild: elements may also be NaN (0/0, the logarithm of -1), or what a cast makes of NaN as an integer.
    rests: the inputs whose integers must not be negative for `low` to hold.
    """

    low: float = -math.inf
    high: float = math.inf
    rests: frozenset[Value] = frozenset()
    wild: bool = False

    def meet(self, other: TensorRange) -> TensorRange:
        """The intersection with another range."""
        rests = self.rests if self.low >= other.low else other.rests
        low, high = max(self.low, other.low), min(self.high, other.high)
        return TensorRange(low, max(low, high), rests, self.wild)


ANY = TensorRange()
Seen = frozenset[tuple[Value, TensorRange]]
"""Ranges of values that follow from conditions, where these hold."""
NOTHING: Seen = frozenset()


def union(*ranges: TensorRange) -> TensorRange:
    """The smallest range that contains all ranges."""
    rests = frozenset[Value]().union(*(r.rests for r in ranges))
    low, high = min(r.low for r in ranges), max(r.high for r in ranges)
    return TensorRange(low, high, rests, any(r.wild for r in ranges))


def of_type(dtype: str) -> TensorRange:
    """The range of an element type."""
    return TensorRange(*LIMITS[dtype]) if dtype in LIMITS else ANY


def of_array(numbers: Array) -> TensorRange:
    """The range of an array; ANY where it is empty, has no real numbers, or has a NaN."""
    if not numbers.size or numbers.dtype.kind not in "bifu":
        return ANY
    wild = numbers.dtype.kind == "f" and bool(np.isnan(numbers).any())
    return ANY if wild else TensorRange(float(numbers.min()), float(numbers.max()))


class UnknownRangeError(Exception):
    """A rule needs a range that is not computed yet. key: what must be computed first."""

    def __init__(self, key: tuple[Value, Seen]) -> None:
        super().__init__(key[0].name)
        self.key = key


@dataclass(frozen=True)
class At:
    """One result of a node, as its rule sees it.

    ranges: the ranges so far. seen: the ranges that conditions give where the result is used.
    """

    ranges: Mapping[tuple[Value, Seen], TensorRange]
    node: Node
    result: Value
    seen: Seen = NOTHING

    def __call__(self, i: int, *told: tuple[Value, TensorRange], elementwise: bool = True) -> TensorRange:
        """The range of operand i; ANY where it is absent. Raises UnknownRangeError where it is not known yet.

        `told`: further ranges that hold where the operand is used. Conditions apply to operands that are used
        element by element, and not to operands whose elements move.
        """
        value = self.node.input(i)
        seen = self.seen.union(told) if elementwise else NOTHING
        return ANY if value is None else self.of(value, seen)

    def of(self, value: Value, seen: Seen = NOTHING) -> TensorRange:
        """The range of a value. Raises UnknownRangeError where it is not computed yet."""
        if (value, seen) not in self.ranges:
            raise UnknownRangeError((value, seen))
        return self.ranges[value, seen]

    def all(self, *, elementwise: bool = True) -> list[TensorRange]:
        """The ranges of all operands."""
        operands = (i for i, v in enumerate(self.node.inputs) if v is not None)
        return [self(i, elementwise=elementwise) for i in operands]

    @property
    def place(self) -> int:
        """The number of the result among those of its node."""
        return self.node.outputs.index(self.result)

    @property
    def whole(self) -> bool:
        """Whether the numbers of the result are integers."""
        return self.result.dtype in LIMITS


SIGNS = frozenset({-1, 0, 1})
"""The possible signs of the difference of two numbers."""


def says(at: At, condition: Value, truth: bool) -> Iterator[tuple[Value, TensorRange]]:
    """Yield the ranges of values where a condition is true, or where it is false."""
    node = condition.producer
    operands = [] if node is None else [v for v in node.inputs if v is not None]
    if node is None or not operands:
        return
    if truth in node.laws.implies:
        for operand in operands:
            yield from says(at, operand, node.laws.implies[truth])
    elif node.laws.signs:
        yield from _compared(at, *operands, signs=node.laws.signs if truth else SIGNS - node.laws.signs)
    elif in_place(node) and operands[0].dtype == condition.dtype:
        yield from says(at, operands[0], truth)
    elif node.has(SAME):  # a cast to bool: a number is true where it is not zero
        yield from (
            _differ(at, operands[0], TensorRange(0, 0)) if truth else _told(operands[0], TensorRange(0, 0))
        )


def _compared(
    at: At, first: Value, second: Value, *, signs: frozenset[int]
) -> Iterator[tuple[Value, TensorRange]]:
    """Yield the ranges of two values where their difference has one of these signs."""
    if signs in ({0}, SIGNS - {0}):
        for one, other in ((first, second), (second, first)):
            other_range = at.of(other)
            yield from _told(one, other_range) if 0 in signs else _differ(at, one, other_range)
        return
    small, large = (first, second) if -1 in signs else (second, first)
    step = 1 if 0 not in signs and small.dtype in LIMITS else 0
    below, above = at.of(small), at.of(large)
    yield from _told(small, TensorRange(high=above.high - step))
    yield from _told(large, TensorRange(below.low + step, rests=below.rests))


def in_place(node: Node) -> bool:
    """Whether each element of a result is the element of operand 0 at the same place, after broadcasting."""
    first = node.input(0)
    before, after = None if first is None else first.sizes, node.outputs[0].sizes
    if not node.has(REPEAT) or before is None or after is None:
        return node.has(SAME)
    pairs = zip(reversed(before), reversed(after), strict=False)
    return len(before) <= len(after) and all(a == b or set(a) == {1} for a, b in pairs)


def _differ(at: At, value: Value, other: TensorRange) -> Iterator[tuple[Value, TensorRange]]:
    """Yield the range of an integer that is not `other`, if `other` is one of its bounds."""
    own = at.of(value)
    if other.low == other.high and value.dtype in LIMITS:
        if own.low == other.low:
            yield from _told(value, TensorRange(own.low + 1, rests=own.rests))
        if own.high == other.high:
            yield from _told(value, TensorRange(high=own.high - 1))


def _told(value: Value, told: TensorRange) -> Iterator[tuple[Value, TensorRange]]:
    """Yield a range of a value, and of the integers that it copies element by element."""
    yield value, told
    while (node := value.producer) is not None and (copied := node.input(0)) is not None and in_place(node):
        value = copied
        if value.dtype not in LIMITS:
            return
        yield value, told
