"""Assumptions about the symbols of a model's inputs, by which its sizes may come to fit.

Needs: the dims of the inputs, and a contradiction. Gives: `trials`, groups of assumptions that might resolve
it; `input_sizes`, the sizes of the inputs under assumptions.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import combinations, permutations, product
from typing import Any

import numpy as np

from growc.algebra.space import Size
from growc.dialects.onnx.shapes.data_dependent import sizes_of
from growc.dialects.onnx.shapes.simulator import ContradictionError
from growc.ir.graph import Value

NEAR = 0.25
"""The largest relative distance of an image's size from the size that its number of pixels suggests."""

CLOSEST = 40
"""The number of sizes of an image that are tried for one number of pixels."""

LITERALS, LARGEST_LITERAL = 8, 65536
"""Of each tensor of integers so many are tried as sizes, and only those below the largest size of an axis."""

Assignment = dict[str, Size | str | tuple[str, str]]
"""The assumptions about symbols: a fixed size, the size of another symbol, or the sum of two others."""


InputDims = tuple[int | str, ...]
"""The dims of an input."""

DimsByInput = Mapping[Value, InputDims | None]


def input_sizes(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment
) -> dict[Value, tuple[Size, ...] | None]:
    """Return the sizes of the dims at the sample points. Dims of one name have one size."""
    points = len(samples[0])
    fed, counts = (
        [n for n in symbol_names(dims, of_counts=of_counts) if n not in assigned]
        for of_counts in (False, True)
    )
    sizes: dict[str, Size] = {n: samples[k % len(samples)] for k, n in enumerate(fed)}
    sizes |= sizes_of(counts, points)

    def of(dim: int | str) -> Size:
        if isinstance(dim, int):
            return (dim,) * points
        rule = _root(dim, assigned)
        if isinstance(rule, str):
            return sizes[rule]
        if isinstance(rule[0], str):
            return tuple(a + b for a, b in zip(*map(of, rule), strict=True))
        return tuple(map(int, rule))

    return {v: None if row is None else tuple(map(of, row)) for v, row in dims.items()}


def trials(
    dims: DimsByInput,
    names: list[str],
    samples: tuple[Size, ...],
    assigned: Assignment,
    at: ContradictionError,
) -> Iterator[list[Assignment]]:
    """Yield groups of assumptions that might resolve a contradiction, the most plausible first."""
    alike = {**assigned, **_alike(dims, assigned)}
    yield [alike]
    showing = _showing(names, assigned, dims, samples, at)
    for base in (alike, assigned):
        near = [n for n in dict.fromkeys(_root(n, base) for n in showing) if n in names and n not in base]
        yield [{**base, n: r} for n in near for r in _rules(n, near, at, samples)] + [
            {**base, **_like(own, other, base)}
            for own, other in permutations([r for r in dims.values() if r], 2)
            if _pattern(own) == _pattern(other) and set(own) & set(showing)
        ]
    for base in (alike, assigned):
        sums = combinations(_sums(_now(base, dims, samples), at), 2)
        apart = [(a, b) for a, b in sums if not set(a) & set(b)]
        yield [{**base, **dict(zip(a, c, strict=True))} for a, b in apart for c in (b, b[::-1])]
    for base in (alike, assigned):
        free = [n for n in symbol_names(dims, of_counts=False) if n not in base]
        yield [{**base, n: rule} for n in free for rule in _rules(n, free, at, samples)]
    for base in (alike, assigned):
        yield list(_squares(dims, samples, base, at))


def _leads_to(name: str, rule: Any, assigned: Assignment) -> bool:
    """Whether a rule leads back to the symbol that it is for."""
    parts = (rule,) if isinstance(rule, str) else rule
    return any(p == name or (p in assigned and _leads_to(name, assigned[p], assigned)) for p in parts)


def _root(name: Any, assigned: Assignment) -> Any:
    """Return what a symbol stands for: another symbol, a sum, a size."""
    while isinstance(name, str) and name in assigned:
        name = assigned[name]
    return name


def _pattern(row: InputDims) -> tuple[object, ...]:
    return tuple(d if isinstance(d, int) else "" for d in row)


def _like(own: InputDims, other: InputDims, assigned: Assignment) -> Assignment:
    """Assume that the free symbols of one input equal those of another input of the same shape."""
    pairs = [(a, _root(b, assigned)) for a, b in zip(own, other, strict=True) if isinstance(a, str)]
    return {a: rule for a, rule in pairs if a not in assigned and not _leads_to(a, rule, assigned)}


