"""Operators that only move elements, done to numbers: which element stands where."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.graph import Node
from growc.indexmap import Array, Ints
from growc.traits import SAME, VIEW


def moved(node: Node, numbers: Ints, point: int) -> Sequence[Ints]:
    """The results of a node whose first operand is `numbers`, at a sample point; none where it does more."""
    if any(out.sizes is None for out in node.outputs):
        return []
    shapes = [[s[point] for s in out.sizes or ()] for out in node.outputs]
    known = [None if v is None or v.known is None else v.known[point] for v in node.inputs]
    if node.has(VIEW, SAME):
        return [numbers.reshape(shapes[0])]
    if node.op == "Transpose":
        return [np.transpose(numbers, node.integers("perm"))]
    if node.op == "Split":
        axis = node.integer("axis", 0)
        ends = np.cumsum([shape[axis] for shape in shapes])[:-1]
        return list(np.split(numbers, ends, axis=axis))
    if node.op == "Gather" and known[1] is not None:
        return [np.take(numbers, known[1], axis=node.integer("axis", 0))]
    if node.op == "GatherND" and known[1] is not None and not node.integer("batch_dims"):
        return [numbers[tuple(np.moveaxis(known[1], -1, 0))]]
    if node.op == "Slice":
        return _sliced(node, numbers, known)
    return []


def _sliced(node: Node, numbers: Ints, known: Sequence[Array | None]) -> Sequence[Ints]:
    """A slice, by operands or (in old opsets) by attributes."""
    given = [*known[1:], *[None] * 4][:4]
    if len(node.inputs) == 1:
        given = [node.array(name) for name in ("starts", "ends", "axes", "steps")]
    starts, ends, axes, steps = given
    if (
        starts is None
        or ends is None
        or any(
            v is not None and k is None
            for v, k in zip(node.inputs, known, strict=True)
            if v is not node.inputs[0]
        )
    ):
        return []
    counts = range(len(starts))
    cut = [slice(None)] * numbers.ndim
    for k in counts:
        axis, step = (k if axes is None else int(axes[k])), (1 if steps is None else int(steps[k]))
        start, end = int(starts[k]), int(ends[k])
        size = numbers.shape[axis]
        stop = None if step < 0 and end < -size else end
        cut[axis] = slice(start, stop, step)
    return [numbers[tuple(cut)]]
