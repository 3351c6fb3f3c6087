"""Rows of a value followed back to stored tables, through operators that keep them apart, and zeros zero.

Needs: a simulated graph. Gives: `Way`s. Where sizes of one leave it open which axis the rows came from,
there are several.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import prod

from growc.algebra.space import Size
from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.notation import labels
from growc.ir.traits import DEQUANTISE, QUANTISE, SAME, VIEW
from growc.passes.axes.infer import operands_of

Above = Mapping[int, int]
"""For operands of a node, the axis that has the rows."""


@dataclass(frozen=True, eq=False)
class Way:
    """The tables that rows come from, and which axis has them: of these, and of all values on the way."""

    tables: Mapping[Weight, int] = field(default_factory=dict)
    axes: Mapping[Value, int] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[Node, int]:
        """The nodes on the way, each with the axis of its result."""
        return {v.producer: axis for v, axis in self.axes.items() if v.producer is not None}


def ways(graph: Graph, value: Value, axis: int, way: Way, static: Set[Value]) -> Iterator[Way]:
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
    for above in above_of(graph, value, axis):
        found = [longer]
        for operand, at in above.items():
            given = value.producer.inputs[operand]
            assert given is not None
            found = [more for one in found for more in ways(graph, given, at, one, static)]
        yield from found


def _plain(weight: Weight) -> bool:
    """Whether a stored tensor is one whose rows can be added or dropped by themselves."""
    return weight.floating and weight.stored is None and not weight.computed and weight.order is None


def above_of(graph: Graph, made: Value, axis: int) -> Iterator[Above]:
    """Where the rows along an axis of a result may stand in the operands, of zeros where they are zero."""
    node = made.producer
    first = None if node is None else node.input(0)
    if node is None or first is None or first.sizes is None or made.sizes is None or not _sized(node):
        return
    if node.has(SAME, QUANTISE, DEQUANTISE):
        yield from [{0: axis}] if first.sizes[axis] == made.sizes[axis] else []
    elif node.has(VIEW):
        yield from ({0: k} for k in _viewed(node, axis, first.sizes, made.sizes))
    elif graph.dialect.knows(node.op):
        line = graph.dialect.line(node, *operands_of(node))
        term = (line.outputs[node.outputs.index(made)] or ("_",) * made.rank)[axis]
        above = {i: terms.index(term) for i, terms in enumerate(line.inputs) if terms and term in terms}
        chosen = any(above.get(0) == one.axis for one in node.addresses if not one.end)
        if above and not chosen and labels(term) == [term] and line.treatment.startswith(KEEPING):
            yield above


KEEPING = ("layout", "lookup", "pointwise zero")
"""How treatments begin that make zeros of zeros."""

Sizes = tuple[Size, ...]


def _sized(node: Node) -> bool:
    """Whether the sizes that a node lists, if it does, are known and those of all axes."""
    if node.laws.shape is None:
        return True
    listed = node.input(node.laws.shape)
    return (listed is None or listed.known is not None) and "axes" not in node.attributes


def _viewed(node: Node, axis: int, before: Sizes, after: Sizes) -> Iterator[int]:
    """The axes that have the rows before they got another shape."""
    named = node.named_axes if node.laws.shape is None else None
    if node.laws.shape is not None:  # as many elements stand between two rows as before
        behind = _behind(after, axis)
        yield from (k for k, n in enumerate(before) if n == after[axis] and _behind(before, k) == behind)
    elif named is not None:
        rank = max(len(before), len(after))
        kept = [k for k in range(rank) if k not in {a % rank for a in named}]
        yield from [kept[axis]] if len(after) < len(before) else [kept.index(axis)] if axis in kept else []


def _behind(sizes: Sizes, axis: int) -> list[int]:
    return [prod(point[axis + 1 :]) for point in zip(*sizes, strict=True)]
