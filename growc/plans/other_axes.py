"""Steps on an axis that is not the first: each row changes independently.

Needs: a layout, and the rows before it. Gives: the rows after it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Array, Bools, Floats, Ints
from growc.algebra.sinusoid import continued_rows
from growc.ir.graph import wide
from growc.plans.lazy_rows import Rows, runs
from growc.plans.leaf_values import Deviation, NoiseGroups, filled, finite
from growc.plans.plan import AxisStep, Layout, LeafStep

LeafOf = Callable[[LeafStep, Array, int], Array]
"""Applies a leaf of a layout to an array of shape (outer, size, inner). The integer is the leaf's number."""


def through(layout: Layout, array: Array, leaf: LeafOf, part: int = 0) -> Array:
    """Apply a layout to the middle axis of an array of shape (outer, size, inner).

    `leaf` applies one factor or segment, whose number is `part`.
    """
    if layout.is_identity:
        return array
    if layout.step is not None:
        return leaf(layout.step, array, part)
    outer, _, inner = array.shape
    if layout.kind == "sum":
        start, pieces = 0, []
        for i, p in enumerate(layout.parts):
            pieces.append(through(p, array[:, start : start + p.before], leaf, part * 16 + i + 1))
            start += p.before
        return np.concatenate(pieces, axis=1)
    for i, p in enumerate(layout.parts):
        before = prod(q.after for q in layout.parts[:i])
        after = prod(q.before for q in layout.parts[i + 1 :])
        view = array.reshape(outer * before, p.before, after * inner)
        array = through(p, view, leaf, part).reshape(outer, -1, inner)
    return array


def across(
    step: AxisStep,
    rows: Rows,
    std: Deviation,
    factors: Mapping[str, Floats],
    other: Rows | None = None,
    new: Bools | None = None,
) -> Rows:
    """Rows after a step on one of their axes. `other`: the rows that units marked `new` come from."""
    layout, before, behind = step.layout, rows.rest[: step.axis - 1], rows.rest[step.axis :]
    rest = (*before, layout.after, *behind)

    def made(source: Rows, numbers: Ints) -> Array:
        source_rows = source.read(numbers)
        block = _Block(numbers, rows.count, prod(before), prod(behind), std, factors)
        view = source_rows.reshape(len(numbers) * prod(before), layout.before, prod(behind))
        return through(layout, view, block.leaf)

    def read(numbers: Ints) -> Array:
        values = made(rows, numbers)
        if other is not None and new is not None:
            values = np.where(new[:, None], made(other, numbers), values)
        return values.reshape(len(numbers), *rest)

    return Rows(rows.count, rest, rows.dtype, read)


@dataclass(frozen=True)
class _Block:
    """Some rows of a tensor, by their numbers. Each has (before, size, behind) elements.

    count: the number of rows of the whole tensor.
    """

    numbers: Ints
    count: int
    before: int
    behind: int
    std: Deviation
    factors: Mapping[str, Floats]

    def leaf(self, step: LeafStep, array: Array, part: int) -> Array:
        """Apply a leaf to the middle axis of (outer, size, inner).

        outer is (rows, before, factors), and inner is (factors, behind).
        """
        copied = _copied(array, np.where(step.index >= 0, step.index, 0))
        units = np.arange(step.after)
        return filled(step, units, copied, _Whole(self, step, array, part), self.std)


def _copied(array: Array, index: Ints) -> Array:
    """The units of the middle axis with these numbers. Long runs of numbers are copied as slices."""
    breaks = np.count_nonzero(np.diff(index) != 1)
    if not breaks:
        return array[:, index[0] : index[0] + len(index)]
    if breaks * 8 > len(index):
        return array.take(index, axis=1)
    result = np.empty((array.shape[0], len(index), array.shape[2]), array.dtype)
    for start, first, count in runs(index):
        result[:, start : start + count] = array[:, first : first + count]
    return result


@dataclass(frozen=True)
class _Whole:
    """All units of a leaf in some rows."""

    block: _Block
    step: LeafStep
    array: Array
    part: int

    def means(self, which: Ints) -> Array:
        outer, size, inner = self.array.shape
        length = self.step.block
        values = self.array
        if self.step.factors:
            values = wide(values) * self.block.factors[self.step.factors]
        values = values.reshape(outer, size // length, length, inner)
        is_single_column = length * inner == 1 and self.block.count * self.block.before > 1
        return finite(_mean(values, is_single_column))[:, which % length]

    def continued(self, which: Ints) -> Array:
        tables = np.stack([continued_rows(table, self.step.after) for table in self.array])
        return tables[:, which - self.step.before]

    def weighted(self, groups: NoiseGroups, which: Ints, values: Floats) -> Floats:
        outer, _, inner = values.shape
        return groups.sums(values.swapaxes(0, 1), outer, inner)[:, groups.group]

    def normal(self, key: int, which: Ints) -> Floats:
        """Normal numbers. Elements are numbered by unit, then as (factors, factors, rows, before, behind)."""
        block, draws = self.block, Draws(key).at(self.part)
        outer = self.array.shape[0] // (len(block.numbers) * block.before)
        inner = self.array.shape[2] // block.behind
        length = block.before * block.behind
        numbers = np.empty((len(which), outer * inner, len(block.numbers), length))
        for k, unit in enumerate(which.tolist()):
            for place in range(outer * inner):
                first = (unit * outer * inner + place) * block.count
                for start, row, rows in runs(block.numbers):
                    drawn = draws.normal((first + row) * length, rows * length)
                    numbers[k, place, start : start + rows] = drawn.reshape(rows, length)
        shape = (len(which), outer, inner, len(block.numbers), block.before, block.behind)
        in_order = numbers.reshape(shape).transpose(3, 4, 1, 0, 2, 5)
        return in_order.reshape(self.array.shape[0], len(which), self.array.shape[2])


def _mean(values: Array, lone: bool) -> Array:
    """Means over the second axis of (outer, blocks, block, inner).

    lone: whether this is one column of a wider tensor. Then units are added up one by one, in the order in
    which numpy adds several columns.
    """
    if not lone:
        return np.asarray(wide(values).mean(axis=1))
    outer, count, *_ = values.shape
    kind = np.complex128 if values.dtype.kind == "c" else np.float64
    if outer > 1:  # numpy adds up rows of many numbers one row after the other
        total = np.add.reduce(np.ascontiguousarray(values.reshape(outer, count).T), axis=0, dtype=kind)
    else:
        total = np.add.accumulate(values, axis=1, dtype=kind)[:, -1]
    return np.asarray((total.reshape(outer, 1, 1) + 0.0) / count)  # numpy sums from 0.0, so no sum is -0
