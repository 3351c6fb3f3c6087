"""Tensors that the captured program does not read: their class makes them as large as others.

Needs: what the plan makes of the tensors that are read, and which of their axes change with those of another.
Gives: plans for the rest. An axis takes the units that an axis of the plan takes, if one of these sizes
changes with it; else what is new is zero, and what goes is the last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from growc.dialects.transformers.config.shapes import Feature
from growc.plans.plan import ZERO, AxisStep, Layout, LeafStep, WeightPlan

MADE = ("makes", "scales")
"""What a statement does to tensors of its units, where it only takes them."""


@dataclass(frozen=True)
class Unread:
    """planned: by names of the class. leads: for axes of unread tensors, axes that change with them."""

    planned: Mapping[str, WeightPlan]
    leads: Mapping[Feature, tuple[Feature, ...]]

    def resized(self, plan: WeightPlan, shape: tuple[int, ...]) -> WeightPlan | None:
        """The plan of an unread tensor with another shape; None where that has another rank."""
        if len(shape) != len(plan.before):
            return None
        pairs = enumerate(zip(plan.before, shape, strict=True))
        changed = [(axis, old, new) for axis, (old, new) in pairs if old != new]
        steps = tuple(step for one in changed for step in self._steps(plan.name, *one))
        return replace(plan, after=shape, steps=steps)

    def _steps(self, name: str, axis: int, old: int, new: int) -> tuple[AxisStep, ...]:
        found = Counter[tuple[object, ...]]()
        steps: dict[tuple[object, ...], tuple[AxisStep, ...]] = {}
        for lead in self._leading(name, axis, old, new):
            key = tuple(step.layout.signature for step in lead)
            found[key] += 1
            steps.setdefault(key, lead)
        if not found:
            return (_kept(axis, old, new),)
        best = max(found, key=lambda key: found[key])
        return tuple(replace(step, axis=axis, next=None) for step in steps[best])

    def _leading(self, name: str, axis: int, old: int, new: int) -> Iterator[tuple[AxisStep, ...]]:
        for tensor, at in self.leads.get((name, axis), ()):
            plan = self.planned.get(tensor)
            if plan is None or plan.literal is not None or at < 0:
                continue
            steps = tuple(step for step in plan.steps if step.axis == at)
            sizes = plan.before[at], plan.after[at]
            if steps and sizes == (old, new) and all(step.verb in MADE for step in steps):
                yield steps


def _kept(axis: int, old: int, new: int) -> AxisStep:
    index = np.array([k if k < old else -1 for k in range(new)], dtype=np.int64)
    leaf = LeafStep(old, index, np.where(index < 0, 0.0, 1.0), np.full(new, ZERO))
    return AxisStep(axis, Layout("leaf", step=leaf), "makes")
