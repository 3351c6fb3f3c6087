"""Sizes of numbers that only their readers decide, such as a window for each query, shared by all heads.

Needs: the axis graph, and the sizes that spaces demand. Gives: for values that are computed from sizes alone,
the sizes that their readers demand in the result, traced back to the nodes that lay them out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from growc.algebra.space import Size
from growc.dialects.onnx.repair.patch import Demands
from growc.ir.graph import Node, Value
from growc.passes.axes.infer import Axes, operands_of

AskedSizes = tuple[Size, ...]


def asked_numbers(axes: Axes, wants: Demands) -> dict[Value, AskedSizes]:
    """Return the size demanded of each value that no live node computes, if it differs from the source's."""
    live = {instance.node for instance in axes.instances}
    asked_sizes: dict[Value, AskedSizes] = {}
    for node in reversed(axes.graph.nodes):
        loose = [v for v in node.operands if v.producer is not None and v.producer not in live]
        behind = {} if node in live or not loose else _behind(axes, node, asked_sizes)
        for value in loose:
            sizes = wants.demand(value) if node in live else behind.get(value)
            if sizes is not None and sizes != value.sizes:
                asked_sizes.setdefault(value, sizes)
    return asked_sizes


def _behind(axes: Axes, node: Node, asked_sizes: Mapping[Value, AskedSizes]) -> dict[Value, AskedSizes]:
    """Return the sizes that a node demands of its operands, from those demanded of its results.

    Each axis takes the size demanded of the results' axis of the same label.
    """
    if asked_sizes.keys().isdisjoint(node.outputs) or not axes.graph.dialect.knows(node.op):
        return {}
    line = axes.graph.dialect.line(node, *operands_of(node))
    changed: dict[tuple[object, Size], Size] = {}
    for value, terms in zip(node.outputs, line.outputs, strict=False):
        for term, size, before in zip(
            terms or (), asked_sizes.get(value, ()), value.sizes or (), strict=False
        ):
            if isinstance(term, str) and size != before:
                changed[term, before] = size
    pairs = zip(node.inputs, line.inputs, strict=False)
    return {value: _sized(value, terms, changed) for value, terms in pairs if value is not None and terms}


def _sized(value: Value, terms: Sequence[object], changed: Mapping[tuple[object, Size], Size]) -> AskedSizes:
    sizes = value.sizes or ()
    return tuple(changed.get((t, size), size) for t, size in zip(terms, sizes, strict=True))
