"""What holds for every element of a stream: what it was rounded to and bounded by, so that the same again
changes nothing.

Needs: nodes with element types, and the numbers beside them. Gives: `Settled`, and `through`, what an
operator makes of a tensor of which that is known, and whether each element stays the number that it was.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from growc.graph import Array, Node, Value
from growc.passes.norms import scalar

LAYOUT = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Flatten"})
"""Operators that move elements about."""

CASTS = frozenset({"Cast", "CastLike", "Dropout", "Identity"})
WHOLE = frozenset({"Round", "Floor", "Ceil"})
QUANTISE, DEQUANTISE = "QuantizeLinear", "DequantizeLinear"

TWICE: Mapping[str, bool] = {
    "Sign": False,
    "ThresholdedRelu": False,
    "Hardmax": True,
    "LpNormalization": True,
    "Trilu": True,
}
"""Other operators that change nothing the second time; whether they do so along axes."""


CHOOSING = frozenset({"ThresholdedRelu", "Trilu"})
"""Those of them that leave each number or make it zero."""


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


# -------------------------------------------------------------------------------------- operators


def through(node: Node, place: int, held: Settled, like: Node | None = None) -> tuple[Settled, bool]:
    """What holds behind a node of what its operand `place` held, and whether each element stays as it is.

    like: the quantising operator whose steps the node takes in the place of its own.
    """
    out = node.outputs[0]
    if node.op in (QUANTISE, DEQUANTISE):
        return (_quantised if node.op == QUANTISE else _dequantised)(node, held, like or node)
    if node.op in LAYOUT:
        return held.moved(), True
    if (node.op in CASTS and not trains(node)) or node.op in WHOLE:
        grid = "whole" if node.op in WHOLE else out.dtype
        return _open(replace(held.rounded(grid), dtype=out.dtype), held.on(grid))
    if node.op in BOUNDS and (found := BOUNDS[node.op](node, place)) is not None:
        now = held.bounded(*found)
        return _open(now, now is held) if node.op != "Abs" or now is held else (_positive(now), False)
    grid_of = _twice(node) if place == 0 else None
    if grid_of is not None and held.half is None:
        same = grid_of in held.grids
        kept = {g for g in held.grids if node.op in CHOOSING and lies(0.0, g)}
        now = replace(Settled.of(out), grids=frozenset({out.dtype, grid_of, *kept}))
        return (held if same else now), same
    return Settled.of(out), False


def steps_for(node: Node, held: Settled) -> Node | None:
    """An operator with the steps that a tensor is on, which a quantising node could have for its own."""
    own = [
        g.node for g in (held.half[1:2] if held.half else held.grids) if isinstance(g, Grid) and not g.along
    ]
    fitting = (
        one
        for one in own
        if one is not None and _whole(one) == _whole(node) and len(one.inputs) == len(node.inputs)
    )
    return next(fitting, None) if node.op in (QUANTISE, DEQUANTISE) else None


def settles(node: Node, place: int) -> bool:
    """Whether a node may leave an operand as it is, depending on what holds of that."""
    if node.op in BOUNDS:
        return BOUNDS[node.op](node, place) is not None
    own = LAYOUT | CASTS | WHOLE | TWICE.keys() | {QUANTISE, DEQUANTISE}
    return place == 0 and node.op in own and not trains(node)


def trains(node: Node) -> bool:
    """Whether a dropout may be one that drops."""
    training = node.input(2) if node.op == "Dropout" else None
    told = numbers(training)
    return training is not None and (told is None or bool(told.any()))


def widens(node: Node) -> bool:
    """Whether a cast holds every number of the type that it takes."""
    given = node.input(0)
    return node.op in CASTS and given is not None and holds(node.outputs[0].dtype, given.dtype)


def _open(held: Settled, same: bool) -> tuple[Settled, bool]:
    """What is changed between two quantising operators is no pair of them any more."""
    return (held if same else replace(held, half=None)), same


def _positive(held: Settled) -> Settled:
    """Behind an absolute value: only its type bounds what else may be said."""
    return replace(held, grids=frozenset(g for g in held.grids if g in REAL or g == "whole"), half=None)


def _twice(node: Node) -> Grid | None:
    beside = [content(v) for v in node.inputs[1:] if v is not None]
    if node.op not in TWICE or None in beside:
        return None
    attributes = tuple(sorted((name, str(v)) for name, v in node.attributes.items()))
    return Grid((node.op, attributes, *beside), TWICE[node.op], not TWICE[node.op])


# ------------------------------------------------------------------------------------------ bounds

Bounds = tuple[float, float] | None


def _number(value: Value | None) -> float | None:
    """The one number that a value is, stored or known."""
    if value is not None and value.weight is not None and value.weight.elements == 1:
        return float(value.weight.read().reshape(-1)[0])
    return scalar(value)


def _between(node: Node, place: int) -> Bounds:
    given = (node.input(1), node.input(2))
    found = [
        float(node.attributes.get(name, default)) if v is None else _number(v)
        for v, name, default in zip(given, ("min", "max"), (-math.inf, math.inf), strict=True)
    ]
    low, high = found
    return None if place != 0 or low is None or high is None or low > high else (low, high)


def _beyond(node: Node, place: int) -> Bounds:
    numbers = [_number(v) for i, v in enumerate(node.inputs) if i != place]
    known = [n for n in numbers if n is not None]
    if len(known) < len(numbers):
        return None
    return (max(known), math.inf) if node.op == "Max" else (-math.inf, min(known))


BOUNDS: Mapping[str, Callable[[Node, int], Bounds]] = {
    "Abs": lambda node, place: (0.0, math.inf),
    "Relu": lambda node, place: (0.0, math.inf),
    "Clip": _between,
    "growc::Clip": _between,
    "Max": _beyond,
    "Min": _beyond,
}
"""Operators that take the nearest number between two, which they give."""


# -------------------------------------------------------------------------------------- quantising


def numbers(value: Value | None) -> Array | None:
    """What a value holds; None where it is not stored."""
    if value is None:
        return None
    if value.weight is not None:
        return value.weight.read()
    return None if value.known is None else value.known[0]


def content(value: Value | None) -> tuple[object, ...] | None:
    """The same, to be compared."""
    array = numbers(value)
    if array is None:
        return None
    return (array.reshape(-1) if array.size == 1 else array).shape, array.tobytes()


def _whole(node: Node) -> str:
    """The element type of the whole numbers of a quantising operator."""
    value = node.inputs[0] if node.op == DEQUANTISE else node.outputs[0]
    return "" if value is None else value.dtype


def _grid(node: Node, like: Node) -> tuple[Grid, float] | None:
    """The grid of a quantising operator, with the steps of another, and its lowest number.

    None where it is not known, or where numbers on it are not found again: q·s, rounded and divided by s, is
    within a half of q only in enough digits.
    """
    value, whole = node.outputs[0] if node.op == DEQUANTISE else node.inputs[0], _whole(node)
    real = "" if value is None else value.dtype
    scale, zero = content(like.input(1)), content(like.input(2))
    form, digits = FORMATS.get(whole), FORMATS.get(real)
    if scale is None or form is None or digits is None or (zero is None and like.input(2) is not None):
        return None
    if form.bits + form.signed + 3 > digits.bits:
        return None
    least, most = (-(2**form.top) if form.signed else 0), 2**form.top - 1
    middle = _number(like.input(2)) if like.input(2) is not None else 0.0
    ends = (whole, zero) if middle is None else (least - middle, most - middle)
    single = scale[0] == (1,)
    where = () if single else (like.attributes.get("axis", 1), like.attributes.get("block_size", 0))
    return Grid((scale, ends, where), not single, True, like), 0.0 if middle == least else -math.inf


def _quantised(node: Node, held: Settled, like: Node) -> tuple[Settled, bool]:
    """Whole numbers of a real tensor, or those that it was made of."""
    out, found = node.outputs[0], _grid(node, like)
    if found is None:
        return Settled.of(out), False
    grid, _ = found
    if held.half is not None and held.half[0] == DEQUANTISE:
        before = held.half[2]
        if grid == held.half[1] and before.dtype == out.dtype:
            return before, True
        held = replace(held, half=None)
    same = held.half is None and held.on(grid)
    return replace(Settled.of(out), half=(QUANTISE, grid, held)), same


def _dequantised(node: Node, held: Settled, like: Node) -> tuple[Settled, bool]:
    """A real tensor of whole numbers, or the one that they were made of."""
    out, found = node.outputs[0], _grid(node, like)
    if found is None:
        return Settled.of(out), False
    grid, low = found
    if held.half is None:
        made = Settled.of(out).bounded(low, math.inf)
        return replace(made, grids=frozenset({out.dtype}), half=(DEQUANTISE, grid, held)), True
    if held.half[0] != QUANTISE or held.half[1] != grid:
        return Settled.of(out), False
    before = replace(held.half[2], half=None).rounded(grid)
    real = replace(before, dtype=out.dtype, grids=before.grids | {out.dtype})
    return real.bounded(low, math.inf), True
