"""The execution of the plan of one weight: on a whole array, or block by block.

A result is computed by blocks of rows (growc.plans.lazy_rows). No intermediate is as large as the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import numpy as np

from growc.algebra.indexmap import Array, Floats, Ints
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import wide
from growc.plans.first_axis import FirstAxis
from growc.plans.lazy_rows import Flat, Rows, as_rows, choice, stored
from growc.plans.leaf_values import Deviation, finite
from growc.plans.other_axes import across
from growc.plans.plan import DRAWN, ONE, AxisStep, Layout, LeafStep, WeightNormRole, WeightPlan
from growc.recipe.fills import new_units

ReadTensor = Callable[[str], Array]
"""Gives the source's tensor with a name."""

SMALL = 1e-6
"""The relative length below which a direction counts as zero: it is only rounding error.

The length is relative to the longest direction of the tensor."""
CHUNK = 1 << 17
"""The count of numbers that are added up at once."""


def execute(plan: WeightPlan, source: Array, read: ReadTensor | None = None) -> Array:
    """The new values of a weight, in its own element type. `source` has shape `plan.before`.

    16-bit numbers are computed in float32 and rounded once. `read` gives the tensors that `read_for` names.
    """
    if plan.literal is None and not plan.changed:
        return source
    return planned(plan, source, read).whole().reshape(plan.after)


def planned(plan: WeightPlan, source: Array | Rows, read: ReadTensor | None = None) -> Rows:
    """The new values of a weight by rows, which are computed on demand. A single number is a row.

    The source may be given by its rows, too. Reading rows raises GrowError (G326) if a new value would be too
    large for the element type, or no number.
    """
    if plan.literal is not None:
        return stored(np.asarray(plan.literal, dtype=source.dtype).reshape(plan.after))
    if not plan.changed:
        return as_rows(source)
    if stays_zero(plan) and not any(map(_turns, plan.steps)) and plan.scale > 0:
        shape = plan.after or (1,)
        return Rows(
            shape[0], shape[1:], source.dtype, lambda rows: np.zeros((len(rows), *shape[1:]), source.dtype)
        )
    if plan.normed is not None:
        rows = stored(_normed(plan.normed, read))
    else:
        computed = plan.scale != 1.0 or bool(plan.shift) or not all(map(_moves, plan.steps))
        std = Deviation((lambda: (0.0, 1.0)) if plan.new else partial(_deviation, source))
        rows = _stepped(plan.steps, source, read, plan.shift, computed, std)
    if plan.scale != 1.0:
        rows = rows.then(lambda x: (wide(x) * plan.scale).astype(x.dtype))
    if plan.shift:
        rows = rows.then(lambda x: x - x.dtype.type(plan.shift))
    return _numbers(rows.then(lambda x: x.astype(source.dtype, copy=False)), plan.name)


def _numbers(rows: Rows, name: str) -> Rows:
    """The rows, of which none may overflow or become NaN. Stored infinities and NaN may be copied."""

    def compute(numbers: Ints) -> Array:
        try:
            with np.errstate(over="raise", invalid="raise"):
                return rows.read(numbers)
        except FloatingPointError as error:
            message = f"new values of `{name}` are not finite"
            reason = "they follow from stored values that are infinite, NaN or too large"
            remedy = "mend the stored values, or choose a fill that only copies"
            raise GrowError(Diagnostic("G326", message, notes=(reason,), help=remedy)) from error

    return Rows(rows.count, rows.rest, rows.dtype, compute)


def _stepped(
    steps: Sequence[AxisStep],
    source: Array | Rows,
    read: ReadTensor | None,
    shift: float,
    computed: bool = True,
    deviation: Deviation | None = None,
) -> Rows:
    """A tensor with its shift after some steps. With `computed`, 16-bit numbers become float32."""
    std = deviation or Deviation(partial(_deviation, source))
    rows = as_rows(source)
    if computed and source.dtype.itemsize == 2 and source.dtype.kind not in "iu":
        rows = rows.then(lambda x: x.astype(np.float32))
    if shift:
        rows = rows.then(lambda x: x + x.dtype.type(shift))
    for step in steps:
        factors = {n: _read(read, n).astype(np.float64).reshape(-1, 1) for n in factors_of(step)}
        above = step.next
        other = (
            None if above is None else _stepped(above.steps, _read(read, above.source), read, shift, computed)
        )
        rows = _along(step, rows, other, std, factors)
    return rows


def _along(
    step: AxisStep, rows: Rows, other: Rows | None, std: Deviation, factors: Mapping[str, Floats]
) -> Rows:
    """The rows after a step. If `other` is given, new units come from it, after the same step."""
    new = None if other is None else new_units(step.layout.as_map())
    if step.axis:
        return across(step, rows, std, factors, other, new)
    first = FirstAxis(std, factors)
    result = first.along(step.layout, rows)
    if other is None or new is None:
        return result
    return choice(result, first.along(step.layout, other), new)


