"""Rows of a value followed back to stored tables, through operators that keep them apart.

Needs: a simulated graph. Gives: `Way`s. Of what is made of stored tensors alone, rows of zeros are zero as
well. Where sizes of one leave it open which axis the rows came from, there are several.
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


class Along(NamedTuple):
    """Where rows are: an axis, and how many of its elements each of them has, one row after the other."""

    axis: int
    block: int = 1


Above = Mapping[int, Along]
"""For operands of a node, where they have the rows."""


@dataclass(frozen=True, eq=False)
class Way:
    """The tables that rows come from, and where they have them: of these, and of all values on the way."""

    tables: Mapping[Weight, Along] = field(default_factory=dict)
    places: Mapping[Value, Along] = field(default_factory=dict)

    @property
    def nodes(self) -> dict[Node, Along]:
        """The nodes on the way, each with the place in its result."""
        return {v.producer: at for v, at in self.places.items() if v.producer is not None}


def ways(graph: Graph, value: Value, along: Along, way: Way, static: Set[Value]) -> Iterator[Way]:
    """All ways by which the rows of a value may come from tables, as `way` goes on."""
    if value in way.places:
        if way.places[value] == along:
            yield way
        return
    longer = replace(way, places={**way.places, value: along})
    if value.weight is not None:
        known = way.tables.get(value.weight, along) == along
        if known and _plain(value.weight):
            yield replace(longer, tables={**way.tables, value.weight: along})
        return
    if value.producer is None:
        return
    for above in above_of(graph, value, along, zeros=value in static):
        found = [longer]
        for operand, at in above.items():
            given = value.producer.inputs[operand]
            assert given is not None
            found = [more for one in found for more in ways(graph, given, at, one, static)]
        yield from found


def _plain(weight: Weight) -> bool:
    """Whether a stored tensor is one whose rows can be added or dropped by themselves."""
    return weight.floating and weight.stored is None and not weight.computed and weight.order is None


def above_of(graph: Graph, made: Value, along: Along, *, zeros: bool = True) -> Iterator[Above]:
    """Where the rows of a result may stand in the operands; `zeros`: and are zero where those are."""
    node, axis = made.producer, along.axis
    first = None if node is None else node.input(0)
    if node is None or first is None or first.sizes is None or made.sizes is None or not _sized(node):
        return
    if node.has(SAME, QUANTISE, DEQUANTISE):
        yield from [{0: along}] if first.sizes[axis] == made.sizes[axis] else []
    elif node.has(VIEW):
        yield from ({0: place} for place in _viewed(node, along, first.sizes, made.sizes))
    elif graph.dialect.knows(node.op):
        line = graph.dialect.line(node, *operands_of(node))
        term = (line.outputs[node.outputs.index(made)] or ("_",) * made.rank)[axis]
        above = {
            i: Along(terms.index(term), along.block)
            for i, terms in enumerate(line.inputs)
            if terms and term in terms
        }
        chosen = any(0 in above and above[0].axis == one.axis for one in node.addresses if not one.end)
        apart = line.treatment.startswith(KEEPING if zeros else KEEPING + APART)
        if above and not chosen and labels(term) == [term] and apart:
            yield above


KEEPING = ("layout", "lookup", "pointwise zero")
"""How treatments begin that make zeros of zeros."""
APART = ("add", "multiply", "divide", "pointwise", "select", "contract", "mean", "sum", "fold", "extreme")
"""How others begin that keep what has a label on both sides apart along it."""

Sizes = tuple[Size, ...]


def _sized(node: Node) -> bool:
    """Whether the sizes that a node lists, if it does, are known and those of all axes."""
    if node.laws.shape is None:
        return True
    listed = node.input(node.laws.shape)
    return (listed is None or listed.known is not None) and "axes" not in node.attributes


def _viewed(node: Node, along: Along, before: Sizes, after: Sizes) -> Iterator[Along]:
    """Where the rows were before they got another shape."""
    named, (axis, block) = node.named_axes if node.laws.shape is None else None, along
    if node.laws.shape is not None:  # as many elements stand between two rows as before
        apart = [block * n for n in _behind(after, axis)]
        for k, sizes in enumerate(before):
            blocks = {divmod(n, m) for n, m in zip(apart, _behind(before, k), strict=True)}
            own, rest = blocks.pop()
            if not blocks and not rest and own and sizes == tuple(n // block * own for n in after[axis]):
                yield Along(k, own)
    elif named is not None:
        rank = max(len(before), len(after))
        kept = [k for k in range(rank) if k not in {a % rank for a in named}]
        found = [kept[axis]] if len(after) < len(before) else [kept.index(axis)] if axis in kept else []
        yield from (Along(k, block) for k in found)


def _behind(sizes: Sizes, axis: int) -> list[int]:
    return [prod(point[axis + 1 :]) for point in zip(*sizes, strict=True)]
