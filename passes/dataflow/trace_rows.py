"""The stored tables that rows of a value come from, through operators that keep rows apart.

Needs: a simulated graph. Gives: `RowPath`s. In a value made of stored tensors alone, rows made of zeros are
zero. There are several ways where axes of size one leave open which axis the rows come from.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass, field, replace
from math import prod
from typing import NamedTuple

from growc.algebra.space import Size
from growc.ir.graph import Graph, Node, Value, Weight
from growc.ir.notation import labels
from growc.ir.traits import DEQUANTISE, QUANTISE, SAME, VIEW
from growc.passes.axes.infer import operands_of


class RowPlace(NamedTuple):
    """The place of rows: an axis, and the number of consecutive elements of it that each row has."""

    axis: int
    block: int = 1


Above = Mapping[int, RowPlace]
"""The place of the rows in each operand of a node that has them."""


@dataclass(frozen=True, eq=False)
class RowPath:
    """One path of rows: their place in the tables that they come from, and in all values on the path."""

    tables: Mapping[Weight, RowPlace] = field(default_factory=dict)
    places: Mapping[Value, RowPlace] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[Node, RowPlace]:
        """The nodes on the path, each with the place of the rows in its result."""
        return {v.producer: at for v, at in self.places.items() if v.producer is not None}


def ways(graph: Graph, value: Value, along: RowPlace, way: RowPath, static: Set[Value]) -> Iterator[RowPath]:
    """Yield all paths from tables to the rows of a value that extend `way`."""
    if value in way.places:
        if way.places[value] == along:
            yield way
        return
    longer = replace(way, places={**way.places, value: along})
    if value.weight is not None:
        agrees = way.tables.get(value.weight, along) == along
        if agrees and _plain(value.weight):
            yield replace(longer, tables={**way.tables, value.weight: along})
        return
    if value.producer is None:
        return
    for above in above_of(graph, value, along, zeros=value in static):
        several = [longer]
        for operand, at in above.items():
            source = value.producer.inputs[operand]
            assert source is not None
            several = [
                extended for shorter in several for extended in ways(graph, source, at, shorter, static)
            ]
        yield from several


def _plain(weight: Weight) -> bool:
    """Whether single rows of a stored tensor can be added or dropped."""
    return weight.floating and weight.stored is None and not weight.computed and weight.order is None


def above_of(graph: Graph, result: Value, along: RowPlace, *, zeros: bool = True) -> Iterator[Above]:
    """Yield the possible places of a result's rows in the operands of its node.

    `zeros`: only through operators that make zero rows of zero rows.
    """
    node, axis = result.producer, along.axis
    first = None if node is None else node.input(0)
    if node is None or first is None or first.sizes is None or result.sizes is None or not _sized(node):
        return
    if node.has(SAME, QUANTISE, DEQUANTISE):
        yield from [{0: along}] if first.sizes[axis] == result.sizes[axis] else []
    elif node.has(VIEW):
        yield from ({0: place} for place in _viewed(node, along, first.sizes, result.sizes))
    elif graph.dialect.knows(node.op):
        line = graph.dialect.line(node, *operands_of(node))
        term = (line.outputs[node.outputs.index(result)] or ("_",) * result.rank)[axis]
        above = {
            i: RowPlace(terms.index(term), along.block)
            for i, terms in enumerate(line.inputs)
            if terms and term in terms
        }
        is_chosen = any(0 in above and above[0].axis == one.axis for one in node.addresses if not one.end)
        keeps_apart = line.treatment.startswith(KEEPING if zeros else KEEPING + ROWWISE)
        if above and not is_chosen and labels(term) == (term,) and keeps_apart:
            yield above


KEEPING = ("layout", "lookup", "pointwise zero")
"""Prefixes of treatments that make zeros of zeros."""
ROWWISE = ("add", "multiply", "divide", "pointwise", "select", "contract", "mean", "sum", "fold", "extreme")
"""Prefixes of other treatments that keep units of a label apart, where the label is on both sides."""

Dimensions = tuple[Size, ...]


def _sized(node: Node) -> bool:
    """Whether the target shape of a node, if it has one, is known and covers all axes."""
    if node.laws.shape is None:
        return True
    listed = node.input(node.laws.shape)
    return (listed is None or listed.known is not None) and "axes" not in node.attributes


def _viewed(node: Node, along: RowPlace, before: Dimensions, after: Dimensions) -> Iterator[RowPlace]:
    """Yield the places of rows before a change of shape."""
    named, (axis, block) = node.named_axes if node.laws.shape is None else None, along
    if node.laws.shape is not None:  # a change of shape keeps the distance between two rows in elements
        distances = [block * n for n in _behind(after, axis)]
        for k, sizes in enumerate(before):
            blocks = {divmod(n, m) for n, m in zip(distances, _behind(before, k), strict=True)}
            length, rest = blocks.pop()
            if (
                not blocks
                and not rest
                and length
                and sizes == tuple(n // block * length for n in after[axis])
            ):
                yield RowPlace(k, length)
    elif named is not None:
        rank = max(len(before), len(after))
        stay = [k for k in range(rank) if k not in {a % rank for a in named}]
        axes = [stay[axis]] if len(after) < len(before) else [stay.index(axis)] if axis in stay else []
        yield from (RowPlace(k, block) for k in axes)


def _behind(sizes: Dimensions, axis: int) -> list[int]:
    return [prod(point[axis + 1 :]) for point in zip(*sizes, strict=True)]
