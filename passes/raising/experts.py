"""How networks of single units are spelt (experts that are no stack).

A node cuts one unit out of an axis, or asks whether it was chosen; others give nothing where it was not.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator

import numpy as np

from growc.ir.graph import Graph, Node, Value
from growc.passes.axes.routing import numbers_of


def cut_singly(
    graph: Graph, static: Collection[Value]
) -> Iterator[tuple[tuple[Value, int], dict[Node, tuple[int, ...]]]]:
    """What is cut, with its axis; and which units each node takes out of it."""
    found: dict[tuple[Value, int], dict[Node, tuple[int, ...]]] = defaultdict(dict)
    for node in graph.nodes:
        whole = node.input(0)
        if whole is None or whole in static or whole.known is not None:
            continue
        place = _compared(node) if node.op == "Equal" else _single(node, whole)
        if place is not None:
            value, axis, units = place
            found[value, axis][node] = units
    for key, cuts in found.items():
        if len({unit for units in cuts.values() for unit in units}) > 1:
            yield key, cuts


def _single(node: Node, whole: Value) -> tuple[Value, int, tuple[int, ...]] | None:
    """The axis and the units of a cut that takes single ones."""
    if whole.sizes is None or node.op not in ("Gather", "Slice", "Split"):
        return None
    if node.op == "Split":
        axis = node.integer("axis", 0) % whole.rank
        single = all(out.sizes is not None and set(out.sizes[axis]) == {1} for out in node.outputs)
        return (whole, axis, tuple(range(len(node.outputs)))) if single else None
    if node.op == "Gather":
        axis, index = node.integer("axis", 0) % max(whole.rank, 1), _number(node.input(1))
    else:
        axes = [
            k
            for k, (a, b) in enumerate(zip(whole.sizes, node.outputs[0].sizes or (), strict=False))
            if a != b
        ]
        bounds = [_number(node.input(i)) for i in (1, 2)]
        if len(axes) != 1 or None in bounds or set((node.outputs[0].sizes or ())[axes[0]]) != {1}:
            return None
        axis, index = axes[0], bounds[0]
    size = set(whole.sizes[axis])
    if index is None or len(size) != 1 or max(size) < 2:
        return None
    return whole, axis, (index % max(size),)


def _number(value: Value | None) -> int | None:
    """The one whole number that a constant is."""
    known = None if value is None else value.known
    if known is None or known[0].size != 1 or known[0].dtype != np.int64 or known[0].ndim > 1:
        return None
    return int(known[0].reshape(-1)[0]) if all((k == known[0]).all() for k in known) else None


def _compared(node: Node) -> tuple[Value, int, tuple[int, ...]] | None:
    """The scores whose numbers are compared with a constant one."""
    for numbers, other in (node.inputs, node.inputs[::-1]):
        unit, ranking = _number(other), None if numbers is None else numbers_of(numbers)
        scores = None if ranking is None else ranking[0].inputs[0]
        if unit is not None and ranking is not None and scores is not None and scores.sizes is not None:
            axis = ranking[1]
            return (scores, axis, (unit,)) if 0 <= unit < scores.sizes[axis][0] else None
    return None


def multiplies(node: Node) -> bool:
    """Whether an operator gives nothing where one of its operands is nothing, or chooses nothing."""
    return node.op in ("And", "GatherElements") or node.treatment in ("multiply", "contract", "lookup")


def negates(node: Node) -> bool:
    """Whether an operator gives something where its operand is nothing."""
    return node.op == "Not"


def is_zero(value: Value) -> bool:
    """Whether a value is zero throughout. Of stored tensors only those are read that are no vectors."""
    if value.known is None and value.weight is not None and value.rank > 1:
        return not np.asarray(value.weight.read()).any()
    if value.known is not None:
        return not any(k.any() for k in value.known)
    node = value.producer
    if node is None or node.op != "ConstantOfShape":
        return False
    filler = node.array("value")
    return filler is None or not filler.any()
