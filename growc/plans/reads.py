"""The rows of the source that computing some rows of a weight reads, found without its values.

The steps run on zero tensors that are one number wide and record which of their rows are read. So the
execution itself tells what it reads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from growc.algebra.indexmap import Array, Ints
from growc.plans.execute import draws, factors_of
from growc.plans.first_axis import FirstAxis
from growc.plans.lazy_rows import Rows, choice
from growc.plans.leaf_values import Deviation
from growc.plans.plan import AxisStep, WeightPlan
from growc.recipe.fills import new_units


def rows_read(plan: WeightPlan, count: Callable[[str], int], rows: range) -> dict[str, int]:
    """The number of rows of each tensor that are read for some rows of a result. A single number is a row.

    count: gives the number of rows of a tensor of the source.
    """
    recorder = _Noted(count)
    if plan.normed is not None:
        recorder.whole(plan.normed.direction)
        recorder.whole(plan.normed.length)
    elif plan.literal is None and not plan.zero:
        for source in plan.mean_of or (plan.copy_of or plan.source,):
            recorder.after(plan.steps, source).read(np.arange(rows.start, rows.stop))
    return {name: _distinct(numbers) for name, numbers in recorder.rows.items()}


def _distinct(numbers: Sequence[Ints]) -> int:
    """How many rows are read, each counted once."""
    single = len(numbers) == 1 and len(numbers[0]) == 1  # the usual case of an expert
    return 1 if single else len(np.unique(np.concatenate(numbers)))


@dataclass
class _Noted:
    """The rows of each tensor that were read. count: gives the number of rows of a tensor."""

    count: Callable[[str], int]
    rows: dict[str, list[Ints]] = field(default_factory=lambda: defaultdict(list))

    def whole(self, name: str) -> None:
        self.rows[name].append(np.arange(self.count(name)))

    def thin(self, name: str) -> Rows:
        """A zero tensor with as many rows, one number wide, that records its reads."""

        def compute(rows: Ints) -> Array:
            self.rows[name].append(rows)
            return np.zeros((len(rows), 1), np.float32)

        return Rows(self.count(name), (1,), np.dtype(np.float32), compute)

    def deviation(self, source: str) -> tuple[float, float]:
        """Record that the deviation of drawn numbers reads the whole source."""
        self.whole(source)
        return 0.0, 1.0

    def after(self, steps: Sequence[AxisStep], source: str) -> Rows:
        """The rows after some steps. Steps on axes other than the first leave the rows as they are."""
        rows, std = self.thin(source), Deviation(partial(self.deviation, source))
        for step in steps:
            for name in factors_of(step):
                self.whole(name)
            other = None if step.next is None else self.after(step.next.steps, step.next.source)
            rows = _along(step, rows, other, std)
        return rows


def _along(step: AxisStep, rows: Rows, other: Rows | None, std: Deviation) -> Rows:
    """The rows after a step, as growc.plans.execute makes them."""
    if step.axis:
        rows = rows if other is None else _both(rows, other)
        return _drawing(rows, std) if draws(step) else rows
    first = FirstAxis(std, {})
    result = first.along(step.layout, rows)
    if other is None:
        return result
    return choice(result, first.along(step.layout, other), new_units(step.layout.as_map()))


def _both(one: Rows, other: Rows) -> Rows:
    """The rows of one tensor. Reading them reads the same rows of another tensor."""

    def read(rows: Ints) -> Array:
        other.read(rows)
        return one.read(rows)

    return Rows(one.count, one.rest, one.dtype, read)


def _drawing(rows: Rows, std: Deviation) -> Rows:
    """The rows, each with drawn numbers: reading them reads the deviation."""

    def read(numbers: Ints) -> Array:
        std()
        return rows.read(numbers)

    return Rows(rows.count, rows.rest, rows.dtype, read)