def _alike(dims: DimsByInput, assigned: Assignment) -> Assignment:
    """Assume that the free symbols of inputs of one shape and use equal those of the first such input."""
    first: dict[tuple[object, ...], InputDims] = {}
    assumed: Assignment = {}
    for value, row in dims.items():
        if row and any(isinstance(d, int) for d in row):
            users = frozenset(node.op for node, _ in value.users) - {"Shape", "Size"}
            key = (value.floating, users, *_pattern(row))
            assumed |= _like(row, first.setdefault(key, row), {**assigned, **assumed})
    return assumed


def _showing(
    names: list[str],
    assigned: Assignment,
    dims: DimsByInput,
    samples: tuple[Size, ...],
    at: ContradictionError,
) -> list[str]:
    """Return the free symbols that are one of the sizes that meet, or a summand of one."""
    current, met = _now(assigned, dims, samples), set(at.sizes)
    summands = {n for pair in _sums(current, at) for n in pair}
    return [n for n in names if n in current and (current[n] in met or n in summands)]


def _sums(now: Mapping[str, Size], at: ContradictionError) -> list[tuple[str, str]]:
    """Return the pairs of free symbols whose sum is one of the sizes that meet."""
    met = set(at.sizes)
    pairs = combinations(now, 2)
    return [(a, b) for a, b in pairs if tuple(map(sum, zip(now[a], now[b], strict=True))) in met]


def _now(assigned: Assignment, dims: DimsByInput, samples: tuple[Size, ...]) -> dict[str, Size]:
    """Return the sizes of the free symbols."""
    sizes = input_sizes(dims, samples, assigned)
    rows = [(d, s) for v, row in dims.items() for d, s in zip(row or (), sizes[v] or (), strict=True)]
    return {d: s for d, s in rows if isinstance(d, str) and d not in assigned}


def _squares(
    dims: DimsByInput, samples: tuple[Size, ...], assigned: Assignment, at: ContradictionError
) -> Iterator[Assignment]:
    """Assume one fixed size for two symbols of an input, or for one.

    A size that depends on them must meet a fixed one: the pixels of an image are read as a whole. The ratio
    of the number of pixels that is read to that of the sample suggests the image's height and width, up to
    strides and borders.
    """
    current = input_sizes(dims, samples, assigned)
    lengths = {s for v, row in dims.items() for d, s in zip(row or (), current[v] or (), strict=True)}
    sums = {tuple(map(sum, zip(a, b, strict=True))) for a, b in combinations(lengths, 2)}
    fixed = {s[0] for s in at.sizes if len(set(s)) == 1 and s[0] > 1}
    pixels = {s[0] for s in set(at.sizes) - lengths - sums if len(set(s)) > 1}
    for value, row in dims.items():
        first = {d: s[0] for d, s in zip(row or (), current[value] or (), strict=True)}
        fed = value.floating and value.producer is None
        free = [d for d in first if isinstance(d, str) and d not in assigned] if fed else []
        for group in (*list(combinations(free, 2))[::-1], *((d,) for d in free[::-1])):
            measure = math.prod(first[d] for d in group)
            for fixed_size, count in product(sorted(fixed), sorted(pixels)):
                about = (fixed_size * measure / count) ** (1 / len(group))
                near = range(max(1, int(about * (1 - NEAR)) - 1), int(about * (1 + NEAR)) + 2)
                for size in sorted(near, key=lambda k: abs(k - about))[:CLOSEST]:
                    yield {**assigned, **dict.fromkeys(group, (size,) * len(samples[0]))}


def _rules(name: str, names: list[str], at: ContradictionError, samples: tuple[Size, ...]) -> list[Any]:
    """Return what a symbol might be, judging by the node where sizes disagree."""
    literal = {
        int(k)
        for v in at.node.inputs
        if v is not None and v.weight is not None and not v.weight.floating
        for k in np.asarray(v.weight.read()).reshape(-1)[:LITERALS]
        if 1 < k < LARGEST_LITERAL
    }
    literal |= {int(k) for v in at.operands for k in v if 1 < k < LARGEST_LITERAL}
    literal |= {s[0] for s in at.sizes if len(set(s)) == 1 and 1 < s[0] < LARGEST_LITERAL}
    fixed: list[Any] = [(k,) * len(samples[0]) for k in sorted(literal)]
    others = [n for n in names if n != name]
    sums = [(a, b) for i, a in enumerate(others) for b in others[i + 1 :]]
    nothing = [(0,) * len(samples[0])] if at.node.guards else []  # a branch may lack a cache
    return fixed + others + sums + nothing


def symbol_names(dims: DimsByInput, *, of_counts: bool) -> list[str]:
    """Return the symbols of inputs, or (`of_counts`) those of lengths that nodes count."""
    rows = [row for value, row in dims.items() if (value.producer is not None) is of_counts]
    return list(dict.fromkeys(d for row in rows for d in row or () if isinstance(d, str)))
