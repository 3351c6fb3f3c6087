"""Nodes of two equal layers that do the same, found by their connections rather than by their order.

A layer may have more nodes than another: a node that both use stands in the first of them.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

MatchingNodes = dict[ir.Node, ir.Node]


def match_nodes(
    a: Collection[ir.Node],
    b: Collection[ir.Node],
    starts: tuple[ir.Value, ir.Value],
    ends: tuple[ir.Value, ir.Value],
) -> MatchingNodes:
    """Return, for nodes of layer `a`, those of layer `b`. The layers read `starts` and compute `ends`."""
    inside, pairs = (set(a), set(b)), MatchingNodes()
    pending = [(ends[0].producer(), ends[1].producer()), *_readers(*starts, inside)]
    while pending:
        one, other = pending.pop()
        if one is None or other is None or one in pairs or not _alike(one, other, inside):
            continue
        pairs[one] = other
        both = zip(one.inputs, other.inputs, strict=False)
        pending += [(x.producer(), y.producer()) for x, y in both if x is not None and y is not None]
        for x, y in zip(one.outputs, other.outputs, strict=False):
            pending += _readers(x, y, inside)
    return pairs


def _alike(one: ir.Node, other: ir.Node, inside: tuple[set[ir.Node], set[ir.Node]]) -> bool:
    same = (one.domain, one.op_type) == (other.domain, other.op_type)
    return same and one in inside[0] and other in inside[1]


def _readers(
    x: ir.Value, y: ir.Value, inside: tuple[set[ir.Node], set[ir.Node]]
) -> list[tuple[ir.Node | None, ir.Node | None]]:
    """Return pairs of readers of two values, for each kind of reader that occurs once on either side.

    A kind is the operator, the operand that reads the value, and whether the model outputs a result.
    """
    sides: list[dict[tuple[str, str, int, bool], list[ir.Node]]] = [{}, {}]
    for side, value, own in zip(sides, (x, y), inside, strict=True):
        for use in value.uses():
            if use.node in own:
                is_output = any(out.is_graph_output() for out in use.node.outputs)
                side.setdefault((use.node.domain, use.node.op_type, use.idx, is_output), []).append(use.node)
    first, second = sides
    return [(n[0], second[k][0]) for k, n in first.items() if len(n) == 1 and len(second.get(k, ())) == 1]
