"""Kinds of layers: the layers that are built alike.

Needs: the layers of a run with their nodes. Gives: a number for each layer, equal for layers that compute the
same from their start. They have the same operators, weights of the same shapes, the same constants and the
same shared values; a mask of its own for every second layer makes two kinds. Rows of one table count as
alike, and a term that is added between layers is no part of the layer before it. Values that layers hand on
beside their stream (shared keys and values, scores) count only with their sizes.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Collection, Hashable, Sequence

from growc.ir.graph import Node, Value
from growc.ir.traits import JOIN, SAME, SIZES
from growc.ir.walk import postorder
from growc.passes.dataflow.reachability import made_from
from growc.passes.layers.layer_runs import Layer, LayerTables

SILENT = frozenset({"stash_type"})
"""Attributes that only change the precision of a computation."""


LOOKED_AT = 10007
"""The approximate number of elements that are compared of a larger table."""


def kinds_of(
    layers: Sequence[Layer], static: Collection[Value], rows: Sequence[LayerTables] = ()
) -> tuple[int, ...]:
    """A number for each layer, in the order in which kinds first appear."""
    shared = Counter(v for layer in layers for v in _from_outside(layer))
    handed = made_from([layers[0].start])
    common = {v for v, n in shared.items() if n > 1 and v not in static and v not in handed}
    likeness = _Likeness(common, handed, rows)
    numbers: dict[Hashable, int] = {}
    return tuple(numbers.setdefault(likeness.of(layer), len(numbers)) for layer in layers)


def _from_outside(layer: Layer) -> set[Value]:
    inside = {v for n in layer.nodes for v in n.outputs}
    read = {v for n in layer.nodes for v in n.operands}
    return {v for v in read - inside - {layer.start} if v.weight is None and v.known is None}


def digest(value: Value) -> int:
    """A checksum of some elements of a stored table that is no parameter, such as a mask; 0 for other
    values.
    """
    if value.weight is None or value.floating:
        return 0
    content = value.weight.read().reshape(-1)
    return zlib.crc32(content[:: max(1, content.size // LOOKED_AT)].tobytes())


class _Likeness:
    """Numbers for expressions, equal for expressions that are built alike."""

    def __init__(self, shared: set[Value], handed: set[Value], rows: Sequence[LayerTables]) -> None:
        self.shared, self.handed = shared, handed
        self.between = {node: i for layer_rows in rows for node, i in layer_rows.sums}
        self.numbers: dict[Hashable, int] = {}
        self.outer = {
            v: self.number(("row", k)) for k, layer_rows in enumerate(rows) for v in layer_rows.taken
        }

    def of(self, layer: Layer) -> int:
        """The number of what a layer computes."""
        numbers: dict[Value, int] = {layer.start: self.number("start")}
        for node in layer.nodes:
            self.enter(
                node, [numbers[v] if v in numbers else self.outside(v) for v in node.operands], numbers
            )
        return numbers[layer.end] if layer.end in numbers else self.number(layer.end)

    def outside(self, value: Value) -> int:
        """The number of a value that no node of the layer makes."""

        def made_of(one: Value) -> list[Value]:
            known = one in self.outer or one in self.handed or one in self.shared or one.known is not None
            return [] if known or one.producer is None else self.looked_at(one.producer)

        for one in postorder([value], made_of):
            node = one.producer
            if one in self.outer:
                continue
            if one in self.handed:
                self.outer[one] = self.number(("handed", one.sizes))
            elif node is None or one in self.shared or one.known is not None:
                self.outer[one] = self.number(self.leaf(one))
            else:
                self.enter(node, [self.outer[v] for v in self.looked_at(node)], self.outer)
        return self.outer[value]

    def looked_at(self, node: Node) -> list[Value]:
        """The operands that distinguish the results of a node. For a node that only gives sizes, none do."""
        return [] if node.has(SIZES) else list(node.operands)

    def leaf(self, value: Value) -> Hashable:
        """A key for a value whose producer is ignored."""
        if value in self.shared:
            return value
        if value.known is not None:
            return tuple((a.shape, str(a.dtype), a.tobytes()) for a in value.known)
        return value.sizes, value.floating, digest(value)

    def enter(self, node: Node, operands: Sequence[int], numbers: dict[Value, int]) -> None:
        """Give numbers to the results of a node."""
        if node in self.between:
            numbers[node.outputs[0]] = operands[1 - self.between[node]]
            return
        if node.has(SAME) or (node.has(JOIN) and len(operands) == 1):
            numbers[node.outputs[0]] = operands[0]
            return
        attributes = tuple(
            sorted((name, str(v)) for name, v in node.attributes.items() if name not in SILENT)
        )
        sizes = tuple(v.sizes for v in node.inputs if v is not None) if not operands else ()
        for k, value in enumerate(node.outputs):
            numbers[value] = self.number((node.op, attributes, tuple(operands), k, sizes))

    def number(self, key: Hashable) -> int:
        """The number of a key."""
        return self.numbers.setdefault(key, len(self.numbers))
