"""Facts that hold for every element of a stream: its rounding and its bounds. Repeating either changes
nothing.

Needs: element types and numbers. Gives: `ElementFacts`, and the facts that remain after a rounding or a
bound.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from growc.algebra.indexmap import Array
from growc.ir.graph import Node, Value
from growc.ir.traits import REPEAT
from growc.passes.axes.norms import scalar


class Format(NamedTuple):
    """Numbers of `bits` significant binary digits below 2**`top`, multiples of 2**`step`."""

    bits: int
    top: int
    step: int
    signed: bool = True


FORMATS: Mapping[str, Format] = {
    "float64": Format(53, 1024, -1074),
    "float32": Format(24, 128, -149),
    "bfloat16": Format(8, 128, -133),
    "float16": Format(11, 16, -24),
    "float8e5m2": Format(3, 16, -16),
    "bool": Format(1, 1, 0, signed=False),
    **{f"int{n}": Format(n - 1, n - 1, 0) for n in (4, 8, 16, 32, 64)},
    **{f"uint{n}": Format(n, n, 0, signed=False) for n in (4, 8, 16, 32, 64)},
}
"""The numbers that each element type can hold. A type that is missing holds only numbers of its own type."""

REAL = frozenset(name for name in FORMATS if "float" in name)
"""Element types of real numbers."""


def holds(dtype: str, other: str) -> bool:
    """Whether an element type can hold every number of another one.

    >>> holds("float32", "bfloat16"), holds("float16", "bfloat16"), holds("float32", "int32")
    (True, False, False)
    """
    a, b = FORMATS.get(dtype), FORMATS.get(other)
    if dtype == other or a is None or b is None:
        return dtype == other
    room = a.bits >= b.bits and a.top >= b.top and a.step <= b.step
    return room and (a.signed or not b.signed) and (dtype in REAL or other not in REAL)


@dataclass(frozen=True)
class Grid:
    """The numbers that an operator rounds to, identified by the operator and its other operands.

    along: whether the operator works along axes, or has a scale for each unit of one.
    zero: whether zero is always among the numbers.
    node: one of the operators, for a quantising pair.
    """

    key: tuple[object, ...]
    along: bool
    zero: bool
    node: Node | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class ElementFacts:
    """Facts that hold for every element of a value: its bounds, and the grids that it lies on.

    dtype: the element type.
    low, high: the bounds.
    grids: names of element types, "whole" for whole numbers, and other grids.
    half: set between the two operators of a quantising pair: the first operator, its grid, and the facts
        before it.
    """

    dtype: str
    low: float = -math.inf
    high: float = math.inf
    grids: frozenset[str | Grid] = frozenset()
    half: tuple[str, Grid, ElementFacts] | None = None

    @staticmethod
    def of(value: Value) -> ElementFacts:
        """The facts that follow from the element type of a value."""
        form = FORMATS.get(value.dtype)
        low = 0.0 if form is not None and not form.signed else -math.inf
        return ElementFacts(value.dtype, low, grids=frozenset({value.dtype}))

    def on(self, grid: str | Grid) -> bool:
        """Whether every element lies on a grid. False for an unknown type."""
        if grid == "":
            return False
        types = [g for g in self.grids if isinstance(g, str) and g in FORMATS]
        if grid == "whole" and any(g not in REAL for g in types):
            return True
        return grid in self.grids or (isinstance(grid, str) and any(holds(grid, g) for g in types))

    def rounded(self, grid: str | Grid) -> ElementFacts:
        """The facts after rounding to a grid, to the nearest number or in one direction."""
        if self.on(grid):
            return replace(self, grids=self.grids | {grid})
        low = self.low if lies(self.low, grid) else -math.inf
        high = self.high if lies(self.high, grid) else math.inf
        remaining = {g for g in self.grids if outlasts(g, grid)}
        return replace(self, low=low, high=high, grids=frozenset({grid, *remaining}))

    def bounded(self, low: float, high: float) -> ElementFacts:
        """The facts after clamping to [low, high]."""
        if low <= self.low and self.high <= high:
            return self
        remaining = {g for g in self.grids if lies(low, g) and lies(high, g)}
        low, high = (min(max(b, low), high) for b in (self.low, self.high))
        return replace(self, low=low, high=high, grids=frozenset(remaining))

    def moved(self) -> ElementFacts:
        """The facts after elements have changed places: grids along axes no longer hold."""
        return replace(self, grids=frozenset(g for g in self.grids if isinstance(g, str) or not g.along))

    def same(self, other: ElementFacts) -> bool:
        """Whether both have the same type, and the same position in a quantising pair."""
        halves = [None if h is None else h[:2] for h in (self.half, other.half)]
        return self.dtype == other.dtype and halves[0] == halves[1]


def lies(bound: float, grid: str | Grid) -> bool:
    """Whether a number is on a grid. Infinity, which bounds nothing, is on every grid."""
    if math.isinf(bound):
        return True
    if isinstance(grid, Grid):
        return grid.zero and bound == 0
    if grid in REAL:
        return math.ldexp(math.frexp(bound)[0], FORMATS[grid].bits).is_integer()
    return bound.is_integer() if grid == "whole" else bound == 0


def outlasts(grid: str | Grid, other: str | Grid) -> bool:
    """Whether numbers on a grid stay on it when they are rounded to another grid.

    A whole number rounded to a real type stays whole. A real number needs no more digits after rounding to a
    whole number, or to a type with at least as many digits.
    """
    if isinstance(grid, Grid) or isinstance(other, Grid):
        return False
    if grid == "whole":
        return other in REAL
    if other in REAL:
        return grid in REAL and FORMATS[other].bits >= FORMATS[grid].bits
    return grid in REAL and (other == "whole" or other in FORMATS)


# ---------------------------------------------------------------------------- what stands beside


def numbers(value: Value | None) -> Array | None:
    """The stored numbers of a value; a single number if it fills a whole shape.

    None if they are not stored.
    """
    if value is None:
        return None
    if value.weight is not None:
        return value.weight.read()
    if value.known is not None:
        return value.known[0]
    node = value.producer
    if node is not None and node.laws.constant is not None:
        return node.laws.constant(node)
    repeated = numbers(node.inputs[0]) if node is not None and node.has(REPEAT) else None
    return repeated if repeated is not None and repeated.size == 1 else None


def content(value: Value | None) -> tuple[object, ...] | None:
    """The stored numbers of a value in a form that can be compared; None if they are not stored."""
    array = numbers(value)
    if value is None or array is None:
        return None
    arrays = (array,) if value.weight is not None or value.known is None else value.known
    shape = () if arrays[0].size == 1 else arrays[0].shape
    return str(arrays[0].dtype), shape, *dict.fromkeys(array.tobytes() for array in arrays)


def number(value: Value | None) -> float | None:
    """The number of a value that is one stored or known number; None otherwise."""
    if value is not None and value.weight is not None and value.weight.elements == 1:
        return float(value.weight.read().reshape(-1)[0])
    return scalar(value)
