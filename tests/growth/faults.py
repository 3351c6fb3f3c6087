"""Wrong plans: every function lists the ways in which one kind of mistake can be made in a finished plan.

A mutant is what to put in place of some weights of the plan (by number), and of the changed eps attributes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from growc.plans.execute import leaf_steps
from growc.plans.plan import DRAWN, MEAN, ZERO, AxisStep, Layout, LeafStep, Noise, WeightPlan

if TYPE_CHECKING:
    from growc.passes.compilation import Result


@dataclass(frozen=True)
class Mutant:
    """One wrong plan."""

    label: str
    weights: Mapping[int, WeightPlan] = field(default_factory=dict)
    attributes: Mapping[Any, Mapping[str, float]] | None = None


NONE = Mutant("none")
Change = Callable[[LeafStep], LeafStep]


def steps(c: Result, verb: str, axes: int = 0) -> Iterator[tuple[int, WeightPlan, int]]:
    """(number, weight, number of the step) for every step with a verb on weights of so many axes (0: any)."""
    for i, weight in enumerate(c.assembled.weights):
        for k, step in enumerate(weight.steps):
            if step.verb == verb and axes in (0, len(weight.before)):
                yield i, weight, k


def edited(layout: Layout, change: Change, only: int | None = None) -> Layout:
    """A layout with its leaves changed, or the leaf of one number."""
    at = -1

    def walk(part: Layout) -> Layout:
        nonlocal at
        if part.step is None:
            return replace(part, parts=tuple(walk(p) for p in part.parts))
        at += 1
        return replace(part, step=change(part.step)) if only in (None, at) else part

    return walk(layout)


def flat(layout: Layout) -> LeafStep:
    """The whole axis as one leaf."""
    whole = layout.as_map()
    return LeafStep(whole.source, whole.index, whole.weight, np.zeros(whole.size, dtype=np.int64))


def mutant(i: int, weight: WeightPlan, k: int, layout: Layout) -> Mutant:
    """The weight with one step's layout replaced."""
    step = weight.steps[k]
    changed = replace(
        weight, steps=(*weight.steps[:k], AxisStep(step.axis, layout, step.verb), *weight.steps[k + 1 :])
    )
    return Mutant(f"{weight.name} axis {step.axis}", {i: changed})


def rolled(step: LeafStep) -> LeafStep:
    """The copies in another order."""
    return replace(
        step, index=np.roll(step.index, 1), weight=np.roll(step.weight, 1), filler=np.roll(step.filler, 1)
    )


def unscaled(step: LeafStep) -> LeafStep:
    """Copies with no factor."""
    return replace(step, weight=np.where(step.index >= 0, 1.0, step.weight))


def changes(step: LeafStep) -> bool:
    """Whether a step has factors."""
    return bool((step.weight[step.index >= 0] != 1).any())


# ------------------------------------------------------------------------------------------ kinds


def eps_attribute_not_scaled(c: Result) -> Iterator[Mutant]:
    for node in c.attributes:
        yield Mutant(
            f"eps of {node.name}", attributes={n: v for n, v in c.attributes.items() if n is not node}
        )


def eps_constant_not_scaled(c: Result) -> Iterator[Mutant]:
    for i, weight in enumerate(c.assembled.weights):
        if weight.scale != 1:
            yield Mutant(f"eps in {weight.name}", {i: replace(weight, scale=1.0)})


def gain_not_scaled(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "scales"):
        if any(changes(s) for s in leaf_steps(weight.steps[k].layout)):
            yield mutant(i, weight, k, edited(weight.steps[k].layout, unscaled))


def bias_not_mapped(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "makes", 1):
        if "key" in weight.name:  # adds one number to all scores of a query: softmax does not see it
            continue
        yield mutant(i, weight, k, edited(weight.steps[k].layout, rolled))


def making_order_wrong(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "makes", 2):
        yield mutant(i, weight, k, edited(weight.steps[k].layout, rolled))


def reader_order_wrong(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "reads"):
        yield mutant(i, weight, k, edited(weight.steps[k].layout, rolled))


def reader_not_divided(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "reads"):
        if any(changes(s) for s in leaf_steps(weight.steps[k].layout)):
            yield mutant(i, weight, k, edited(weight.steps[k].layout, unscaled))


def share_doubled(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "reads"):
        for unit in range(weight.steps[k].layout.after):
            whole = flat(weight.steps[k].layout)
            if whole.index[unit] >= 0:
                factor = np.where(np.arange(whole.after) == unit, 2.0, 1.0)
                doubled = replace(whole, weight=whole.weight * factor)
                yield mutant(i, weight, k, Layout("leaf", (), doubled))


def packed(c: Result) -> Iterator[tuple[int, WeightPlan, int]]:
    for i, weight, k in steps(c, "makes"):
        if weight.steps[k].layout.kind == "sum" and len(weight.steps[k].layout.parts) == 3:
            yield i, weight, k


