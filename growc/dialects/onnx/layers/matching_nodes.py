"""Nodes of two equal layers that do the same: found by how they are joined, not by where they stand.

A layer may have a node more than another: what both use is made in the first of them.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

Twins = dict[ir.Node, ir.Node]


def twins(
    a: Collection[ir.Node],
    b: Collection[ir.Node],
    starts: tuple[ir.Value, ir.Value],
    ends: tuple[ir.Value, ir.Value],
) -> Twins:
    """For nodes of layer `a` those of layer `b`; the layers take `starts`, and give on `ends`."""
    inside, found = (set(a), set(b)), Twins()
    pending = [(ends[0].producer(), ends[1].producer()), *_readers(*starts, inside)]
    while pending:
        one, other = pending.pop()
        if one is None or other is None or one in found or not _alike(one, other, inside):
            continue
        found[one] = other
        both = zip(one.inputs, other.inputs, strict=False)
        pending += [(x.producer(), y.producer()) for x, y in both if x is not None and y is not None]
        for x, y in zip(one.outputs, other.outputs, strict=False):
            pending += _readers(x, y, inside)
    return found


def _alike(one: ir.Node, other: ir.Node, inside: tuple[set[ir.Node], set[ir.Node]]) -> bool:
    same = (one.domain, one.op_type) == (other.domain, other.op_type)
    return same and one in inside[0] and other in inside[1]


def _readers(
    x: ir.Value, y: ir.Value, inside: tuple[set[ir.Node], set[ir.Node]]
) -> list[tuple[ir.Node | None, ir.Node | None]]:
    """Readers of two values that are alone in what they are, which operand they read and what the model gives
    out of them.
    """
    sides: list[dict[tuple[str, str, int, bool], list[ir.Node]]] = [{}, {}]
    for side, value, own in zip(sides, (x, y), inside, strict=True):
        for use in value.uses():
            if use.node in own:
                given = any(out.is_graph_output() for out in use.node.outputs)
                side.setdefault((use.node.domain, use.node.op_type, use.idx, given), []).append(use.node)
    first, second = sides
    return [(n[0], second[k][0]) for k, n in first.items() if len(n) == 1 and len(second.get(k, ())) == 1]
