"""Rows of a value followed back to stored tables, through operators that keep them apart, and zeros zero.

Needs: a simulated graph. Gives: `Way`s. Where sizes of one leave it open which axis the rows came from,
there are several.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import prod

from growc.graph import Node, Size, Value, Weight

Above = Mapping[int, int]
"""For operands of a node, the axis that has the rows."""

SHAPED: Mapping[str, int] = {"Reshape": 1, "Expand": 1, "Resize": 3}
"""Operators that name the sizes of what they make, and the operand that does."""


@dataclass(frozen=True, eq=False)
class Way:
    """The tables that rows come from, and which axis has them: of these, and of all values on the way."""

    tables: Mapping[Weight, int] = field(default_factory=dict)
    axes: Mapping[Value, int] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[Node, int]:
        """The nodes on the way, each with the axis of its result."""
        return {v.producer: axis for v, axis in self.axes.items() if v.producer is not None}


def ways(value: Value, axis: int, way: Way, static: Set[Value]) -> Iterator[Way]:
    """All ways by which the rows along an axis of a value may come from tables, as `way` goes on."""
    if value in way.axes:
        if way.axes[value] == axis:
            yield way
        return
    longer = replace(way, axes={**way.axes, value: axis})
    if value.weight is not None:
        known = way.tables.get(value.weight, axis) == axis
        if known and _plain(value.weight):
            yield replace(longer, tables={**way.tables, value.weight: axis})
        return
    if value.producer is None or value not in static:
        return
    for above in above_of(value.producer, axis):
        found = [longer]
        for operand, at in above.items():
            given = value.producer.inputs[operand]
            assert given is not None
            found = [more for one in found for more in ways(given, at, one, static)]
        yield from found


def _plain(weight: Weight) -> bool:
    """Whether a stored tensor is one whose rows can be added or dropped by themselves."""
    return weight.floating and weight.stored is None and not weight.computed and weight.order is None


def above_of(node: Node, axis: int) -> Iterator[Above]:
    """Where the rows along an axis of what a node makes may stand in its operands."""
    rule = _RULES.get(node.op)
    first, out = node.input(0), node.outputs[0]
    if rule is None or first is None or first.sizes is None or out.sizes is None:
        return
    yield from rule(node, axis, first.sizes, out.sizes)


Sizes = tuple[Size, ...]


def _same(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    if before[axis] == after[axis]:
        yield {0: axis}


def _transpose(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    yield {0: (node.integers("perm") or range(len(before))[::-1])[axis]}


def _unsqueeze(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    added = _axes(node, len(after))
    if added is not None and axis not in added:
        yield {0: axis - sum(a < axis for a in added)}


def _squeeze(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    gone = _axes(node, len(before))
    if gone is not None:
        yield {0: [k for k in range(len(before)) if k not in gone][axis]}


def _axes(node: Node, rank: int) -> set[int] | None:
    """The axes that a node names; None where it names none."""
    given = node.named_axes
    return None if given is None else {a % rank for a in given}


def _concat(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    if node.integer("axis", 0) % len(after) != axis:
        yield dict.fromkeys(range(len(node.inputs)), axis)


def _gather(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    at, more = node.integer("axis", 0) % len(before), len(after) - len(before)
    if axis < at or axis > at + more:
        yield {0: axis if axis < at else axis - more}


def _reshape(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    """As many elements stand between two rows as before."""
    for k, size in enumerate(before):
        if size == after[axis] and _named(node) and _behind(before, k) == _behind(after, axis):
            yield {0: k}


def _behind(sizes: Sizes, axis: int) -> list[int]:
    return [prod(point[axis + 1 :]) for point in zip(*sizes, strict=True)]


def _expand(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    at = axis - len(after) + len(before)
    if at >= 0 and before[at] == after[axis] and _named(node):
        yield {0: at}


def _resize(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[Above]:
    if before[axis] == after[axis] and "axes" not in node.attributes and _named(node):
        yield {0: axis}


def _named(node: Node) -> bool:
    """Whether the sizes that a node names are known, if it names any."""
    value = node.input(SHAPED[node.op])
    return value is None or value.known is not None


KEPT = ("Cast", "Identity", "QuantizeLinear", "DequantizeLinear")
_Rule = Callable[[Node, int, Sizes, Sizes], Iterator[Above]]

_RULES: Mapping[str, _Rule] = {
    **dict.fromkeys([*KEPT, "Slice", "Tanh", "Relu", "Neg"], _same),
    "Transpose": _transpose,
    "Unsqueeze": _unsqueeze,
    "Squeeze": _squeeze,
    "Concat": _concat,
    "Gather": _gather,
    "Reshape": _reshape,
    "Expand": _expand,
    "Resize": _resize,
}
