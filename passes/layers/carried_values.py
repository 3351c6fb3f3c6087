"""Values that layers hand on beside their stream: shared keys and values, attention scores, a second stream.

Readers of these values behind a layer's sum go around that sum, so that the sum no longer separates the
graph. Needs: the bypasses below one output. Gives: the streams with such readers, each with their edges.
Without these edges the stream is connected again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field

from growc.ir.graph import Node, Value
from growc.ir.traits import SUM
from growc.ir.walk import walk
from growc.passes.dataflow.post_dominators import Edge
from growc.passes.dataflow.reachability import users
from growc.passes.layers.residual_branches import Streams, elements


@dataclass(eq=False)
class _Around:
    """A value that reaches a sum untouched, together with something made from it."""

    start: Value
    sum: Node
    inside: set[Node]
    beside: list[Edge] = field(default_factory=list)
    """Edges from the value, or from what is made of it on the way, to nodes that do not lead into the sum."""


def handed_on(streams: Streams) -> list[tuple[frozenset[Node], frozenset[Edge]]]:
    """For every stream around which values are handed on: its sums, and the edges that go around them.

    If two streams go through each other, the longer one counts.
    """
    around = [a for a in _Ways(streams).found() if any(streams.working(n) for n in a.inside)]
    if not any(a.beside for a in around):
        return []
    groups = [group for group in _one_behind_the_other(around, streams) if len(group) > 1]
    mended = (g for g in groups if any(a.beside for a in g) and not any(_lies_across(g, h) for h in groups))
    return [(frozenset(a.sum for a in g), frozenset(e for a in g for e in a.beside)) for g in mended]


def _lies_across(one: Sequence[_Around], other: Sequence[_Around]) -> bool:
    """Whether a stream goes through the layers of a longer one, as handed-on attention scores do."""
    inside = (a.inside for a in one)
    return len(one) < len(other) and any(not nodes.isdisjoint(a.sum for a in other) for nodes in inside)


class _Ways:
    """For each value, the values with several readers from which it is made, as bits."""

    def __init__(self, streams: Streams) -> None:
        self.streams = streams
        self.readers: dict[Value, list[Node]] = {}
        self.made_from: dict[Value, int] = {}
        self.bits: dict[Value, int] = {}
        for node in streams.tree.nodes:
            mask = 0
            for value in node.operands:
                if value in streams.data:
                    mask |= self.made_from.get(value, 0) | self.bit(value)
            self.made_from.update((v, mask) for v in node.outputs if v in streams.data)

    def bit(self, value: Value) -> int:
        """The bit of a value; zero if at most one node reads it."""
        if value not in self.readers:
            tree = self.streams.tree
            self.readers[value] = [n for n in users(value, self.streams.data) if n in tree.parent]
            self.bits[value] = 1 << len(self.bits) if len(self.readers[value]) > 1 else 0
        return self.bits[value]

    def found(self) -> list[_Around]:
        """For each start, the bypass to the first sum from which the stream goes on, else to the first sum of
        all.
        """
        ends: dict[Value, list[Value]] = {}
        for node in self.streams.tree.nodes:
            operands = [v for v in node.operands if v in self.streams.data]
            if node.has(SUM) and len(operands) > 1:
                for start in self.starts(operands):
                    end_values = ends.setdefault(start, [])
                    end_values[:] = [v for v in end_values if v not in operands or self.bit(v)] + [
                        node.outputs[0]
                    ]
        bypasses = []
        for start, values in ends.items():
            continuing = (v for v in values if next_start(v, ends.keys(), self.streams) is not None)
            bypasses.append(self.described(start, next(continuing, values[0]).producer))
        return bypasses

    def starts(self, operands: Sequence[Value]) -> Iterator[Value]:
        """For each operand of a sum, the nearest value that it is an unchanged form of, and from which
        another operand is made.
        """
        for operand in operands:
            others_made_from = 0
            for sibling in operands:
                others_made_from |= (
                    0 if sibling is operand else self.made_from.get(sibling, 0) | self.bit(sibling)
                )
            start = self.nearest(operand, others_made_from)
            if start is not None:
                yield start

    def nearest(self, operand: Value, others: int) -> Value | None:
        def kept(value: Value) -> Iterator[Value]:
            if value.producer is not None and self.streams.keeps(value.producer):
                yield from (v for v in value.producer.operands if v in self.streams.data)

        return next((v for v in walk([operand], kept, nearest=True) if self.bit(v) & others), None)

    def described(self, start: Value, node: Node | None) -> _Around:
        assert node is not None
        bit = self.bit(start)

        def makers(node: Node) -> Iterator[Node]:
            yield from (v.producer for v in node.operands if v.producer and self.made_from.get(v, 0) & bit)

        inside = set(walk(makers(node), makers))
        values = [start, *(v for n in inside for v in n.outputs if v in self.streams.data)]
        edges = ((v, n) for v in values for n in self.reading(v))
        return _Around(start, node, inside, [e for e in edges if e[1] is not node and e[1] not in inside])

    def reading(self, value: Value) -> list[Node]:
        self.bit(value)
        return self.readers[value]


def _one_behind_the_other(around: Sequence[_Around], streams: Streams) -> list[list[_Around]]:
    """Groups of bypasses, each of which starts behind the sum of the one before, with no matrix in
    between.
    """
    starts = {a.start for a in around}
    group = {a.start: [a] for a in around}
    for bypass in around:
        after = next_start(bypass.sum.outputs[0], starts, streams)
        if after is not None and group[after] is not group[bypass.start]:
            joined = group[bypass.start] + group[after]
            group.update((a.start, joined) for a in joined)
    place = {a: k for k, a in enumerate(around)}
    return [sorted(g, key=place.__getitem__) for g in {g[0]: g for g in group.values()}.values()]


def next_start(end: Value, starts: Collection[Value], streams: Streams) -> Value | None:
    """The nearest start made from the end of a bypass without a matrix, and with as many elements."""

    def behind(value: Value) -> Iterator[Value]:
        plain = (node for node in users(value, streams.data) if not streams.matrices(node))
        yield from (v for node in plain for v in node.outputs if elements(v) == elements(end))

    return next((value for value in walk([end], behind, nearest=True) if value in starts), None)
