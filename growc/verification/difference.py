"""The distance between two outputs of the same computation: the number r of the language's contract.

For outputs that look like logits, also their closeness as distributions over the last axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest

import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array
from growc.errors.short_repr import brief

HUGE = 1e30
"""Numbers of at least this size stand for infinity (a mask's minimum): only their place and sign count."""

NOTHING = 1e-6
"""The most by which an output of zeros may move."""

DECADES = range(-12, 7)
"""Powers of ten by which differences are counted. Smaller and larger differences count at the ends."""

PLACES = 256
"""The number of places of an axis that are told apart; all places behind them count as one."""

_BLOCK = 1 << 20
"""Elements compared at a time, so that the float64 copies of large logits stay small."""


@dataclass(frozen=True)
class Closeness:
    """The closeness of two outputs as distributions.

    kl: the mean of KL(source, result), in nats. agreement: the share of places where both have the same unit
    on top. rows: the number of places.
    """

    kl: float = 0.0
    agreement: float = 1.0
    rows: int = 0


@dataclass(frozen=True)
class Spread:
    """The distribution of one output's differences, over the elements that count in `max_abs`.

    zeros: the number of equal elements. decades: the number of elements that differ by each power of ten in
    DECADES. axis: the last axis but one, or the last one of two or fewer. places: the largest difference at
    each place of that axis.
    """

    zeros: int
    decades: tuple[int, ...]
    axis: int
    places: tuple[float, ...]

    def and_also(self, other: Spread) -> Spread:
        """Return the spread over both cases."""
        decades = tuple(map(sum, zip(self.decades, other.decades, strict=True)))
        places = tuple(map(max, zip_longest(self.places, other.places, fillvalue=0.0)))
        return Spread(self.zeros + other.zeros, decades, self.axis, places)


@dataclass(frozen=True)
class OutputReport:
    """The distance that one output moved, over one case or, joined by `worst`, over all of them.

    relative: max|a - b| / max|a| over the elements with |a| < 1e30; infinite if anything is `misplaced`,
        if shapes or types differ, and if an output of zeros moved by more than 1e-6.
    max_abs: max|a - b| over the same elements, in the output's own unit.
    regular: as `relative`, over the elements that are not misplaced.
    misplaced: elements that differ in kind: NaN, infinite or huge on one side only or with another sign,
        and integers or booleans that are not equal.
    alien: NaN and infinities on one side, if the other has none at all.
    compared: elements that went into `max_abs`.
    steady: whether all of the source's elements are one real number, so that it can show little.
    note: why the two cannot be compared at all, or empty.
    closeness: how near both are as distributions, if that was asked for.
    spread: how the differences of real numbers are distributed.
    """

    __repr__ = brief

    relative: float
    max_abs: float
    regular: float = 0.0
    misplaced: int = 0
    alien: int = 0
    compared: int = 0
    steady: bool = False
    note: str = ""
    closeness: Closeness | None = None
    spread: Spread | None = field(default=None, compare=False)


def compare(a: Array, b: Array) -> OutputReport:
    """Compare the source's output `a` with `b`. Never raises: differences in shape or type are reported."""
    if a.shape != b.shape:
        return incomparable(f"shape {list(b.shape)} instead of {list(a.shape)}")
    if _is_real(a) != _is_real(b):
        return incomparable(f"elements of type {b.dtype} instead of {a.dtype}")
    return _compare_real(a, b) if _is_real(a) else _compare_discrete(a, b)


def worst(reports: Iterable[OutputReport]) -> OutputReport:
    """Return the report that stands for several cases of one output."""
    joined = OutputReport(0.0, 0.0, steady=True)
    for report in reports:
        joined = OutputReport(
            relative=max(joined.relative, report.relative),
            max_abs=max(joined.max_abs, report.max_abs),
            regular=max(joined.regular, report.regular),
            misplaced=joined.misplaced + report.misplaced,
            alien=joined.alien + report.alien,
            compared=joined.compared + report.compared,
            steady=joined.steady and report.steady,
            note=joined.note or report.note,
            closeness=together([c for c in (joined.closeness, report.closeness) if c])
            if report.closeness
            else None,
            spread=joined.spread.and_also(report.spread)
            if joined.spread and report.spread
            else joined.spread or report.spread,
        )
    return joined


def incomparable(note: str) -> OutputReport:
    """Return the report of an output that cannot be compared."""
    return OutputReport(math.inf, math.inf, math.inf, note=note)


def _is_real(array: Array) -> bool:
    return array.dtype.kind == "f" or array.dtype.name == "bfloat16"


def _compare_discrete(a: Array, b: Array) -> OutputReport:
    unequal = int(np.count_nonzero(a != b))
    distance = 0.0
    if a.dtype.kind in "biu" and b.dtype.kind in "biu":  # no strings
        distance = float(np.abs(a.astype(np.float64) - b.astype(np.float64)).max(initial=0.0))
    return OutputReport(math.inf if unequal else 0.0, distance, misplaced=unequal, compared=a.size)


def _compare_real(a: Array, b: Array) -> OutputReport:
    distance = scale = 0.0
    misplaced = compared = 0
    strange = np.zeros(2, dtype=np.int64)
    spread = _Spreading(a.shape)
    for start in range(0, a.size, _BLOCK):
        x = a.reshape(-1)[start : start + _BLOCK].astype(np.float64)
        y = b.reshape(-1)[start : start + _BLOCK].astype(np.float64)
        kind, other = _kinds(x), _kinds(y)
        misplaced += int(np.count_nonzero(kind != other))
        strange += np.count_nonzero(kind), np.count_nonzero(other)
        both = (kind == 0) & (other == 0)
        apart = np.zeros(x.size)
        apart[both] = np.abs(x[both] - y[both])
        compared += int(np.count_nonzero(both))
        spread.add(start, apart, both)
        distance = max(distance, float(apart.max(initial=0.0)))
        scale = max(scale, float(np.abs(x[kind == 0]).max(initial=0.0)))
    of_zero = 0.0 if distance <= NOTHING else math.inf
    regular = distance / scale if scale else of_zero
    return OutputReport(
        relative=math.inf if misplaced else regular,
        max_abs=distance,
        regular=regular,
        misplaced=misplaced,
        alien=int(strange.max()) if strange.min() == 0 else 0,
        compared=compared,
        steady=a.size > 1 and bool((a == a.flat[0]).all()),
        spread=spread.done(),
    )


class _Spreading:
    """A `Spread` of an array that comes block by block."""

    def __init__(self, shape: Sequence[int]) -> None:
        self.axis = max(len(shape) - 2, min(len(shape) - 1, 1))
        self.count = shape[self.axis] if shape else 1
        self.inner = math.prod(shape[self.axis + 1 :])
        self.zeros, self.decades = 0, np.zeros(len(DECADES), dtype=np.int64)
        self.places = np.zeros(min(self.count, PLACES))

    def add(self, start: int, apart: NDArray[np.float64], both: NDArray[np.bool_]) -> None:
        """Add the differences of the elements from `start` on; those that are not in `both` are zero."""
        some = apart[apart > 0]
        self.zeros += int(np.count_nonzero(both)) - some.size
        powers = np.clip(np.floor(np.log10(some)).astype(np.int64) - DECADES[0], 0, len(DECADES) - 1)
        self.decades += np.bincount(powers, minlength=len(DECADES))
        first = start // self.inner
        rows = np.arange(first, -(-(start + apart.size) // self.inner))
        largest = np.maximum.reduceat(apart, np.maximum(rows * self.inner - start, 0))
        np.maximum.at(self.places, np.minimum(rows % self.count, PLACES - 1), largest)

    def done(self) -> Spread:
        """Return the spread of all blocks."""
        return Spread(
            self.zeros, tuple(self.decades.tolist()), max(self.axis, 0), tuple(self.places.tolist())
        )


def _kinds(x: NDArray[np.float64]) -> NDArray[np.int8]:
    """Return 0 for a number, 1 and -1 for a huge or infinite one by its sign, 2 for NaN."""
    kind = np.where(np.abs(x) >= HUGE, np.sign(x), 0.0)
    return np.where(np.isnan(x), 2.0, kind).astype(np.int8)


def closeness(source: Array, result: Array) -> Closeness:
    """Return the closeness of two arrays of logits of one shape. Places that are not finite do not count."""
    width = source.shape[-1]
    a, b = source.reshape(-1, width), result.reshape(-1, width)
    step = max(1, _BLOCK // max(width, 1))
    return together(_of_rows(a[k : k + step], b[k : k + step]) for k in range(0, len(a), step))


def together(parts: Iterable[Closeness]) -> Closeness:
    """Return the closeness over several sets of places."""
    kl = agreement = 0.0
    rows = 0
    for part in parts:
        kl, agreement, rows = (
            kl + part.kl * part.rows,
            agreement + part.agreement * part.rows,
            rows + part.rows,
        )
    return Closeness(kl / rows, agreement / rows, rows) if rows else Closeness()


def _of_rows(source: Array, result: Array) -> Closeness:
    a, b = source.astype(np.float64), result.astype(np.float64)
    usable = np.isfinite(a).all(1) & np.isfinite(b).all(1)
    a, b = _log_softmax(a[usable]), _log_softmax(b[usable])
    if not len(a):
        return Closeness()
    kl = float(np.maximum((np.exp(a) * (a - b)).sum(1), 0.0).mean())
    return Closeness(kl, float((a.argmax(1) == b.argmax(1)).mean()), len(a))


def _log_softmax(x: Array) -> Array:
    x = x - x.max(axis=1, keepdims=True, initial=-np.inf)
    return np.asarray(x - np.log(np.exp(x).sum(axis=1, keepdims=True)))
