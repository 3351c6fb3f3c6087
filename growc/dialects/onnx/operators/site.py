"""Helpers of the rules: reading a site, and building a line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from growc.algebra.space import Size, ratio
from growc.ir.notation import AxisTerms, Line, Operand, Place, Term
from growc.ir.operator_rows import Site

REAL = frozenset({1, 10, 11, 16})
"""onnx's numbers of float32, float16, float64 and bfloat16."""
COMPLEX = frozenset({14, 15})
"""onnx's numbers of complex types. No operator of ONNX has them; torch's have."""


def names(prefix: str, n: int) -> list[Term]:
    """Return `n` labels."""
    return [f"{prefix}{i}" for i in range(n)]


def line(inputs: Sequence[Sequence[Term] | None], outputs: Sequence[Sequence[Term]], **sizes: Size) -> Line:
    """Return a line whose treatment is the row's own."""

    def axes(terms: Sequence[Term] | None) -> AxisTerms | None:
        return None if terms is None else tuple(terms)

    return Line(tuple(map(axes, inputs)), tuple(map(axes, outputs)), "", sizes)


def places(number: int, axes: Iterable[int], *, result: bool = False) -> list[Place]:
    """Return axes of one operand, or of one result."""
    return [Place(number, axis, result) for axis in axes]


def first(site: Site) -> Operand:
    """Return the operand that the row is about."""
    return site.operand(0)


def rest(site: Site) -> list[Sequence[Term] | None]:
    """Return opaque axes for all other operands."""
    return [None if o is None else ["_"] * o.rank for o in site.inputs[1:]]


def axis_of(site: Site, default: int = 0, rank: int | None = None) -> int:
    """Return the `axis` attribute, counted from the front."""
    return site.node.integer("axis", default) % (rank or max(first(site).rank, 1))


def axes_of(site: Site, operand: int = 1) -> list[int] | None:
    """Return the `axes` of Squeeze, Unsqueeze and reductions: an attribute, or in new opsets an operand."""
    axes = site.node.integers("axes")
    if axes is None and site.input(operand) is not None:
        values = site.static(operand)
        return None if values is None else [int(a) for a in np.atleast_1d(values)]
    return axes


def unit(size: Size) -> bool:
    """Whether there is one element at every sample point."""
    return all(s == 1 for s in size)


def number(site: Site, i: int) -> float | None:
    """Return operand i if it is one known number, else None."""
    values = site.static(i)
    return float(values.reshape(-1)[0]) if values is not None and values.size == 1 else None


def segments(axis: int, size: Size, begin: int, out: Size, sizes: dict[str, Size]) -> tuple[Term, Term]:
    """Return an axis as its segments in front (x), taken (y) and behind (z), and the taken segment."""
    points = len(size)
    parts: list[str] = []
    for name, n in ((f"x{axis}", begin), (f"y{axis}", out[0]), (f"z{axis}", size[0] - begin - out[0])):
        if n > 0:
            sizes[name] = (n,) * points
            parts.append(name)
    if not out[0]:
        return "_", "_"
    return (("+", tuple(parts)) if len(parts) > 1 else parts[0]), f"y{axis}"


def refine(a: list[Size], b: list[Size], base: int, sizes: dict[str, Size]) -> tuple[list[Term], list[Term]]:
    """Return labels for one group: the coarsest common refinement of both sides; opaque if there is none."""
    xs: list[list[Term]] = [[] for _ in a]
    ys: list[list[Term]] = [[] for _ in b]
    left = [(i, s) for i, s in enumerate(a) if not unit(s)]
    right = [(j, s) for j, s in enumerate(b) if not unit(s)]
    while left and right:
        (i, x), (j, y) = left.pop(), right.pop()
        name = f"g{base}_{len(sizes)}"
        if x == y:
            common = x
        elif (more := ratio(x, y)) is not None:
            common = y
            left.append((i, more))
        elif (more := ratio(y, x)) is not None:
            common = x
            right.append((j, more))
        else:
            return ["_"] * len(a), ["_"] * len(b)
        sizes[name] = common
        xs[i].insert(0, name)
        ys[j].insert(0, name)
    if left or right:
        return ["_"] * len(a), ["_"] * len(b)
    return [_product(x) for x in xs], [_product(y) for y in ys]


def _product(parts: Sequence[Term]) -> Term:
    return "1" if not parts else parts[0] if len(parts) == 1 else ("*", tuple(parts))
