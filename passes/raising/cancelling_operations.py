"""Operations that a later node undoes: transposing and transposing back, padding and cutting off, cutting and
joining.

Needs: nodes with sizes, and their constant operands. Gives: whether a path through nodes leaves every element
at its place.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from growc.algebra.indexmap import Ints
from growc.ir.graph import Node, Value
from growc.ir.traits import TURN, VIEW


def taken_back(node: Node) -> bool:
    """Whether a node pads or cuts and a later node undoes that, or is this later node."""
    if node.op == "Concat":
        return _whole(node) is not None
    behind = [user for v in node.outputs for user, _ in v.users]
    if node.op in ("Split", "Slice") and any(_whole(n) is node.inputs[0] for n in behind if n.op == "Concat"):
        return True
    maker = node.inputs[0].producer if node.op == "Slice" and node.inputs[0] is not None else None
    if maker is not None and maker.op == "Pad":
        return _cut_off(maker, node)
    return node.op == "Pad" and any(_cut_off(node, n) for n in behind if n.op == "Slice")


def not_undone(way: Sequence[Node]) -> Node | None:
    """The first transposition on a path that no later one undoes before the shape changes."""
    open_ones: list[Node] = []
    for node in way:
        if node.op == "Transpose":
            if open_ones and _undoes(open_ones[-1], node):
                open_ones.pop()
            else:
                open_ones.append(node)
        elif node.has(VIEW, TURN) and open_ones:
            return open_ones[0]
    return open_ones[0] if open_ones else None


def _undoes(first: Node, second: Node) -> bool:
    a, b = _order(first), _order(second)
    return len(a) == len(b) and [a[i] for i in b] == list(range(len(a)))


def _order(node: Node) -> list[int]:
    rank = node.outputs[0].rank
    return node.integers("perm") or list(range(rank)[::-1])


def _cut_off(pad: Node, cut: Node) -> bool:
    before, padded, after = pad.inputs[0], pad.outputs[0], cut.outputs[0]
    if cut.op != "Slice" or cut.inputs[0] is not padded or before is None or not before.sizes:
        return False
    if before.sizes != after.sizes or padded.sizes is None:
        return False
    return all(_starts_behind(pad, cut, sample) for sample in range(len(before.sizes[0])))


def _starts_behind(pad: Node, cut: Node, sample: int) -> bool:
    """Whether a cut starts, on every axis, where the padding in front ends."""
    sizes = np.array([size[sample] for size in pad.outputs[0].sizes or ()])
    pads, first = _numbers(pad, 1, "pads", sample), _first(cut, sizes, sample)
    padded = None if pads is None else _numbers(pad, 3, "axes", sample, range(len(pads) // 2))
    if pads is None or padded is None or first is None:
        return False
    front = np.zeros_like(sizes)
    front[padded] = pads[: len(padded)]
    return bool((front == first).all())


def _first(cut: Node, sizes: Ints, sample: int) -> Ints | None:
    """The start of a cut on every axis; None where that is not known, or the step is not one."""
    starts = _numbers(cut, 1, "starts", sample)
    count = 0 if starts is None else len(starts)
    axes, steps = (
        _numbers(cut, i, n, sample, d) for i, n, d in ((3, "axes", range(count)), (4, "steps", [1] * count))
    )
    if starts is None or axes is None or steps is None or (steps != 1).any():
        return None
    starts_by_axis = np.zeros_like(sizes)
    starts_by_axis[axes] = np.where(starts < 0, starts + sizes[axes], starts)
    return starts_by_axis


def _numbers(
    node: Node, place: int, name: str, sample: int, default: Sequence[int] | None = None
) -> Ints | None:
    """An operand of integers, or the attribute of older operator versions; None where it is not known."""
    value = node.input(place)
    numbers = node.attributes.get(name, default)
    if value is not None and value.weight is not None:
        numbers = value.weight.read()
    elif value is not None:
        numbers = None if value.known is None else value.known[sample % len(value.known)]
    return None if numbers is None else np.asarray(numbers, dtype=np.int64).reshape(-1)


def _whole(join: Node) -> Value | None:
    """The value whose parts a node joins, all of them, in order, and on the axis of the cut; else None."""
    makers = [v.producer for v in join.operands if v.producer is not None]
    whole = makers[0].inputs[0] if makers else None
    if whole is None or not whole.sizes or whole.sizes != join.outputs[0].sizes:
        return None
    first = makers[0]
    axis = join.integer("axis") % whole.rank
    if first.op == "Split":
        same = list(join.inputs) == list(first.outputs)
        return whole if same and first.integer("axis") % whole.rank == axis else None
    if len(makers) < len(join.inputs) or any(n.op != "Slice" or n.inputs[0] is not whole for n in makers):
        return None
    return whole if all(_in_a_row(makers, axis, sample) for sample in range(len(whole.sizes[0]))) else None


def _in_a_row(cuts: Sequence[Node], axis: int, sample: int) -> bool:
    """Whether cuts follow each other on one axis without a gap, and each takes the other axes whole."""
    start = 0
    for cut in cuts:
        sizes = np.array([size[sample] for size in cut.required(0).sizes or ()])
        first, taken_sizes = _first(cut, sizes, sample), [size[sample] for size in cut.outputs[0].sizes or ()]
        if first is None or first[axis] != start or first.sum() != start or len(taken_sizes) != len(sizes):
            return False
        start += taken_sizes[axis]
    return True
