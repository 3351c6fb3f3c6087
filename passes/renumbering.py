"""Inputs whose numbers mean other units when a table keeps some of its rows.

Needs: the axis graph, and what became of every space. Gives: for each model input that picks rows of a table
of which not just the first stay, the old number of every new one. Raises GrowError (G313) where such numbers
are used for anything else, or come from anything but an input: there they would silently mean other units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from growc.axes import Space, find
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import Node, Value
from growc.indexmap import IndexMap, Ints
from growc.passes.flow import THROUGH
from growc.passes.spaces import Axes, Instance


def renumbered(axes: Axes, made: Mapping[int, IndexMap]) -> dict[str, Ints]:
    """The old numbers, by input. `made`: what spaces were mapped to, by the id of their representative."""
    by_node = {i.node: i for i in axes.instances}
    found: dict[str, Ints] = {}
    for instance in axes.instances:
        for space in looked_up(axes, instance):
            kept = made.get(id(find(space)))
            if kept is None or (kept.index == np.arange(kept.size)).all() or (kept.counts > 0).all():
                continue
            for index in instance.node.inputs[1:]:
                source = None if index is None or index.known is not None else _input(axes, index, by_node)
                if source is not None:
                    _only_looks_up(axes, source, find(space), by_node)
                    found[source.name] = kept.index
    return found


def looked_up(axes: Axes, instance: Instance) -> Iterator[Space]:
    """The axes of tables that a look-up numbers."""
    table, terms = instance.node.input(0), instance.line.inputs[0] if instance.line.inputs else None
    if instance.line.treatment == "lookup" and table is not None:
        yield from (s for s, t in zip(axes.of(table), terms or (), strict=True) if t == "#")


def _moves(node: Node, by_node: Mapping[Node, Instance]) -> bool:
    """Whether a node passes the numbers of its first operand on as they are."""
    return node.op in THROUGH or (node in by_node and by_node[node].line.treatment == "layout")


def _input(axes: Axes, value: Value, by_node: Mapping[Node, Instance]) -> Value:
    """The model input that numbers come from."""
    while value.producer is not None:
        if not _moves(value.producer, by_node) or value.producer.inputs[0] is None:
            raise _refused(value.producer, "computes them")
        value = value.producer.inputs[0]
    return value


def _only_looks_up(axes: Axes, source: Value, space: Space, by_node: Mapping[Node, Instance]) -> None:
    pending = list(source.users)
    while pending:
        node, operand = pending.pop()
        if node.op in ("Shape", "Size"):
            continue
        instance = by_node.get(node)
        rows = [] if instance is None else [find(s) for s in looked_up(axes, instance)]
        if operand > 0 and rows == [space]:
            continue
        if operand > 0 or not _moves(node, by_node):
            raise _refused(node, "uses them as well")
        pending += [user for out in node.outputs for user in out.users]


def _refused(node: Node, what: str) -> GrowError:
    message = f"these units cannot get other numbers: `{node.name or node.kind}` {what}"
    return GrowError(Diagnostic("G313", message, help="`by first` keeps the numbers as they are"))
