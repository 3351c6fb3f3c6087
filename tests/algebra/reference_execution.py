"""Executing the plan of one weight as a whole: what blocks of it have to come to, bit for bit.

Needs: a plan, its source. Gives: the array, in plain steps, one axis after the other.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Array, Floats, Ints
from growc.algebra.sinusoid import continued_rows
from growc.ir.graph import wide
from growc.plans.execute import ReadTensor, draws, leaf_steps
from growc.plans.other_axes import through
from growc.plans.plan import CONTINUED, DRAWN, MEAN, ONE, AxisStep, LeafStep, WeightPlan
from growc.recipe.fills import new_units


def execute(plan: WeightPlan, source: Array, read: ReadTensor) -> Array:
    """The new values of a weight, as `growc.plans.execute.execute`, but for parts of computed weights."""
    if plan.literal is not None:
        return np.asarray(plan.literal, dtype=source.dtype).reshape(plan.after)
    if not plan.changed:
        return source
    out = _stepped(plan.steps, source, read, plan.shift)
    if plan.scale != 1.0:
        out = (wide(out) * plan.scale).astype(out.dtype)
    if plan.shift:
        out = out - out.dtype.type(plan.shift)
    return np.ascontiguousarray(out).reshape(plan.after).astype(source.dtype, copy=False)


def _stepped(steps: Sequence[AxisStep], source: Array, read: ReadTensor, shift: float) -> Array:
    """A tensor with its shift after some steps; 16-bit numbers as float32."""
    std = float(np.std(wide(source))) if any(map(draws, steps)) else 0.0
    narrow = source.dtype.itemsize == 2 and source.dtype.kind not in "iu"
    out = source.astype(np.float32) if narrow else source
    out = out + out.dtype.type(shift) if shift else out
    for step in steps:
        names = {leaf.factors for leaf in leaf_steps(step.layout) if leaf.factors}
        factors = {name: read(name).astype(np.float64).reshape(-1, 1) for name in names}
        above = step.next
        other = None if above is None else _stepped(above.steps, read(above.source), read, shift)
        out = _along(step, out, other, std, factors)
    return out


def _along(
    step: AxisStep, array: Array, other: Array | None, std: float, factors: Mapping[str, Array]
) -> Array:
    """Apply one axis step, on the array seen as (outer, axis, inner): leaves are factors of the middle.

    New units come from `other`, if it is given: it takes the same step.
    """
    front = np.moveaxis(array, step.axis, 0)
    rest = front.shape[1:]

    def leaf(own: LeafStep, view: Array, part: int) -> Array:
        return _leaf(own, view, std, part, factors)

    done = through(step.layout, front.reshape(1, front.shape[0], -1), leaf)[0]
    if other is not None:
        beside = np.moveaxis(other, step.axis, 0).reshape(1, front.shape[0], -1)
        new = new_units(step.layout.as_map())
        done = np.where(new[:, None], through(step.layout, beside, leaf)[0], done)
    return np.moveaxis(done.reshape(len(done), *rest), 0, step.axis)


def _leaf(step: LeafStep, array: Array, std: float, part: int, factors: Mapping[str, Array]) -> Array:
    copies = step.index >= 0
    new = array[:, np.where(copies, step.index, 0)]
    touched = ~copies | (step.weight != 1)
    if not touched.any() and step.noise is None:
        return new
    out = wide(new) if array.dtype.itemsize > 4 else new.astype(np.float32)
    scaled = copies & (step.weight != 1)
    if scaled.any():
        out[:, scaled] = wide(out[:, scaled]) * step.weight[scaled][:, None]
    out[:, ~copies] = 0
    mean = step.filler == MEAN
    if mean.any():
        outer, size, inner = array.shape
        scaled_up = wide(array) * (factors[step.factors] if step.factors else 1)
        means = scaled_up.reshape(outer, size // step.block, step.block, inner).mean(axis=1)
        out[:, mean] = means[:, np.flatnonzero(mean) % step.block] * step.weight[mean][:, None]
    out[:, step.filler == ONE] = 1
    if (step.filler == CONTINUED).any():
        for table, grown in zip(array, out, strict=True):
            grown[step.before :] = continued_rows(table, step.after)
    drawn = np.flatnonzero(step.filler == DRAWN)
    if drawn.size:
        values = _normal(Draws(step.key).at(part), drawn, out.shape) * std
        out[:, drawn] = values * step.weight[drawn][:, None]
    if step.noise is not None:
        _add_noise(step, out, std, part)
    return out.astype(array.dtype)


def _normal(draws: Draws, rows: Ints, shape: tuple[int, ...]) -> Floats:
    """Standard normal values of shape (outer, rows, inner); element = row · (outer · inner) + position."""
    outer, _, inner = shape
    width = outer * inner
    values = np.stack([draws.normal(int(r) * width, width) for r in rows])
    return values.reshape(len(rows), outer, inner).transpose(1, 0, 2)


def _add_noise(step: LeafStep, out: Array, std: float, part: int) -> None:
    noise = step.noise
    assert noise is not None
    rows = np.flatnonzero(noise.rows)
    values = _normal(Draws(noise.key).at(part), rows, out.shape) * (noise.scale * std)
    if noise.balance is not None:
        values = _balanced(values, noise.groups[rows], noise.balance[rows])
    out[:, rows] += values


def _balanced(values: Floats, groups: Ints, balance: Floats) -> Floats:
    """Project out what the function would see, per group the component along `balance`; keep the variance."""
    _, group = np.unique(groups, return_inverse=True)
    count = np.bincount(group)
    squares = np.bincount(group, weights=balance**2)
    weighted = np.zeros((values.shape[0], len(count), values.shape[2]))
    for i, g in enumerate(group):
        weighted[:, g] += values[:, i] * balance[i]
    values = values - (weighted / squares[None, :, None])[:, group] * balance[None, :, None]
    return values * np.sqrt(count / np.maximum(count - 1, 1))[group][None, :, None]
