"""The new values of one leaf of a layout.

Every formula of docs/language.md for an entry of a weight is computed here and nowhere else. Needs: units of
the leaf, the source values that they copy, and values that depend on more than these (`Beside`). Gives: the
values of the units, in the element type of the source.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from threading import Lock
from typing import Protocol

import numpy as np

from growc.algebra.indexmap import Array, Bools, Floats, Ints
from growc.ir.graph import wide
from growc.plans.plan import CONTINUED, DRAWN, MEAN, ONE, LeafStep, Noise, Within


class Deviation:
    """The mean and the standard deviation of a source. The first thread that asks computes them."""

    def __init__(self, compute: Callable[[], tuple[float, float]]) -> None:
        self.compute, self.lock = compute, Lock()
        self.found: tuple[float, float] | None = None

    def __call__(self) -> float:
        """The standard deviation."""
        return self._both()[1]

    def mean(self) -> float:
        """The mean."""
        return self._both()[0]

    def _both(self) -> tuple[float, float]:
        with self.lock:
            if self.found is None:
                self.found = self.compute()
            return self.found


class Beside(Protocol):
    """The values for units that are no copies.

    `which`: the places of these among the units, in order, shape (k,). All methods give arrays of shape
    (outer, k, inner).
    """

    def means(self, which: Ints) -> Array:
        """Means of all units of the source that have the same place in a block."""
        ...

    def continued(self, which: Ints) -> Array:
        """The rows that continue a sinusoidal table."""
        ...

    def normal(self, key: int, which: Ints) -> Floats:
        """Standard normal numbers, drawn under a key."""
        ...

    def weighted(self, noise: NoiseGroups, which: Ints, values: Floats) -> Floats:
        """The sum of noise times balance of each unit's group. values: the noise of these units."""
        ...


class NoiseGroups:
    """Units with balanced noise, in groups.

    units: those with noise, in order. group: the group number of each. count, squares: for each group, the
    number of its units, and the sum of their squared factors.
    """

    def __init__(self, noise: Noise) -> None:
        assert noise.balance is not None
        self.noise, self.units = noise, np.flatnonzero(noise.rows)
        self.balance = noise.balance[self.units]
        _, self.group = np.unique(noise.groups[self.units], return_inverse=True)
        self.count = np.bincount(self.group)
        self.squares = np.bincount(self.group, weights=self.balance**2)

    def sums(self, noise: Iterable[Floats], outer: int, inner: int) -> Floats:
        """The sum of noise times balance of each group, shape (outer, groups, inner).

        noise: for each unit in order, shape (outer, inner).
        """
        sums = np.zeros((outer, len(self.count), inner))
        for values, group, balance in zip(noise, self.group, self.balance, strict=True):
            sums[:, group] += values * balance
        return sums


groups_of = lru_cache(maxsize=64)(NoiseGroups)


def filled(step: LeafStep, units: Ints, copied: Array, beside: Beside, std: Deviation) -> Array:
    """The new values of some units of a leaf, shape (outer, units, inner).

    `copied`: the source values of units that are copies, and any values for the others. 16-bit numbers come
    as float32 and are rounded once, after the last step.
    """
    index, filler = step.index[units], step.filler[units]
    copies, noise = index >= 0, step.noise
    weight = np.where(copies, step.weight[units], 1.0)
    noisy = np.flatnonzero(noise.rows[units]) if noise is not None else np.arange(0)
    plain = copies & (weight == 1)
    if plain.all() and not noisy.size and step.within is None:
        return copied
    values = _working(copied)
    _scale(values, weight)
    for kind in np.flatnonzero(np.bincount(filler[~copies])):
        which = np.flatnonzero(~copies & (filler == kind))
        factor = step.weight[units[which]][:, None]
        place = _place(which)
        if kind == MEAN:
            values[:, place] = beside.means(which) * factor
        elif kind == CONTINUED:
            values[:, place] = beside.continued(which)
        elif kind == DRAWN:
            drawn = beside.normal(step.key, which)
            drawn *= std() if step.std is None or not std() else step.std
            if step.around_mean:
                drawn += std.mean()
            drawn *= factor
            values[:, place] = drawn
        else:
            values[:, place] = kind == ONE
    if step.within is not None:
        values = _within(step.within, units, values, beside, std)
    if noise is not None and noisy.size:
        values[:, _place(noisy)] += _noise(noise, units, noisy, beside, std)
        plain[noisy] = False
    result = values.astype(copied.dtype, copy=False)
    if copied.dtype.kind in "iu":  # a float cannot hold every integer
        exact, kept = copied, np.broadcast_to(plain[:, None], copied.shape)
        if step.within is not None:
            own = step.within.index[units]
            exact, kept = _taken(step.within, own, copied), kept & ~_new(step.within, own, copied)
        result[kept] = exact[kept]
    return result


