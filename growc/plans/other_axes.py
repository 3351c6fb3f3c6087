"""Steps on an axis that is not the first: what becomes of each row by itself.

Needs: a layout, and the rows before it. Gives: the rows behind it.
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
from growc.plans.leaf_values import Deviation, Groups, filled
from growc.plans.plan import AxisStep, Layout, LeafStep
from growc.plans.rows import Rows, runs

LeafOf = Callable[[LeafStep, Array, int], Array]
"""What a leaf of a layout makes of an array of shape (outer, size, inner); the number of its part."""


def through(layout: Layout, array: Array, leaf: LeafOf, part: int = 0) -> Array:
    """A layout on the middle axis of an array of shape (outer, size, inner).

    `leaf` does one factor or segment, of which `part` is the number.
    """
    if layout.is_identity:
        return array
    if layout.step is not None:
        return leaf(layout.step, array, part)
    outer, _, inner = array.shape
    if layout.kind == "sum":
        at, pieces = 0, []
        for i, p in enumerate(layout.parts):
            pieces.append(through(p, array[:, at : at + p.before], leaf, part * 16 + i + 1))
            at += p.before
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
    """Rows after a step on one of their axes. `other`: where units that are `new` come from."""
    layout, before, behind = step.layout, rows.rest[: step.axis - 1], rows.rest[step.axis :]
    rest = (*before, layout.after, *behind)

    def made(source: Rows, numbers: Ints) -> Array:
        read = source.read(numbers)
        some = _Block(numbers, rows.count, prod(before), prod(behind), std, factors)
        view = read.reshape(len(numbers) * prod(before), layout.before, prod(behind))
        return through(layout, view, some.leaf)

    def read(numbers: Ints) -> Array:
        done = made(rows, numbers)
        if other is not None and new is not None:
            done = np.where(new[:, None], made(other, numbers), done)
        return done.reshape(len(numbers), *rest)

    return Rows(rows.count, rest, rows.dtype, read)


@dataclass(frozen=True)
class _Block:
    """Rows by their numbers, of so many; each has (before, size, behind) elements."""

    numbers: Ints
    count: int
    before: int
    behind: int
    std: Deviation
    factors: Mapping[str, Floats]

    def leaf(self, step: LeafStep, array: Array, part: int) -> Array:
        """A leaf on the middle axis of (outer, size, inner), made of (rows, before, factors) and (factors,
        behind).
        """
        copied = _copied(array, np.where(step.index >= 0, step.index, 0))
        units = np.arange(step.after)
        return filled(step, units, copied, _Whole(self, step, array, part), self.std)


def _copied(array: Array, index: Ints) -> Array:
    """Units of the middle axis by their numbers: runs of them as slices, where they are long."""
    breaks = np.count_nonzero(np.diff(index) != 1)
    if not breaks:
        return array[:, index[0] : index[0] + len(index)]
    if breaks * 8 > len(index):
        return array.take(index, axis=1)
    made = np.empty((array.shape[0], len(index), array.shape[2]), array.dtype)
    for at, first, count in runs(index):
        made[:, at : at + count] = array[:, first : first + count]
    return made


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
        lone = length * inner == 1 and self.block.count * self.block.before > 1
        return _mean(values, lone)[:, which % length]

    def continued(self, which: Ints) -> Array:
        made = np.stack([continued_rows(table, self.step.after) for table in self.array])
        return made[:, which - self.step.before]

    def weighted(self, groups: Groups, which: Ints, values: Floats) -> Floats:
        outer, _, inner = values.shape
        return groups.sums(values.swapaxes(0, 1), outer, inner)[:, groups.group]

    def normal(self, key: int, which: Ints) -> Floats:
        """Elements are numbered by unit, and then as (factors, factors, rows, before, behind)."""
        block, draws = self.block, Draws(key).at(self.part)
        outer = self.array.shape[0] // (len(block.numbers) * block.before)
        inner = self.array.shape[2] // block.behind
        length = block.before * block.behind
        made = np.empty((len(which), outer * inner, len(block.numbers), length))
        for k, unit in enumerate(which.tolist()):
            for place in range(outer * inner):
                first = (unit * outer * inner + place) * block.count
                for at, row, rows in runs(block.numbers):
                    drawn = draws.normal((first + row) * length, rows * length)
                    made[k, place, at : at + rows] = drawn.reshape(rows, length)
        shape = (len(which), outer, inner, len(block.numbers), block.before, block.behind)
        turned = made.reshape(shape).transpose(3, 4, 1, 0, 2, 5)
        return turned.reshape(self.array.shape[0], len(which), self.array.shape[2])


def _mean(values: Array, lone: bool) -> Array:
    """Means over the second of (outer, blocks, block, inner). lone: of one column of a wider tensor, whose
    units are added up one by one, as those of several are.
    """
    if not lone:
        return np.asarray(wide(values).mean(axis=1))
    outer, count, *_ = values.shape
    kind = np.complex128 if values.dtype.kind == "c" else np.float64
    if outer > 1:  # so numpy adds up rows of many numbers, one row behind the other
        total = np.add.reduce(np.ascontiguousarray(values.reshape(outer, count).T), axis=0, dtype=kind)
    else:
        total = np.add.accumulate(values, axis=1, dtype=kind)[:, -1]
    return np.asarray((total.reshape(outer, 1, 1) + 0.0) / count)  # numpy begins with a zero: no sum is -0
