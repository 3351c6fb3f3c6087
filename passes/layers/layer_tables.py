"""Tables with a row for each layer, which layers read by constants equal to their own numbers.

Needs: a simulated graph, its layers, the data values. Gives: `LayerTables`. Layer k takes row k of a stored
table, or of what is made of tables row by row: resized, joined, looked up or multiplied. If a table has one
row fewer than there are layers, a sum at the end of each layer but the last adds the row between two layers.
A table counts if nothing but these layers reads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass

from growc.ir.graph import Graph, Node, Origin, Value
from growc.ir.traits import SIZES, SUM
from growc.ir.walk import walk
from growc.passes.dataflow.trace_rows import RowPath, RowPlace, ways
from growc.passes.layers.layer_runs import Layer, LayerTables


@dataclass(frozen=True, eq=False)
class _Read:
    """A node that takes one row of a value for one layer.

    whole: the value.
    place: the run and the number of the layer.
    axis, row: the axis along which the rows lie, and the number of the row.
    """

    node: Node
    whole: Value
    place: tuple[int, int]
    axis: int
    row: int


def find_rows(graph: Graph, runs: Sequence[Sequence[Layer]], data: Set[Value]) -> tuple[LayerTables, ...]:
    """The tables of all runs."""
    static = graph.static - data
    home = {n: (r, i) for r, run in enumerate(runs) for i, layer in enumerate(run) for n in layer.nodes}
    groups: dict[tuple[int, Origin | Value | None, int], list[_Read]] = defaultdict(list)
    for node in graph.nodes:
        read = _read(graph, node, static, home)
        if read is not None:
            table = read.whole.origin if read.whole in static else read.whole
            groups[read.place[0], table, read.axis].append(read)
    candidates = (_rows(graph, runs[run], run, reads, static) for (run, _, _), reads in groups.items())
    return tuple(rows for rows in candidates if rows is not None)


def _read(graph: Graph, node: Node, static: Set[Value], home: Mapping[Node, tuple[int, int]]) -> _Read | None:
    """The node as one that takes a row for a single layer; None if it is none."""
    whole = node.input(0)
    if whole is None or not whole.floating:
        return None
    taken = _taken(node, whole)
    if taken is None or not graph.dialect.outermost(node):
        return None
    users = set(_users(node.outputs[0], static))
    places = {home.get(user) for user in users}
    place = places.pop() if len(places) == 1 and node.outputs[0] not in graph.outputs else None
    return None if place is None else _Read(node, whole, place, *taken)


def _taken(node: Node, whole: Value) -> tuple[int, int] | None:
    """The axis and the number of the single row that a node takes; None if it takes anything else."""
    numbers = [_number(v) for v in node.inputs[1:] if v is not None]
    one_by_one = node.treatment == "lookup"
    first = next((a for a in node.addresses if a.end or (one_by_one and a.column is None)), None)
    result_sizes = node.outputs[0].sizes
    if first is None or result_sizes is None or not whole.sizes or not numbers or None in numbers:
        return None
    size, row = whole.sizes[first.axis], numbers[0] or 0
    if len(set(size)) > 1 or (first.end and set(result_sizes[first.axis]) != {1}):
        return None
    return first.axis, row % size[0]


def _number(value: Value | None) -> int | None:
    """The whole number that a stored one-element constant holds; None for other values."""
    if value is None or value.weight is None or value.weight.floating or value.weight.elements != 1:
        return None
    return int(value.weight.read().reshape(-1)[0])


def _users(value: Value, static: Set[Value]) -> Iterator[Node]:
    """The nodes that use a constant, or what is made of it alone, together with other values."""

    def made(constant: Value) -> Iterator[Value]:
        yield from (v for n, _ in constant.users if inner(n) for v in n.outputs)

    def inner(node: Node) -> bool:
        return all(v in static for v in node.outputs)

    for constant in walk([value], made):
        yield from (n for n, _ in constant.users if not inner(n))


def _rows(
    graph: Graph, layers: Sequence[Layer], run: int, reads: Sequence[_Read], static: Set[Value]
) -> LayerTables | None:
    """The tables behind these reads, if they have a row for each layer, or for each but the last."""
    reads_by_layer = [tuple(r.node for r in reads if r.place[1] == k) for k in range(len(layers))]
    counts = {size for r in reads if r.whole.sizes is not None for size in r.whole.sizes[r.axis]}
    count = counts.pop() if len(counts) == 1 else 0
    if len(layers) < 2 or any(r.row != r.place[1] for r in reads) or not all(reads_by_layer[:count]):
        return None
    constant = all(read.whole in static for read in reads)
    if count not in (len(layers), len(layers) - constant) or any(reads_by_layer[count:]):
        return None
    sums = () if count == len(layers) else tuple(_sums(layers[:-1], reads_by_layer, static))
    path = _way(graph, reads, static)
    if path is None or count + bool(sums) < len(layers):
        return None
    return LayerTables(run, dict(path.tables), tuple(reads_by_layer), path.nodes, sums, constant)


def _sums(
    layers: Sequence[Layer], reads: Sequence[Sequence[Node]], static: Set[Value]
) -> Iterator[tuple[Node, int]]:
    """For each layer, the sum at its end that adds its row, and the operand that the row is.

    Nothing if a layer has none.
    """
    sums = []
    for layer, layer_reads in zip(layers, reads, strict=False):
        node = layer.end.producer
        users = {user for read in layer_reads for user in _users(read.outputs[0], static)}
        if node is None or not node.has(SUM) or len(node.inputs) != 2 or users != {node}:
            return
        added = [i for i, v in enumerate(node.inputs) if v in static]
        if len(added) != 1 or node not in layer.nodes:
            return
        sums.append((node, added[0]))
    yield from sums


def _way(graph: Graph, reads: Sequence[_Read], static: Set[Value]) -> RowPath | None:
    """The path of the rows from stored tensors that nothing else reads; None if there is none."""
    partial_ways = [RowPath()]
    for read in reads:
        along = RowPlace(read.axis)
        partial_ways = [
            longer for path in partial_ways for longer in ways(graph, read.whole, along, path, static)
        ]
    taken = {read.node for read in reads}
    return next((path for path in partial_ways if _alone(graph, path, taken)), None)


def _alone(graph: Graph, way: RowPath, reads: Set[Node]) -> bool:
    """Whether everything made of the tables goes to these reads, except for operators that ask for sizes."""

    def made(value: Value) -> Iterator[Value]:
        yield from (v for n, _ in value.users if n not in reads and not n.has(SIZES) for v in n.outputs)

    for value in walk((use for use in graph.uses() if use.weight in way.tables), made):
        if value in graph.outputs or value not in way.places:
            return False
    return all(graph.dialect.outermost(node) for node in way.nodes)
