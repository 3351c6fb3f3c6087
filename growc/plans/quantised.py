"""Weights that are stored as integers with scales: w = (q − zero) · scale.

A scale holds for a block of the weight: all of it, one row or column, or a number of elements of one axis.
The analysis sees the real numbers. Copies of rows keep their integers and scales. A factor goes into the
scales where it is the same throughout each block. Elsewhere values are rounded again.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Array, Floats, Ints
from growc.ir.graph import Weight
from growc.plans.execute import execute, leaf_steps
from growc.plans.plan import MEAN, ONE, AxisStep, WeightPlan


@dataclass(frozen=True)
class Blocks:
    """The number of elements along each axis of a weight that share a scale; 0: all of them.

    scaled: whether there are scales, which can take factors.
    """

    along: tuple[int, ...]
    scaled: bool = True

    def shape(self, sizes: Sequence[int]) -> tuple[int, ...]:
        """The shape of the scales of a weight of these sizes."""
        return tuple(-(-n // b) if b else 1 for n, b in zip(sizes, self.along, strict=True))

    def of(self, axis: int, positions: Ints) -> Ints:
        """The number of the block along an axis that each position lies in."""
        return positions // self.along[axis] if self.along[axis] else np.zeros_like(positions)

    def holds(self, axis: int, index: Ints, factor: Floats) -> bool:
        """Whether rows `index` (−1: zero), each times its factor, can be stored without rounding."""
        if not self.scaled:
            return bool(np.isin(factor[index >= 0], (0, 1)).all())
        rows = np.flatnonzero((index >= 0) & (factor != 0))
        groups = self.of(axis, rows)
        sources = self.of(axis, index[rows])
        for group in np.unique(groups):
            inside = groups == group
            if len(np.unique(sources[inside])) > 1 or np.ptp(factor[rows][inside]) > 1e-12:
                return False
        return True

    def loss(self, plan: WeightPlan) -> str:
        """The cause why executing a plan rounds values again; empty where it does not."""
        for step in plan.steps:
            leaves = leaf_steps(step.layout)
            if any(leaf.noise is not None for leaf in leaves):
                return "noise is rounded to the steps of a quantised weight"
            if any(leaf.within is not None for leaf in leaves):
                return "units of a quantised weight are drawn, or stand elsewhere in each row"
            if any(
                np.isin(leaf.filler[leaf.index < 0], (MEAN, ONE)).any() for leaf in leaves if not leaf.free
            ):
                return "means are rounded to the steps of a quantised weight"
            index, factor = _rows(step)
            if not self.holds(step.axis, index, factor):
                return "shares are rounded to the steps of a quantised weight, whose scales differ elsewhere"
        return ""

    def grown(self, plan: WeightPlan, scale: Array, zero: Array) -> tuple[Array, Array]:
        """Scales and zero points of the result, one for each of its blocks."""
        sizes = list(plan.before)
        for step in plan.steps:
            index, factor = _rows(step)
            sizes[step.axis] = len(index)
            count = self.shape(sizes)[step.axis]
            source, weight = np.zeros(count, dtype=np.int64), np.ones(count)
            positions = np.arange(len(index))
            blocks = self.of(step.axis, positions)
            rows = positions[(index >= 0) & (factor != 0)]
            order = rows[np.argsort(-np.abs(factor[rows]), kind="stable")]  # the largest factor first
            first, position = np.unique(blocks[order], return_index=True)
            source[first] = self.of(step.axis, index[order[position]])
            weight[first] = np.abs(factor[order[position]])
            shape = [-1 if a == step.axis else 1 for a in range(len(sizes))]
            scale = (np.take(scale, source, step.axis) * weight.reshape(shape)).astype(scale.dtype)
            zero = np.take(zero, source, step.axis)
        return (scale * plan.scale).astype(scale.dtype), zero

    def spread(self, values: Array, sizes: Sequence[int]) -> Array:
        """Values per block as values per element (or values that broadcast)."""
        for axis, (block, size) in enumerate(zip(self.along, sizes, strict=True)):
            if block > 1:
                values = np.repeat(values, block, axis)[(slice(None),) * axis + (slice(size),)]
        return values


class Quantised(ABC):
    """The storage of a quantised weight in a dialect."""

    blocks: Blocks

    @abstractmethod
    def nbytes(self, plan: WeightPlan) -> int:
        """The bytes of the tensors that the result stores for the weight."""


def quantised(weight: Weight) -> Quantised | None:
    """The storage of a weight, if it is quantised; else None."""
    assert weight.stored is None or isinstance(weight.stored, Quantised), weight
    return weight.stored


def _rows(step: AxisStep) -> tuple[Ints, Floats]:
    """The source row of each row of the result (−1: new), and its factor."""
    index_map = step.layout.as_map()
    return index_map.index, index_map.weight


def real(blocks: Blocks, data: Array, scale: Array, zero: Array) -> Array:
    """The numbers that a quantised weight stands for."""
    work = np.float64 if data.dtype.itemsize > 2 else np.float32
    offset = data.astype(work) - blocks.spread(zero, data.shape).astype(work)
    return np.asarray(offset * blocks.spread(scale, data.shape).astype(work))


def requantised(blocks: Blocks, plan: WeightPlan, data: Array, scale: Array, zero: Array) -> Array:
    """The integers of the result. Copies keep their integers."""
    values = execute(plan, real(blocks, data, scale, zero))
    grown, offset = blocks.grown(plan, scale, zero)
    steps = np.rint(values / blocks.spread(grown, plan.after).astype(values.dtype))
    return np.asarray(steps + blocks.spread(offset, plan.after).astype(values.dtype))
