"""Detection of layers as a repetition in a sequence of tokens.

Needs: the tokens of the bypasses of one stream, in order. Gives: `Repetition`s. Each is the periodic stretch
that covers the most tokens, with the smallest period. Unequal layers at its ends belong to it if they share a
token with it at the same place. If nothing repeats in full, layers that share one token at the same place
suffice (a dense layer before one with experts). If widths differ everywhere, coarse tokens decide.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Repetition:
    """A stretch of `count` times `period` tokens that begins at `start`."""

    start: int
    period: int
    count: int

    @property
    def stop(self) -> int:
        """The end of the stretch (exclusive)."""
        return self.start + self.period * self.count

    @property
    def covered(self) -> int:
        """The number of tokens that it covers."""
        return self.period * self.count


def repetitions(
    tokens: Sequence[Hashable], coarse: Sequence[Hashable], opens: Sequence[bool]
) -> list[Repetition]:
    """The repetitions of a sequence, in order. `opens`: whether a token may well be a layer's first.

    >>> repetitions("KAFAFAF", "xyzyzyz", [True, True, False, True, False, True, False])
    [Repetition(start=1, period=2, count=3)]
    >>> repetitions("ADAE", "wxyz", [True, False, True, False])
    [Repetition(start=0, period=2, count=2)]
    """
    best = _best(tokens, coarse, opens)
    if best is None:
        return []
    left = repetitions(tokens[: best.start], coarse[: best.start], opens[: best.start])
    right = repetitions(tokens[best.stop :], coarse[best.stop :], opens[best.stop :])
    moved = [Repetition(r.start + best.stop, r.period, r.count) for r in right]
    return [*left, best, *moved]


def _best(tokens: Sequence[Hashable], coarse: Sequence[Hashable], opens: Sequence[bool]) -> Repetition | None:
    """The best repetition.

    A coarser comparison is used only if more than half is left, and if it covers more.
    """
    best: Repetition | None = None
    for search in (_exact, _sharing, lambda _, opens: _exact(coarse, opens)):
        candidate = search(tokens, opens)
        if candidate is not None and (best is None or candidate.covered > best.covered):
            best = candidate
        if best is not None and 2 * best.covered >= len(tokens):
            break
    return best


def _better(best: Repetition | None, candidate: Repetition, opens: Sequence[bool]) -> Repetition:
    """The better of two repetitions: it covers more, then has the smaller period, then opens a layer, then
    comes first.
    """

    def rank(r: Repetition) -> tuple[int, int, bool, int]:
        return r.covered, -r.period, opens[r.start], -r.start

    return candidate if best is None or rank(candidate) > rank(best) else best


def _exact(tokens: Sequence[Hashable], opens: Sequence[bool]) -> Repetition | None:
    best: Repetition | None = None
    for period, alike in _turns(tokens):
        for start, stop in _stretches(alike):
            count = (stop - start + period) // period
            spare = (stop - start + period) % period
            if count > 1 and (best is None or count * period >= best.covered):
                for turn in range(spare + 1):
                    best = _better(best, Repetition(start + turn, period, count), opens)
    return None if best is None else _extended(tokens, best)


def _turns(tokens: Sequence[Hashable]) -> Iterator[tuple[int, NDArray[np.bool_]]]:
    """Every period, with a mask of the tokens that equal the token one period later.

    Periods without such tokens are left out.
    """
    first: dict[Hashable, int] = {}
    kinds = np.array([first.setdefault(token, number) for number, token in enumerate(tokens)], np.int64)
    for period in range(1, len(tokens) // 2 + 1):
        if (alike := kinds[:-period] == kinds[period:]).any():
            yield period, alike


def _stretches(alike: NDArray[np.bool_]) -> Iterator[tuple[int, int]]:
    """The half-open ranges in which the mask holds."""
    edges = np.flatnonzero(np.diff(alike, prepend=False, append=False)).tolist()
    yield from zip(edges[::2], edges[1::2], strict=True)


def _extended(tokens: Sequence[Hashable], repetition: Repetition) -> Repetition:
    """The repetition with unequal layers added at its ends."""
    pattern = tokens[repetition.start : repetition.start + repetition.period]

    def alike(start: int) -> bool:
        layer = tokens[start : start + repetition.period] if start >= 0 else ()
        return len(layer) == repetition.period and any(
            a == b and a != () for a, b in zip(pattern, layer, strict=True)
        )

    start, stop = repetition.start, repetition.stop
    while alike(start - repetition.period):
        start -= repetition.period
    while alike(stop):
        stop += repetition.period
    return Repetition(start, repetition.period, (stop - start) // repetition.period)


def _sharing(tokens: Sequence[Hashable], opens: Sequence[bool]) -> Repetition | None:
    """The best repetition of layers that have one token in common, at the same place."""
    n = len(tokens)
    best: Repetition | None = None
    for period, alike in _turns(tokens):
        for first in np.flatnonzero(alike).tolist():
            if tokens[first] == () or (first >= period and alike[first - period]):
                continue
            later = tokens[first::period]
            terms = next((k for k, token in enumerate(later) if token != later[0]), len(later))
            for turn in range(period):
                start = first - turn
                count = min(terms, (n - start) // period)
                if start >= 0 and count > 1:
                    best = _better(best, Repetition(start, period, count), opens)
    return best