def _deviation(source: Array | Rows) -> tuple[float, float]:
    """The mean and the standard deviation of a source in double precision, as numpy computes them.

    The mean of complex numbers is that of their real parts. Raises FloatingPointError if one is not finite.
    """
    mean, std = _mean_and_std(source)
    return mean, float(finite(np.asarray(std)))


def _mean_and_std(source: Array | Rows) -> tuple[float, float]:
    if source.dtype.kind == "c":
        whole = wide(source.whole() if isinstance(source, Rows) else np.asarray(source))
        return float(np.mean(whole.real)), float(np.std(whole))
    flat = Flat(as_rows(source))
    mean = _sum(flat, 0, len(flat), lambda x: x) / len(flat)
    return mean, float(np.sqrt(_sum(flat, 0, len(flat), lambda x: (x - mean) ** 2) / len(flat)))


def _sum(flat: Flat, start: int, stop: int, term: Callable[[Floats], Floats]) -> float:
    """The sum of terms, added up in the order of numpy: by halves, whose length is a multiple of eight."""
    if stop - start <= CHUNK:
        return float(np.add.reduce(term(wide(flat.read(start, stop)))))
    half = (stop - start) // 2
    half += start - half % 8
    return _sum(flat, start, half, term) + _sum(flat, half, stop, term)


def _normed(normed: WeightNormRole, read: ReadTensor | None) -> Array:
    """The direction or the length of direction · length / ‖direction‖ after the steps of this weight.

    The new direction has the length, and if possible the sign, that the steps alone give the old direction:
    copies stay copies. Where that length is zero, it is as long as the longest. Where the weight is zero, the
    new length is zero.
    """
    direction, length = (_read(read, n).astype(np.float64) for n in (normed.direction, normed.length))
    before = _norm(direction, normed.axes)
    factor = 0.0 if normed.zero else length.reshape(before.shape) / before
    plain = _stepped(normed.steps, direction, read, 0.0).whole()
    weight = _stepped(normed.steps, direction * factor, read, 0.0).whole()
    weight_size, plain_size = _norm(weight, normed.axes), _norm(plain, normed.axes)
    sign = np.where((weight * plain).sum(normed.axes, keepdims=True) < 0, -1.0, 1.0)
    if normed.part == "length":
        return sign * weight_size
    longest = plain_size.max(initial=0.0) or 1.0
    lost = plain_size <= SMALL * longest
    vector = np.where(weight_size > 0, sign * weight, np.where(lost, 1.0, plain))
    rescaled: Array = vector / _norm(vector, normed.axes) * np.where(lost, longest, plain_size)
    return rescaled


def _norm(array: Array, axes: tuple[int, ...]) -> Array:
    length: Array = np.sqrt((array * array).sum(axes, keepdims=True))
    return length


def _read(read: ReadTensor | None, name: str) -> Array:
    assert read is not None, f"nobody brings {name}"
    return read(name)


def stays_zero(plan: WeightPlan) -> bool:
    """Whether all values of a weight are zero. Numbers drawn beside zeros are zero too."""
    leaves = (leaf for step in plan.steps for leaf in leaf_steps(step.layout))
    rule = (
        plan.literal is not None or plan.normed is not None or plan.shift or any(s.next for s in plan.steps)
    )
    return plan.zero and not plan.new and not rule and not any((leaf.filler == ONE).any() for leaf in leaves)


def draws(step: AxisStep) -> bool:
    """Whether a step draws numbers, one for each entry."""
    leaves = leaf_steps(step.layout)
    return any(not leaf.even or bool((leaf.filler == DRAWN).any()) for leaf in leaves)


def _turns(step: AxisStep) -> bool:
    """Whether a step may give zeros a sign: by what it draws, or by a negative factor."""
    return draws(step) or any(bool((leaf.weight < 0).any()) for leaf in leaf_steps(step.layout))


def _moves(step: AxisStep) -> bool:
    """Whether a step computes nothing: entries move, or are zero."""
    above = () if step.next is None else step.next.steps
    return all(leaf.moves for leaf in leaf_steps(step.layout)) and all(map(_moves, above))


def factors_of(step: AxisStep) -> set[str]:
    """The tensors whose elements multiply the rows that a step takes means of."""
    return {leaf.factors for leaf in leaf_steps(step.layout) if leaf.factors}


def read_for(plan: WeightPlan) -> set[str]:
    """The names of the tensors that executing a plan asks `read` for."""
    if plan.normed is None:
        return read_beside(plan.steps)
    return read_beside(plan.normed.steps) | {plan.normed.direction, plan.normed.length}


def read_beside(steps: Sequence[AxisStep]) -> set[str]:
    """The names of the other tensors that executing steps reads."""
    names: set[str] = set()
    for step in steps:
        names |= factors_of(step)
        if step.next is not None:
            names |= {step.next.source} | read_beside(step.next.steps)
    return names


def leaf_steps(layout: Layout) -> list[LeafStep]:
    """The steps of all leaves of a layout, left to right."""
    if layout.step is not None:
        return [layout.step]
    return [s for p in layout.parts for s in leaf_steps(p)]