def finite(values: Array) -> Array:
    """The values. Raises FloatingPointError if one is not finite: zero times it would be no number."""
    if not np.isfinite(values).all():
        raise FloatingPointError("a new value is infinite or NaN")
    return values


def _within(within: Within, units: Ints, values: Array, beside: Beside, std: Deviation) -> Array:
    """Rows whose places take other units of the same row: (1, rows, width). Only steps on the first axis have
    these, where a row is contiguous.
    """
    index = within.index[units]
    taken = _taken(within, index, values)
    rows = np.flatnonzero((index < 0).any(axis=1))
    if not rows.size:
        return taken
    if within.filler == DRAWN:
        fresh = beside.normal(within.key, rows) * std() + std.mean()
    else:
        fresh = np.full((1, len(rows), taken.shape[2]), float(within.filler == ONE))
    taken[:, rows] = np.where(_new(within, index[rows], fresh), fresh, taken[:, rows])
    return taken


def _taken(within: Within, index: Ints, values: Array) -> Array:
    """The elements that rows take of themselves, shape (1, rows, width). A place that takes none has any."""
    shape = (len(index), -1, index.shape[1], within.behind)
    places = np.maximum(index, 0)[:, None, :, None]
    return np.take_along_axis(values.reshape(shape), places, axis=2).reshape(values.shape)


def _new(within: Within, index: Ints, values: Array) -> Bools:
    """The places of rows that take no element, in the shape of the rows' values."""
    parts = values.reshape(len(index), -1, index.shape[1], within.behind)
    return np.broadcast_to((index < 0)[:, None, :, None], parts.shape).reshape(values.shape)


def _place(numbers: Ints) -> slice | Ints:
    """Sorted numbers as an index: a slice if they have no gap, since numpy fills a slice faster."""
    first, last = int(numbers[0]), int(numbers[-1])
    return slice(first, last + 1) if last - first + 1 == len(numbers) else numbers


def _working(array: Array) -> Array:
    """A copy to compute in: float32 for types of at most 32 bits, double precision for others."""
    return wide(array) if array.dtype.itemsize > 4 else array.astype(np.float32)


def _scale(values: Array, weight: Floats) -> None:
    """Multiply units in double precision, and round once.

    Where all factors are float32 numbers, float32 arithmetic gives the same result.
    """
    scaled = np.flatnonzero(weight != 1)
    if not scaled.size:
        return
    # a complex product mixes both parts, so units with factor 1 must be left out
    span = scaled if values.dtype.kind == "c" else slice(scaled[0], scaled[-1] + 1)
    factor = weight[span, None]
    if values.dtype == np.float32 and bool((factor.astype(np.float32) == factor).all()):
        values[:, span] *= factor.astype(np.float32)
    else:
        values[:, span] = wide(values[:, span]) * factor


def _noise(noise: Noise, units: Ints, which: Ints, beside: Beside, std: Deviation) -> Floats:
    """Noise for some units.

    Balanced noise loses, in each group, the component along the factors: the function would see it. The rest
    is rescaled to keep the variance.
    """
    values = beside.normal(noise.key, which) * (noise.scale * std())
    if noise.balance is None:
        return values
    groups = groups_of(noise)
    place = np.searchsorted(groups.units, units[which])
    group = groups.group[place]
    visible_part = beside.weighted(groups, which, values) / groups.squares[group][:, None]
    values = values - visible_part * groups.balance[place][:, None]
    count = groups.count[group]
    return np.asarray(values * np.sqrt(count / np.maximum(count - 1, 1))[:, None])
