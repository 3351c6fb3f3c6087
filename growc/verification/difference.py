"""How far two outputs of the same computation lie apart: the number r of the language's contract. And of
outputs that look like logits, how near they are as distributions over their last axis.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from growc.algebra.indexmap import Array
from growc.errors.brief import brief

HUGE = 1e30
"""From here on a number stands for infinity (a mask's minimum): only its place and sign count."""

NOTHING = 1e-6
"""How far an output may move that is zero throughout."""

_BLOCK = 1 << 20
"""Elements compared at a time, so that the float64 copies of large logits stay small."""


@dataclass(frozen=True)
class Closeness:
    """kl: the mean of KL(source, result), in nats; agreement: how often both have the same unit on top; rows:
    over how many places.
    """

    kl: float = 0.0
    agreement: float = 1.0
    rows: int = 0


@dataclass(frozen=True)
class OutputReport:
    """How far one output moved, over one case or, joined by `worst`, over all of them.

    relative: max|a - b| / max|a| over the elements with |a| < 1e30; infinite where anything is `misplaced`,
        where shapes or types differ, and where an output that is zero throughout moved by more than 1e-6.
    max_abs: max|a - b| over the same elements, in the output's own unit.
    regular: as `relative`, over the elements that are not misplaced.
    misplaced: elements that differ in kind: NaN, infinite or huge on one side only or with another sign,
        and integers or booleans that are not equal.
    alien: NaN and infinities on one side, where the other has none at all.
    compared: elements that went into `max_abs`.
    steady: whether all of the source's elements are one real number, so that little can show in them.
    note: why the two cannot be compared at all, or empty.
    closeness: how near both are as distributions, where that was asked for.
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


def compare(a: Array, b: Array) -> OutputReport:
    """Compare the source's output `a` with `b`, of the same shape. Never raises: what differs is reported."""
    if a.shape != b.shape:
        return incomparable(f"shape {list(b.shape)} instead of {list(a.shape)}")
    if _is_real(a) != _is_real(b):
        return incomparable(f"elements of type {b.dtype} instead of {a.dtype}")
    return _compare_real(a, b) if _is_real(a) else _compare_discrete(a, b)


def worst(reports: Iterable[OutputReport]) -> OutputReport:
    """The report that stands for several cases of one output."""
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
        )
    return joined


def incomparable(note: str) -> OutputReport:
    """The report of an output of which nothing can be compared."""
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
    for start in range(0, a.size, _BLOCK):
        x = a.reshape(-1)[start : start + _BLOCK].astype(np.float64)
        y = b.reshape(-1)[start : start + _BLOCK].astype(np.float64)
        kind, other = _kinds(x), _kinds(y)
        misplaced += int(np.count_nonzero(kind != other))
        strange += np.count_nonzero(kind), np.count_nonzero(other)
        both = (kind == 0) & (other == 0)
        apart = np.abs(x[both] - y[both])
        compared += apart.size
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
    )


def _kinds(x: NDArray[np.float64]) -> NDArray[np.int8]:
    """0 for a number, 1 and -1 for a huge or infinite one by its sign, 2 for NaN."""
    kind = np.where(np.abs(x) >= HUGE, np.sign(x), 0.0)
    return np.where(np.isnan(x), 2.0, kind).astype(np.int8)


def closeness(source: Array, result: Array) -> Closeness:
    """Of two arrays of logits of one shape; places with a number that is not finite do not count."""
    width = source.shape[-1]
    a, b = source.reshape(-1, width), result.reshape(-1, width)
    step = max(1, _BLOCK // max(width, 1))
    return together(_of_rows(a[k : k + step], b[k : k + step]) for k in range(0, len(a), step))


def together(parts: Iterable[Closeness]) -> Closeness:
    """Of several sets of places."""
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
