"""What holds for every element of a stream: what it was rounded to and bounded by, so that the same again
changes nothing.

Needs: element types and numbers. Gives: `Settled`, and what is left of it behind a rounding or a bound.
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
    """Numbers of `bits` significant binary digits, to 2 to the power of `top`, multiples of 2**`step`."""

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
"""Element types by what they can hold; one that is missing holds nothing but itself."""

REAL = frozenset(name for name in FORMATS if "float" in name)


def holds(dtype: str, other: str) -> bool:
    """Whether every number of another element type is one of this.

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
    """Numbers that an operator rounds to, told apart by the operator and the numbers beside it.

    along: whether it does so along axes, or with a scale for each unit of one. zero: whether zero is always
    among them. node: of a quantising pair, one of its operators.
    """

    key: tuple[object, ...]
    along: bool
    zero: bool
    node: Node | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Settled:
    """What holds for every element: the bounds that it lies in, and the grids that it lies on.

    dtype: its type. grids: names of element types, "whole" for whole numbers, and others. half: the operator
    of a quantising pair that it has been through, its grid, and what was known before.
    """

    dtype: str
    low: float = -math.inf
    high: float = math.inf
    grids: frozenset[str | Grid] = frozenset()
    half: tuple[str, Grid, Settled] | None = None

    @staticmethod
    def of(value: Value) -> Settled:
        """What its type tells of a value."""
        form = FORMATS.get(value.dtype)
        low = 0.0 if form is not None and not form.signed else -math.inf
        return Settled(value.dtype, low, grids=frozenset({value.dtype}))

    def on(self, grid: str | Grid) -> bool:
        """Whether every element lies on a grid; nothing is known of a type that was not found."""
        if grid == "":
            return False
        types = [g for g in self.grids if isinstance(g, str) and g in FORMATS]
        if grid == "whole" and any(g not in REAL for g in types):
            return True
        return grid in self.grids or (isinstance(grid, str) and any(holds(grid, g) for g in types))

    def rounded(self, grid: str | Grid) -> Settled:
        """After taking the nearest number on a grid, or the next one in a direction."""
        if self.on(grid):
            return replace(self, grids=self.grids | {grid})
        low = self.low if lies(self.low, grid) else -math.inf
        high = self.high if lies(self.high, grid) else math.inf
        kept = {g for g in self.grids if outlasts(g, grid)}
        return replace(self, low=low, high=high, grids=frozenset({grid, *kept}))

    def bounded(self, low: float, high: float) -> Settled:
        """After taking the nearest number between two."""
        if low <= self.low and self.high <= high:
            return self
        kept = {g for g in self.grids if lies(low, g) and lies(high, g)}
        low, high = (min(max(b, low), high) for b in (self.low, self.high))
        return replace(self, low=low, high=high, grids=frozenset(kept))

    def moved(self) -> Settled:
        """After elements have found other places: what holds along axes is not known any more."""
        return replace(self, grids=frozenset(g for g in self.grids if isinstance(g, str) or not g.along))

    def same(self, other: Settled) -> bool:
        """Whether both are of one type, and as far into a quantising pair."""
        halves = [None if h is None else h[:2] for h in (self.half, other.half)]
        return self.dtype == other.dtype and halves[0] == halves[1]


def lies(bound: float, grid: str | Grid) -> bool:
    """Whether a number is on a grid; infinity, which bounds nothing, is on all."""
    if math.isinf(bound):
        return True
    if isinstance(grid, Grid):
        return grid.zero and bound == 0
    if grid in REAL:
        return math.ldexp(math.frexp(bound)[0], FORMATS[grid].bits).is_integer()
    return bound.is_integer() if grid == "whole" else bound == 0


def outlasts(grid: str | Grid, other: str | Grid) -> bool:
    """Whether numbers on a grid are still on it once they are rounded to another one.

    A whole number that is rounded to a real type is whole. A real one needs no more digits when it is made
    whole, nor when it is rounded to a type of at least as many.
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
    """What a value holds; the number where it is one throughout a shape; None where it is not stored."""
    if value is None:
        return None
    if value.weight is not None:
        return value.weight.read()
    if value.known is not None:
        return value.known[0]
    node = value.producer
    if node is not None and node.laws.constant is not None:
        return node.laws.constant(node)
    one = numbers(node.inputs[0]) if node is not None and node.has(REPEAT) else None
    return one if one is not None and one.size == 1 else None


def content(value: Value | None) -> tuple[object, ...] | None:
    """The same, to be compared."""
    array = numbers(value)
    if value is None or array is None:
        return None
    found = (array,) if value.weight is not None or value.known is None else value.known
    shape = () if found[0].size == 1 else found[0].shape
    return str(found[0].dtype), shape, *dict.fromkeys(array.tobytes() for array in found)


def number(value: Value | None) -> float | None:
    """The one number that a value is, stored or known."""
    if value is not None and value.weight is not None and value.weight.elements == 1:
        return float(value.weight.read().reshape(-1)[0])
    return scalar(value)
