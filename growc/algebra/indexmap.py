"""Index maps: how the units of a resized axis follow from the units of the source.

A map from a space of `d` units to one of `D` units is a D x d matrix M: unit j of the result equals
the sum over i of M[j, i] times unit i of the source. Every map that growc uses has rows of the form

    weight · e_index  +  mean · (1ᵀ / d)

that is, a scaled copy of one unit, plus a multiple of the mean of all units. Zero rows have neither.
A row can also be *junk*: its value is no linear combination of source units (drawn at random, or a
nonlinear function of a mean). Nothing may depend on it.

The same form serves activations (x' = M·x) and the weights that contract them: a weight's columns W'
are W·L with L·M = I, and Lᵀ is again such a matrix.

The closed forms of the norms follow docs/theory.md, "Norms".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from growc.errors.short_repr import brief

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]
Bools = NDArray[np.bool_]
Array = NDArray[Any]
"""Numbers of any type: numpy has types for arithmetic on one type at a time, and none for a union."""
Number = TypeVar("Number", np.int64, np.float64, np.bool_)

TOLERANCE = 1e-9
"""Tolerance for rounding in float64 arithmetic on weights of rows. It is used for no measured quantity."""


def _close(a: Array | float, b: Array | float) -> bool:
    return bool(np.allclose(a, b, rtol=TOLERANCE, atol=TOLERANCE))


@dataclass(frozen=True, eq=False)
class IndexMap:
    """A D x d matrix, row by row. All arrays have shape (D,); `index` is -1 where there is no copy."""

    __repr__ = brief

    source: int
    index: Ints
    weight: Floats
    mean: Floats
    junk: Bools

    # ---------------------------------------------------------------- making

    @staticmethod
    def of(
        source: int,
        index: Sequence[int] | Ints,
        weight: Sequence[float] | Floats | None = None,
        mean: Sequence[float] | Floats | None = None,
        junk: Sequence[bool] | Bools | None = None,
    ) -> IndexMap:
        """A map in normal form: rows without a copy have index -1 and weight 0."""
        rows = np.asarray(index, dtype=np.int64)
        size = len(rows)
        scale = np.ones(size) if weight is None else np.asarray(weight, dtype=np.float64)
        averages = np.zeros(size) if mean is None else np.asarray(mean, dtype=np.float64)
        is_junk = np.zeros(size, dtype=bool) if junk is None else np.asarray(junk, dtype=bool)
        is_empty = (rows < 0) | (scale == 0) | is_junk
        return IndexMap(
            source,
            np.where(is_empty, -1, rows),
            np.where(is_empty, 0.0, scale),
            np.where(is_junk, 0.0, averages),
            is_junk,
        )

    @staticmethod
    def identity(size: int) -> IndexMap:
        """The map that changes nothing."""
        return IndexMap.of(size, np.arange(size))

    # ---------------------------------------------------------------- asking

    @property
    def size(self) -> int:
        """The number of units of the result, D."""
        return len(self.index)

    @cached_property
    def copies(self) -> Bools:
        """Rows that are a non-zero multiple of one source unit and nothing else."""
        return np.asarray((self.index >= 0) & (self.mean == 0))

    @cached_property
    def zeros(self) -> Bools:
        """Rows that are zero for every source."""
        return np.asarray((self.index < 0) & (self.mean == 0) & ~self.junk)

    @cached_property
    def is_identity(self) -> bool:
        """Whether M = I."""
        return (
            self.size == self.source
            and not self.junk.any()
            and not self.mean.any()
            and bool((self.index == np.arange(self.size)).all())
            and _close(self.weight, 1.0)
        )

    @cached_property
    def is_order(self) -> bool:
        """Whether the map is a permutation: every unit occurs once, with weight one."""
        return self.size == self.source and bool((self.counts == 1).all()) and _close(self.weight, 1.0)

    @cached_property
    def counts(self) -> Ints:
        """The number of copies of each source unit, shape (d,)."""
        return np.bincount(self.index[self.copies], minlength=self.source).astype(np.int64)

    def per_unit(self, values: Floats) -> Floats:
        """Sum `values`, given per row, over the copies of each source unit. Shape (d,)."""
        rows = self.index >= 0
        sums = np.bincount(self.index[rows], weights=values[rows], minlength=self.source)
        return sums.astype(np.float64)

    @cached_property
    def row_sums(self) -> Floats:
        """M·1, shape (D,)."""
        return self.weight + self.mean

    @cached_property
    def column_sums(self) -> Floats:
        """1ᵀ·M, shape (d,)."""
        return np.asarray(self.per_unit(self.weight) + self.mean.sum() / max(self.source, 1))

    def same(self, other: IndexMap) -> bool:
        """Whether both are the same matrix (junk rows equal junk rows)."""
        return self is other or (
            self.source == other.source
            and self.size == other.size
            and bool((self.junk == other.junk).all())
            and bool((self.index == other.index).all())
            and _close(self.weight, other.weight)
            and _close(self.mean, other.mean)
        )

    def differs(self, other: IndexMap) -> Bools:
        """The rows that differ, shape (D,). Junk equals junk."""
        close = np.isclose(self.weight, other.weight, TOLERANCE, TOLERANCE)
        close &= np.isclose(self.mean, other.mean, TOLERANCE, TOLERANCE)
        return np.asarray((self.junk != other.junk) | (self.index != other.index) | ~close)

    def without(self, rows: Bools) -> IndexMap:
        """This map with some rows junk."""
        return IndexMap.of(self.source, self.index, self.weight, self.mean, self.junk | rows)

    def matrix(self) -> Floats:
        """The dense matrix, junk rows as NaN. Shape (D, d). For tests and small sizes."""
        dense = np.repeat(self.mean[:, None] / max(self.source, 1), self.source, axis=1)
        rows = self.index >= 0
        dense[np.arange(self.size)[rows], self.index[rows]] += self.weight[rows]
        dense[self.junk] = np.nan
        return dense

    # ---------------------------------------------------------------- composing

    def scaled(self, factor: Floats | float) -> IndexMap:
        """diag(factor)·M."""
        return IndexMap.of(self.source, self.index, self.weight * factor, self.mean * factor, self.junk)

    def after(self, first: IndexMap) -> IndexMap:
        """self·first: `first` is applied to the source, `self` to its result.

        A row that leaves the form weight·e + mean·1ᵀ/d becomes junk, so the product never claims too much.
        """
        if self.source != first.size:
            raise ValueError(f"cannot compose a map of {self.source} units with one of {first.size}")
        places = np.where(self.index >= 0, self.index, 0)
        is_copy = self.index >= 0
        junk = self.junk | (is_copy & first.junk[places])
        weight = np.where(is_copy, self.weight * first.weight[places], 0.0)
        mean = np.where(is_copy, self.weight * first.mean[places], 0.0)
        if self.mean.any():
            column = first.per_unit(first.weight) / max(first.size, 1)
            if first.junk.any() or not _close(column, column[:1]):
                junk = junk | (self.mean != 0)
            else:
                mean = mean + self.mean * (column[0] * first.source + first.mean.mean())
        return IndexMap.of(first.source, np.where(is_copy, first.index[places], -1), weight, mean, junk)

    def kron(self, inner: IndexMap) -> IndexMap:
        """The map of a row-major product axis: self on the outer factor, `inner` on the inner one.

        The mean over one factor alone leaves the form and becomes junk, unless the other factor is one unit.
        """

        def outer(x: NDArray[Number]) -> NDArray[Number]:
            return np.repeat(x, inner.size)

        def inside(x: NDArray[Number]) -> NDArray[Number]:
            return np.tile(x, self.size)

        a, b = outer(self.index), inside(inner.index)
        weight = outer(self.weight) * inside(inner.weight)
        mean = outer(self.mean) * inside(inner.mean)
        zero = outer(self.zeros) | inside(inner.zeros)
        mixed = np.zeros(len(a), dtype=bool)
        if inner.source == 1:
            mean = outer(self.mean) * inside(inner.row_sums)
            weight = outer(self.weight) * inside(inner.row_sums)
            b = np.zeros_like(b)
        elif self.source == 1:
            mean = outer(self.row_sums) * inside(inner.mean)
            weight = outer(self.row_sums) * inside(inner.weight)
            a = np.zeros_like(a)
        else:
            mixed = (outer(self.mean) != 0) & inside(inner.index >= 0)
            mixed |= outer(self.index >= 0) & (inside(inner.mean) != 0)
        junk = (outer(self.junk) | inside(inner.junk) | mixed) & ~zero
        index = np.where((a >= 0) & (b >= 0), a * inner.source + b, -1)
        return IndexMap.of(self.source * inner.source, index, weight, mean, junk)

    @staticmethod
    def concat(parts: Sequence[IndexMap]) -> IndexMap:
        """The map of a sum axis: the parts end to end, block-diagonal. Means of one part become junk."""
        if len(parts) == 1:
            return parts[0]
        starts = np.cumsum([0, *(p.source for p in parts)])
        return IndexMap.of(
            int(starts[-1]),
            np.concatenate(
                [np.where(p.index >= 0, p.index + s, -1) for p, s in zip(parts, starts, strict=False)]
            ),
            np.concatenate([p.weight for p in parts]),
            None,
            np.concatenate([p.junk | (p.mean != 0) for p in parts]),
        )

    # ---------------------------------------------------------------- through operators

    def pointwise(self, *, zero: bool, homogeneous: bool) -> IndexMap:
        """The state behind y = f(x), applied to each unit alone.

        Copies stay; scaled copies only under a positively homogeneous f; zero rows only where f(0) = 0.
        """
        kept = self.copies & ((self.weight > 0) if homogeneous else np.isclose(self.weight, 1.0, TOLERANCE))
        junk = ~kept & ~(self.zeros & zero)
        return IndexMap.of(self.source, self.index, self.weight, None, junk)

    def shifted(self) -> IndexMap:
        """The state behind x + c with one c for all units: only rows that sum to one pass c on."""
        junk = self.junk | ~np.isclose(self.row_sums, 1.0, TOLERANCE)
        return IndexMap.of(self.source, self.index, self.weight, self.mean, junk)

    def times(self, other: IndexMap) -> IndexMap:
        """The state of a product x·y of two activations over this axis. A zero on either side stays zero."""
        both = self.copies & other.copies & (self.index == other.index)
        zero = self.zeros | other.zeros
        return IndexMap.of(self.source, self.index, self.weight * other.weight, None, ~both & ~zero)

    def remainders(self, other: IndexMap) -> IndexMap:
        """The state of the remainders of x by y over this axis: both may have one positive factor."""
        equal = np.isclose(self.weight, other.weight, TOLERANCE) & (self.weight > 0)
        both = self.copies & other.copies & (self.index == other.index) & equal
        return IndexMap.of(self.source, self.index, self.weight, None, ~both & ~self.zeros)

    def reciprocal(self) -> IndexMap:
        """The state behind 1/x."""
        weight = np.divide(1.0, self.weight, out=np.zeros(self.size), where=self.copies)
        return IndexMap.of(self.source, self.index, weight, None, ~self.copies)

    def pairs_with(self, other: IndexMap) -> bool:
        """Whether selfᵀ·other = I: contracting the two sides keeps the value. Junk needs zero opposite."""
        if self.source != other.source or self.size != other.size:
            return False
        if ((self.junk & ~other.zeros) | (other.junk & ~self.zeros)).any():
            return False
        if ((self.mean != 0) & ~other.zeros).any() or ((other.mean != 0) & ~self.zeros).any():
            return False
        both = self.copies & other.copies
        if (self.index[both] != other.index[both]).any():
            return False
        shares = np.bincount(
            self.index[both], weights=(self.weight * other.weight)[both], minlength=self.source
        )
        return _close(shares, 1.0)

    def is_weighted_evenly(self) -> bool:
        """Whether the mean over the axis is kept: 1ᵀM/D = 1ᵀ/d."""
        return not self.junk.any() and _close(self.column_sums / self.size, 1.0 / self.source)

    def sums_to_one(self) -> bool:
        """Whether the sum over the axis is kept: 1ᵀM = 1ᵀ."""
        return not self.junk.any() and _close(self.column_sums, 1.0)

    def covers(self, *, positive: bool = False) -> bool:
        """Whether the maximum over the axis is kept: every unit occurs with weight one, all else are means.

        positive: a zero among the numbers does not change the maximum. Then zeros, and units times a weight
        below one, may occur too.
        """
        as_it_is = self.index[self.copies & np.isclose(self.weight, 1.0, TOLERANCE)]
        share = self.weight + self.mean
        between = ~self.junk & (np.minimum(self.weight, self.mean) >= 0) & (share <= 1 + TOLERANCE)
        between &= positive | np.isclose(share, 1.0, TOLERANCE)
        return bool(between.all()) and len(set(as_it_is.tolist())) == self.source

    def is_once(self) -> bool:
        """Whether every unit occurs once, with weight one, beside zeros only.

        Then a sum over the axis of a function that is zero at zero is kept."""
        plain = self.copies & np.isclose(self.weight, 1.0, TOLERANCE)
        return bool((plain | self.zeros).all() and (self.counts == 1).all())

    # ---------------------------------------------------------------- norms

    def layer_norm(self, power: int = 2) -> tuple[IndexMap, float] | None:
        """The state behind x ↦ v/(mean(|v|ᵖ) + eps)^(1/p), v = x − mean(x), and the factor of eps.

        None where it is not exact. LayerNorm has p = 2.

        With R this state and H = I − 11ᵀ/n the core norm is exact if H_D·R·1 = 0 and |H_D·R·x|ᵖ = a·|H_d·x|ᵖ.
        For rows weight·e + mean·1ᵀ/d that is: equal row sums, and for every unit the same sum and the same
        sum of p-th powers of the weights of its copies. Behind the norm the source is centred, so
        1-components of rows drop out: means become zero rows.
        """
        if self.junk.any() or not _close(self.row_sums, self.row_sums[:1]):
            return None
        sums = self.per_unit(self.weight)
        centred = IndexMap.of(self.source, self.index, self.weight)
        return centred.rms_norm(power) if _close(sums, sums[:1]) else None

    def rms_norm(self, power: int = 2) -> tuple[IndexMap, float] | None:
        """The state behind x ↦ x/(mean(|x|ᵖ) + eps)^(1/p) and the factor of eps.

        None where the p-th powers of the weights of copies do not sum to one number a for every unit.
        RMSNorm has p = 2: RᵀR = a·I.
        """
        if self.junk.any() or self.mean.any():
            return None
        powers = self.per_unit(np.abs(self.weight) ** power)
        if not _close(powers, powers[:1]) or powers[0] <= 0:
            return None
        factor = float(powers[0]) * self.source / self.size
        return self.scaled(factor ** (-1 / power)), factor

    # ---------------------------------------------------------------- choosing states

    def plain(self) -> IndexMap:
        """This pattern with every copy at weight one."""
        return IndexMap.of(self.source, self.index, None, self.mean, self.junk)

    def isometric(self) -> IndexMap:
        """Copies weighted by 1/sqrt(C): MᵀM = I where every unit is copied (RMSNorm streams, LEMON)."""
        counts = np.maximum(self.counts, 1)[np.maximum(self.index, 0)]
        return IndexMap.of(self.source, self.index, self.weight / np.sqrt(counts), self.mean, self.junk)

    def paired(self, partner: IndexMap) -> IndexMap | None:
        """This pattern, reweighted so that it pairs with `partner` (selfᵀ·partner = I); None if impossible.

        The smallest such weights: proportional to the partner's within the copies of a unit. For plain copies
        that divides by their number, for isometries it changes nothing (bert2BERT figure 13; docs/theory.md).
        """
        both = self.copies & partner.copies & (self.index == partner.index)
        squares = np.bincount(self.index[both], weights=partner.weight[both] ** 2, minlength=self.source)
        if (squares == 0).any():
            return None
        weight = np.where(both, partner.weight / squares[np.maximum(self.index, 0)], 0.0)
        reweighted = IndexMap.of(self.source, self.index, weight, None, self.junk)
        return reweighted if reweighted.pairs_with(partner) else None

    def left_inverse(self, shares: Floats) -> IndexMap | None:
        """Lᵀ for a reader of this state: L·R = I with `shares` (summing to one over the copies of each unit).

        Rows that are no copy get zero columns. None where some unit is not copied at all.
        """
        if (self.counts == 0).any():
            return None
        safe = np.where(self.copies, self.weight, 1.0)
        return IndexMap.of(self.source, self.index, np.where(self.copies, shares / safe, 0.0))
