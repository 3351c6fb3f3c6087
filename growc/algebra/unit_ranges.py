"""Ranges of numbers: what units that are no copies can be.

Needs: nothing. Gives: `Range`. A unit is in [low, high]. It is *wild* where it may be infinite or no number
at all, on more than a null set of the inputs for which the source's units are finite. A bound of zero that is
never reached is the next number inside of it: only an underflow gets there. Other bounds that a function
comes near to are reached, for numbers near them are rounded to them: tanh(20) is 1 in single precision, and
onnxruntime's sigmoid(-18) is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from growc.algebra.indexmap import Bools, Floats, Ints

TINY = float(np.nextafter(0.0, 1.0))
STILL, VARIES, MOVES = 0, 1, 2
"""How a unit depends on the input: not at all; somehow; so that no number is its value but on a null set.
What is still and no known number is made of weights: no number is its value but by accident."""


@dataclass(frozen=True, eq=False)
class Range:
    """The numbers of every unit; all arrays have shape (D,)."""

    low: Floats
    high: Floats
    motion: Ints
    wild: Bools
    ends: Bools
    """Where it is at one of its bounds on more than a null set, however it moves."""

    @staticmethod
    def anything(size: int, motion: int = VARIES) -> Range:
        """Any finite number."""
        whole = np.full(size, np.inf)
        none = np.zeros(size, dtype=bool)
        return Range(-whole, whole, np.full(size, motion), none, none)

    def within(self, low: Floats | float, high: Floats | float, *, analytic: bool = False) -> Range:
        """These bounds: of a function of it, which may be constant on parts where it is not `analytic`."""
        with np.errstate(invalid="ignore"):
            ends = np.broadcast_arrays(low, high, self.low)[:2]
        bottom, top = (np.where(np.isnan(e), x, e) for e, x in zip(ends, (-np.inf, np.inf), strict=True))
        motion = self.motion if analytic else np.where((bottom == top), STILL, VARIES)
        return Range(bottom, top, motion, self.wild, self.ends)

    def put(self, rows: Bools, low: Floats | float, high: Floats | float, motion: int) -> Range:
        """Other bounds for some rows, which are finite there."""
        return Range(
            np.where(rows, low, self.low),
            np.where(rows, high, self.high),
            np.where(rows, motion, self.motion),
            self.wild & ~rows,
            self.ends & ~rows,
        )

    def bad(self, rows: Bools) -> Range:
        """Some more rows are wild."""
        return replace(self, wild=self.wild | rows)

    def underflowing(self) -> Range:
        """The same in half precision, where small numbers are zero: an exponential is below -17."""
        low, high = np.where(self.low == TINY, 0.0, self.low), np.where(self.high == -TINY, 0.0, self.high)
        return replace(self, low=low, high=high, ends=self.ends | (low != self.low) | (high != self.high))

    def holds(self, number: float) -> Bools:
        """Where it is this number on more than a null set."""
        at_end = self.ends & ((self.low == number) | (self.high == number))
        known = (self.motion == VARIES) | (self.low == self.high) | at_end
        return np.asarray((self.low <= number) & (number <= self.high) & known)

    def flat(self, *, centred: bool) -> Bools:
        """Where a norm without eps divides zero by zero: of zeros, and of equals less their mean."""
        equal = (self.low == self.high) | (self.motion == VARIES)
        return np.asarray(self.holds(0) | (equal & centred))

    def union(self, other: Range) -> Range:
        """One or the other; of known numbers each is its value more than by accident."""
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        number = (self.low == self.high) | (other.low == other.high)
        alike = (self.motion == other.motion) & (~number | (low == high))
        motion = np.where(alike, self.motion, VARIES)
        return Range(low, high, motion, self.wild | other.wild, self.ends | other.ends)
