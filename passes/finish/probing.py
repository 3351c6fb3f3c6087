"""What steps make of the units of one axis of a weight, followed on numbers that stand for them.

Needs: the steps of a weight. Gives: for each element of the axis a number: equal numbers, equal slices of the
result. The source's slices stand for themselves, and no two of them are alike; what is drawn differs from
everything; of a weight that is zero, what is drawn beside it is zero too.
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
    """Follows one axis of a weight that has `zero` or other values; `start` has the numbers of tensors."""

    def __init__(self, axis: int, zero: bool, start: Start) -> None:
        self.axis, self.zero, self.start = axis, zero, start
        self.random = np.random.default_rng(0)

    def follow(self, name: str, steps: Sequence[AxisStep]) -> Floats:
        """The numbers behind some steps on a stored tensor."""
        x = self.start(name, self.axis)
        for step in steps:
            if step.axis == self.axis:
                x = self.moved(step, x)
            elif not self.zero and draws(step):  # slices along other axes come to differ too
                x = x + self.fresh(x.shape)
        return x

    def moved(self, step: AxisStep, x: Floats) -> Floats:
        """The numbers behind a step on the axis itself."""
        done = through(step.layout, x.reshape(1, -1, 1), self.leaf).reshape(-1)
        if step.next is None:
            return done
        other = self.follow(step.next.source, step.next.steps)
        beside = through(step.layout, other.reshape(1, -1, 1), self.leaf).reshape(-1)
        return np.where(new_units(step.layout.as_map()), beside, done)

    def leaf(self, leaf: LeafStep, x: Floats, _part: int) -> Floats:
        """One factor or segment: as `growc.plans.execute`, on numbers that stand for values."""
        copies = leaf.index >= 0
        made = x[:, np.where(copies, leaf.index, 0)] * np.where(copies, leaf.weight, 0.0)[:, None]
        mean = np.flatnonzero(leaf.filler == MEAN)
        if mean.size:
            outer, size, inner = x.shape
            means = x.reshape(outer, size // leaf.block, leaf.block, inner).mean(axis=1)
            made[:, mean] = means[:, mean % leaf.block] * leaf.weight[mean][:, None]
        made[:, leaf.filler == ONE] = 1
        own = (leaf.filler == DRAWN) | (leaf.filler == CONTINUED)
        if leaf.noise is not None:
            own = own | leaf.noise.rows
        if leaf.within is not None:
            own = own | (leaf.within.index != np.arange(leaf.within.index.shape[1])).any(axis=1)
        if own.any() and not self.zero:
            made[:, own] += self.fresh(made[:, own].shape)
        return made

    def fresh(self, shape: tuple[int, ...]) -> Floats:
        """Numbers that nothing else has."""
        return self.random.random(shape)
