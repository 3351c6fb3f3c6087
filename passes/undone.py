"""What a later node takes back: axes that are turned and turned back, what is padded and cut off again, what
is cut apart and joined.

Needs: nodes with sizes, and the numbers beside them. Gives: whether a way through nodes leaves every element
where it was.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from growc.graph import Node
from growc.indexmap import Ints
from growc.passes.settled import LAYOUT


def taken_back(node: Node) -> bool:
    """Whether a node pads or cuts apart and one behind it takes that back, or is the one behind."""
    if node.op in PAIRS:
        return any(PAIRS[node.op](node, user) for v in node.outputs for user, _ in v.users)
    maker = node.inputs[0].producer if node.inputs and node.inputs[0] is not None else None
    return maker is not None and maker.op in PAIRS and PAIRS[maker.op](maker, node)


def not_undone(way: Sequence[Node]) -> Node | None:
    """The first transposition on a way that a later one does not undo before the shape changes."""
    open_ones: list[Node] = []
    for node in way:
        if node.op == "Transpose":
            if open_ones and _undoes(open_ones[-1], node):
                open_ones.pop()
            else:
                open_ones.append(node)
        elif node.op in LAYOUT and open_ones:
            return open_ones[0]
    return open_ones[0] if open_ones else None


def _undoes(first: Node, second: Node) -> bool:
    a, b = _order(first), _order(second)
    return len(a) == len(b) and [a[i] for i in b] == list(range(len(a)))


def _order(node: Node) -> list[int]:
    rank = node.outputs[0].rank
    return list(node.attributes.get("perm", range(rank)[::-1]))


def _cut_off(pad: Node, cut: Node) -> bool:
    given, padded, made = pad.inputs[0], pad.outputs[0], cut.outputs[0]
    if cut.op != "Slice" or cut.inputs[0] is not padded or given is None or not given.sizes:
        return False
    if given.sizes != made.sizes or padded.sizes is None:
        return False
    return all(_starts_behind(pad, cut, sample) for sample in range(len(given.sizes[0])))


def _starts_behind(pad: Node, cut: Node, sample: int) -> bool:
    """Whether a cut takes every axis in steps of one from where what was padded in front ends."""
    sizes = np.array([size[sample] for size in pad.outputs[0].sizes or ()])
    pads, starts = _numbers(pad, 1, "pads", sample), _numbers(cut, 1, "starts", sample)
    if pads is None or starts is None:
        return False
    padded = _numbers(pad, 3, "axes", sample, range(len(pads) // 2))
    axes = _numbers(cut, 3, "axes", sample, range(len(starts)))
    steps = _numbers(cut, 4, "steps", sample, [1] * len(starts))
    if padded is None or axes is None or steps is None or (steps != 1).any():
        return False
    front, first = np.zeros_like(sizes), np.zeros_like(sizes)
    front[padded] = pads[: len(padded)]
    first[axes] = np.where(starts < 0, starts + sizes[axes], starts)
    return bool((front == first).all())


def _numbers(
    node: Node, place: int, name: str, sample: int, default: Sequence[int] | None = None
) -> Ints | None:
    """An operand of whole numbers, or the attribute that older versions have; None where it is not known."""
    value = node.input(place)
    found = node.attributes.get(name, default)
    if value is not None and value.weight is not None:
        found = value.weight.read()
    elif value is not None:
        found = None if value.known is None else value.known[sample % len(value.known)]
    return None if found is None else np.asarray(found, dtype=np.int64).reshape(-1)


def _joined(split: Node, join: Node) -> bool:
    """Whether the parts are joined in their order, on the axis on which they were cut."""
    rank = split.outputs[0].rank
    axes = [node.attributes.get("axis", 0) % max(rank, 1) for node in (split, join)]
    return join.op == "Concat" and list(join.inputs) == list(split.outputs) and axes[0] == axes[1]


PAIRS: Mapping[str, Callable[[Node, Node], bool]] = {"Pad": _cut_off, "Split": _joined}
"""Operators that a later one takes back, and which one does."""
