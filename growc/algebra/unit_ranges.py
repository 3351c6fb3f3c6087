"""Ranges of numbers: the possible values of units that are no copies.

Needs: nothing. Gives: `UnitRange`. A unit is in [low, high]. It is *wild* where it may be infinite or NaN on
more than a null set of the inputs for which the source's units are finite. A bound of zero that a function
never reaches is stored as the next number inside: only an underflow reaches zero. Other bounds that a
function only approaches count as reached, since numbers near them are rounded to them: tanh(20) is 1 in
single precision, and onnxruntime's sigmoid(-18) is 0.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from growc.algebra.indexmap import Bools, Floats, Ints

TINY = float(np.nextafter(0.0, 1.0))
STILL, VARIES, MOVES = 0, 1, 2
"""The dependence of a unit on the input. STILL: none. VARIES: some. MOVES: the unit takes any one value on a
null set only. A STILL unit of unknown value is made of weights: it has a given value only by accident."""


@dataclass(frozen=True, eq=False)
class UnitRange:
    """The range of every unit. All arrays have shape (D,)."""

    low: Floats
    high: Floats
    motion: Ints
    wild: Bools
    ends: Bools
    """The units that are at one of their bounds on more than a null set, even if they move."""

    @staticmethod
    def anything(size: int, motion: int = VARIES) -> UnitRange:
        """Any finite number."""
        whole = np.full(size, np.inf)
        none = np.zeros(size, dtype=bool)
        return UnitRange(-whole, whole, np.full(size, motion), none, none)

    def within(self, low: Floats | float, high: Floats | float, *, analytic: bool = False) -> UnitRange:
        """The range of a function of this one, with these bounds.

        A function that is not `analytic` may be constant on parts.
        """
        with np.errstate(invalid="ignore"):
            ends = np.broadcast_arrays(low, high, self.low)[:2]
        bottom, top = (np.where(np.isnan(e), x, e) for e, x in zip(ends, (-np.inf, np.inf), strict=True))
        motion = self.motion if analytic else np.where((bottom == top), STILL, VARIES)
        return UnitRange(bottom, top, motion, self.wild, self.ends)

    def put(self, rows: Bools, low: Floats | float, high: Floats | float, motion: int) -> UnitRange:
        """This range with other bounds for some rows, which are finite."""
        return UnitRange(
            np.where(rows, low, self.low),
            np.where(rows, high, self.high),
            np.where(rows, motion, self.motion),
            self.wild & ~rows,
            self.ends & ~rows,
        )

    def bad(self, rows: Bools) -> UnitRange:
        """This range with more wild rows."""
        return replace(self, wild=self.wild | rows)

    def underflowing(self) -> UnitRange:
        """This range in half precision, where small numbers become zero, such as exp(x) below x = -17."""
        low, high = np.where(self.low == TINY, 0.0, self.low), np.where(self.high == -TINY, 0.0, self.high)
        return replace(self, low=low, high=high, ends=self.ends | (low != self.low) | (high != self.high))

    def holds(self, number: float) -> Bools:
        """The units that are this number on more than a null set."""
        at_end = self.ends & ((self.low == number) | (self.high == number))
        known = (self.motion == VARIES) | (self.low == self.high) | at_end
        return np.asarray((self.low <= number) & (number <= self.high) & known)

    def flat(self, *, centred: bool) -> Bools:
        """The units for which a norm without eps divides zero by zero.

        It does so on zeros, and if it is centred on equal numbers.
        """
        equal = (self.low == self.high) | (self.motion == VARIES)
        return np.asarray(self.holds(0) | (equal & centred))

    def union(self, other: UnitRange) -> UnitRange:
        """The range of units that are in one range or the other.

        Two different known numbers make a unit that varies: it has each value more than by accident.
        """
        low, high = np.minimum(self.low, other.low), np.maximum(self.high, other.high)
        number = (self.low == self.high) | (other.low == other.high)
        alike = (self.motion == other.motion) & (~number | (low == high))
        motion = np.where(alike, self.motion, VARIES)
        return UnitRange(low, high, motion, self.wild | other.wild, self.ends | other.ends)