def heads_permuted_in_values_only(c: Result) -> Iterator[Mutant]:
    for i, weight, k in packed(c):
        layout = weight.steps[k].layout
        last = edited(layout.parts[2], rolled, 0)
        yield mutant(i, weight, k, replace(layout, parts=(*layout.parts[:2], last)))


def packed_parts_swapped(c: Result) -> Iterator[Mutant]:
    for i, weight, k in packed(c):
        whole = flat(weight.steps[k].layout)
        third = whole.after // 3
        order = np.r_[third : 2 * third, :third, 2 * third : 3 * third]
        swapped = replace(whole, index=whole.index[order], weight=whole.weight[order])
        yield mutant(i, weight, k, Layout("leaf", (), swapped))


def tables(c: Result) -> list[int]:
    """Numbers of the weights that hold the tied table (one, or one for each time that it is stored)."""
    tied = {use for tie in c.ties if tie.is_head for use in tie.uses}
    return [i for i, uses in enumerate(c.assembled.uses) if any(u in tied for u in uses)]


def tie_broken_on_one_side(c: Result) -> Iterator[Mutant]:
    for i in tables(c):
        weight = c.assembled.weights[i]
        for k, step in enumerate(weight.steps):
            yield mutant(i, weight, k, edited(step.layout, rolled))


def tied_head_divided_twice(c: Result) -> Iterator[Mutant]:
    def squared(step: LeafStep) -> LeafStep:
        return replace(step, weight=np.where(step.index >= 0, step.weight**2, step.weight))

    last = [
        (i, w, k) for i, w, k in steps(c, "scales") if any(changes(s) for s in leaf_steps(w.steps[k].layout))
    ]
    for i, weight, k in last[-1:]:
        yield mutant(i, weight, k, edited(weight.steps[k].layout, squared))


def embedding_row_scaled(c: Result) -> Iterator[Mutant]:
    weights = {i: c.assembled.weights[i] for i in tables(c)}
    size = max(max(w.before) for w in weights.values())
    for row in range(size):
        scaled = replace(LeafStep.keep(size), weight=np.where(np.arange(size) == row, 1.5, 1.0))
        changed = {
            i: replace(
                w, steps=(*w.steps, AxisStep(w.before.index(size), Layout("leaf", (), scaled), "makes"))
            )
            for i, w in weights.items()
        }
        yield Mutant(f"row {row}", changed)


def noise_on_a_making_weight(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "makes", 2):

        def noisy(step: LeafStep) -> LeafStep:
            rows = np.arange(step.after) >= step.before
            return replace(step, noise=Noise(1, 0.05, rows, np.zeros(step.after, dtype=np.int64)))

        if len(leaf_steps(weight.steps[k].layout)) == 1:
            yield mutant(i, weight, k, edited(weight.steps[k].layout, noisy))


def noise_not_balanced(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "reads"):
        if any(s.noise is not None for s in leaf_steps(weight.steps[k].layout)):

            def loose(step: LeafStep) -> LeafStep:
                return step if step.noise is None else replace(step, noise=replace(step.noise, balance=None))

            yield mutant(i, weight, k, edited(weight.steps[k].layout, loose))


def zero_column_missing(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "reads"):
        for n, step in enumerate(leaf_steps(weight.steps[k].layout)):
            for unit in np.flatnonzero((step.index < 0) & (step.filler == ZERO)):

                def filled(step: LeafStep, unit: int = unit) -> LeafStep:
                    here = np.arange(step.after) == unit
                    return replace(
                        step, index=np.where(here, 0, step.index), weight=np.where(here, 1.0, step.weight)
                    )

                yield mutant(i, weight, k, edited(weight.steps[k].layout, filled, n))


def summed(c: Result, number: int, axis: int) -> bool:
    """Whether a product sums over an axis of a tensor, wherever it is used."""
    reads = [(i.line, v, k, term) for i in c.axes.instances for v, k, term in i.reads()]
    over = {
        (v, k) for line, v, k, term in reads if line.treatment == "contract" and term not in line.outputs[0]
    }
    return all((use, axis) in over for use in c.assembled.uses[number])


def mean_left_out(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "makes"):
        if summed(
            c, i, weight.steps[k].axis
        ):  # a head of its own: a unit that is the mean is zero behind a norm
            continue
        if any((s.filler == MEAN).any() for s in leaf_steps(weight.steps[k].layout)):

            def empty(step: LeafStep) -> LeafStep:
                return replace(step, filler=np.where(step.filler == MEAN, ZERO, step.filler))

            yield mutant(i, weight, k, edited(weight.steps[k].layout, empty))


def new_units_drawn(c: Result) -> Iterator[Mutant]:
    for i, weight, k in steps(c, "makes", 2):

        def drawn(step: LeafStep) -> LeafStep:
            new = np.arange(step.after) >= step.before
            filler, index = np.where(new, DRAWN, step.filler), np.where(new, -1, step.index)
            return replace(step, index=index, filler=filler, key=1)

        if len(leaf_steps(weight.steps[k].layout)) == 1:
            yield mutant(i, weight, k, edited(weight.steps[k].layout, drawn))
