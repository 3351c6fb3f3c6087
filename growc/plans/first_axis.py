"""Steps on the first axis of a tensor: the rows to read, and the new rows made of them.

Needs: a layout, and the rows before it. Gives: the rows after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Array, Floats, Ints
from growc.algebra.sinusoid import continued_rows
from growc.ir.graph import wide
from growc.plans.lazy_rows import BLOCK, Rows, joined, runs
from growc.plans.leaf_values import Deviation, NoiseGroups, filled, finite, groups_of
from growc.plans.plan import Layout, LeafStep


@dataclass(frozen=True)
class FirstAxis:
    """The inputs of steps on the first axis, beside its rows.

    std: the deviation of the source. factors: tensors by name that rows are multiplied by in means, of shape
    (size, 1).
    """

    std: Deviation
    factors: Mapping[str, Floats]

    def along(self, layout: Layout, rows: Rows, outer: int = 1, inner: int = 1, part: int = 0) -> Rows:
        """Apply a layout to the middle of the factors (outer, size, inner) of rows, as `through` does."""
        if layout.is_identity:
            return rows
        if layout.step is not None:
            leaf = Leaf(self, layout.step, rows, outer, inner, part)
            return Rows(outer * layout.after * inner, rows.rest, rows.dtype, leaf.read)
        if layout.kind == "sum":
            start, pieces = 0, []
            for i, p in enumerate(layout.parts):
                segment = _cut(rows, layout.before * inner, start * inner, p.before * inner)
                pieces.append(self.along(p, segment, outer, inner, part * 16 + i + 1))
                start += p.before
            return joined(pieces, outer)
        for i, p in enumerate(layout.parts):
            before = outer * prod(q.after for q in layout.parts[:i])
            after = inner * prod(q.before for q in layout.parts[i + 1 :])
            rows = self.along(p, rows, before, after, part)
        return rows


def _cut(rows: Rows, size: int, at: int, length: int) -> Rows:
    """From each run of `size` rows, take `length` rows from `at` on."""
    return rows.at(rows.count // size * length, lambda own: own // length * size + at + own % length)


@dataclass(frozen=True)
class Leaf:
    """A leaf on the middle of the factors (outer, size, inner) of rows.

    part: the number of the leaf in its layout.
    """

    axis: FirstAxis
    step: LeafStep
    source: Rows
    outer: int
    inner: int
    part: int

    def read(self, rows: Ints) -> Array:
        """The rows of the result with these numbers."""
        above, inner = np.divmod(rows, self.inner)
        outer, units = np.divmod(above, self.step.after)
        index = self.step.index[units]
        copies, origins = index >= 0, (outer * self.step.before + index) * self.inner + inner
        if copies.all():
            copied = self.source.read(origins)
        else:
            copied = np.zeros((len(rows), *self.source.rest), self.source.dtype)
            copied[copies] = self.source.read(origins[copies])
        others = _Some(self, units, outer, inner)
        values = filled(
            self.step, units, copied.reshape(1, len(rows), self.source.width), others, self.axis.std
        )
        return values.reshape(copied.shape)

    @cached_property
    def means(self) -> Array:
        """Means, shape (outer, block, inner, width). Each is added up in the order of the units."""
        block = self.step.block
        means = [self._mean(outer, self.step.before // block) for outer in range(self.outer)]
        return finite(np.stack(means)).reshape(self.outer, block, self.inner, self.source.width)

    def _mean(self, outer: int, count: int) -> Array:
        block, factor = self.step.block, self.axis.factors.get(self.step.factors)
        length = block * self.inner
        chunk = max(1, BLOCK // (8 * length * self.source.width)) if length * self.source.width > 1 else count
        total: Array | None = None
        for start in range(0, count, chunk):
            stop = min(start + chunk, count)
            block_rows = self.source.read(
                np.arange((outer * count + start) * length, (outer * count + stop) * length)
            )
            values = wide(block_rows).reshape((stop - start) * block, -1)
            values = values if factor is None else values * factor[start * block : stop * block]
            values = values.reshape(stop - start, -1)
            values = values if total is None else np.concatenate([total[None], values])
            total = np.add.reduce(values, axis=0)
        assert total is not None
        return np.asarray(total / count)

    @cached_property
    def continued(self) -> Array:
        """New rows of sinusoidal tables, shape (outer, new units, inner, width)."""
        tables = self.source.whole().reshape(self.outer, self.step.before, -1)
        new_rows = np.stack([continued_rows(table, self.step.after) for table in tables])
        return new_rows.reshape(self.outer, -1, self.inner, self.source.width)

    def drawn(self, key: int, first: int, count: int) -> Floats:
        """Normal numbers for `count` rows. Rows are numbered by unit, then by outer and inner number."""
        width = self.source.width
        return Draws(key).at(self.part).normal(first * width, count * width).reshape(count, width)

    @cached_property
    def weighted(self) -> Floats:
        """The sum of noise times balance of each noise group, shape (outer, groups, inner, width)."""
        noise = self.step.noise
        assert noise is not None
        per_unit, width = self.outer * self.inner, self.inner * self.source.width
        values = (
            self.drawn(noise.key, unit * per_unit, per_unit) for unit in np.flatnonzero(noise.rows).tolist()
        )
        scaled = (numbers.reshape(self.outer, width) * (noise.scale * self.axis.std()) for numbers in values)
        sums = groups_of(noise).sums(scaled, self.outer, width)
        return sums.reshape(self.outer, -1, self.inner, self.source.width)


@dataclass(frozen=True)
class _Some:
    """Some rows of a leaf, each given by unit, outer and inner number.

    All methods give arrays of shape (1, rows, width).
    """

    leaf: Leaf
    units: Ints
    outer: Ints
    inner: Ints

    def means(self, which: Ints) -> Array:
        place = self.units[which] % self.leaf.step.block
        return self._of(self.leaf.means, place, which)

    def continued(self, which: Ints) -> Array:
        return self._of(self.leaf.continued, self.units[which] - self.leaf.step.before, which)

    def weighted(self, groups: NoiseGroups, which: Ints, values: Floats) -> Floats:
        group = groups.group[np.searchsorted(groups.units, self.units[which])]
        return self._of(self.leaf.weighted, group, which)

    def normal(self, key: int, which: Ints) -> Floats:
        leaf = self.leaf
        places = (self.units[which] * leaf.outer + self.outer[which]) * leaf.inner + self.inner[which]
        pieces = [leaf.drawn(key, first, count) for _, first, count in runs(places)]
        return np.concatenate(pieces)[None]

    def _of(self, array: Array, place: Ints, which: Ints) -> Array:
        return np.asarray(array[self.outer[which], place, self.inner[which]][None])
