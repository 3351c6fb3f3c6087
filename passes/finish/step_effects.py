"""The effect of steps on the units of one axis of a weight, computed on numbers that stand for slices.

Needs: the steps of a weight. Gives: a number for each element of the axis: equal numbers mean equal slices of
the result. All slices of the source count as different. Drawn slices differ from all others. In a weight that
is zero, drawn slices are zero too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Floats
from growc.plans.execute import draws
from growc.plans.other_axes import through
from growc.plans.plan import CONTINUED, DRAWN, MEAN, ONE, AxisStep, LeafStep
from growc.recipe.fills import new_units

Start = Callable[[str, int], Floats]
"""The numbers that stand for the slices of a stored tensor along an axis."""


def standing_for(name: str, axis: int, size: int) -> Floats:
    """A number for each slice of a stored tensor along an axis, all of them different."""
    return Draws.of("probe", name, axis).uniform(0, size)


class Probe:
    """The numbers of one axis of a weight. zero: whether it is all zero. start: the numbers of tensors."""

    def __init__(self, axis: int, zero: bool, start: Start) -> None:
        self.axis, self.zero, self.start = axis, zero, start
        self.random = np.random.default_rng(0)

    def follow(self, name: str, steps: Sequence[AxisStep]) -> Floats:
        """The numbers after some steps on a stored tensor."""
        x = self.start(name, self.axis)
        for step in steps:
            if step.axis == self.axis:
                x = self.moved(step, x)
            elif not self.zero and draws(step):  # draws along other axes make these slices differ too
                x = x + self.fresh(x.shape)
        return x

    def moved(self, step: AxisStep, x: Floats) -> Floats:
        """The numbers after a step on the axis itself."""
        own_numbers = through(step.layout, x.reshape(1, -1, 1), self.leaf).reshape(-1)
        if step.next is None:
            return own_numbers
        other = self.follow(step.next.source, step.next.steps)
        next_numbers = through(step.layout, other.reshape(1, -1, 1), self.leaf).reshape(-1)
        return np.where(new_units(step.layout.as_map()), next_numbers, own_numbers)

    def leaf(self, leaf: LeafStep, x: Floats, _part: int) -> Floats:
        """The numbers of one factor or segment, as `growc.plans.execute` computes values."""
        copies = leaf.index >= 0
        numbers = x[:, np.where(copies, leaf.index, 0)] * np.where(copies, leaf.weight, 0.0)[:, None]
        mean = np.flatnonzero(leaf.filler == MEAN)
        if mean.size:
            outer, size, inner = x.shape
            means = x.reshape(outer, size // leaf.block, leaf.block, inner).mean(axis=1)
            numbers[:, mean] = means[:, mean % leaf.block] * leaf.weight[mean][:, None]
        numbers[:, leaf.filler == ONE] = 1
        unique = (leaf.filler == DRAWN) | (leaf.filler == CONTINUED)
        if leaf.noise is not None:
            unique = unique | leaf.noise.rows
        if leaf.within is not None:
            places = np.arange(leaf.within.index.shape[1])
            unique = unique | (leaf.within.index != places).any(axis=1)
        if unique.any() and not self.zero:
            numbers[:, unique] += self.fresh(numbers[:, unique].shape)
        return numbers

    def fresh(self, shape: tuple[int, ...]) -> Floats:
        """New random numbers, different from all others."""
        return self.random.random(shape)
