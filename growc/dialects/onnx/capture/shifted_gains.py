"""Gains that are stored as their distance from a number: the model adds it wherever they are used.

A factor of such a gain is no factor of what is stored. So the number is the weight's own (`Weight.shift`),
and the sum stands in no graph that is analysed: maps act on it, and what is stored is the result less the
number.

Needs: an onnx-ir graph. Gives: `Shifts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.capture.stored_tensors import constant_of, read_tensor, shape_of
from growc.dialects.onnx.operators.site import REAL
from growc.dialects.onnx.operators.table import backward, has
from growc.ir.traits import SAME, TAKE, TURN, VIEW

ON_ITS_WAY = (SAME, VIEW, TURN, TAKE)
"""Traits of what a weight may pass on its way to its use; each use gets its own copy of the chain."""


@dataclass(frozen=True)
class Shifts:
    """`of`: the number by stored tensor. `sums`: for each sum with it, what it is added to."""

    of: Mapping[ir.Value, float]
    sums: Mapping[ir.Value, ir.Value]


def shifts(graph: ir.Graph) -> Shifts:
    """The stored vectors of which every use adds one and the same number first."""
    numbers: dict[ir.Value, list[float]] = defaultdict(list)
    sums: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
    for node in graph:
        found = _sum(node)
        if found is not None:
            root, operand, number = found
            numbers[root].append(number)
            sums[node.outputs[0]] = root, operand
    kept = {
        root: given[0]
        for root, given in numbers.items()
        if len(set(given)) == 1 and given[0] and _uses(root) == len(given)
    }
    return Shifts(kept, {total: operand for total, (root, operand) in sums.items() if root in kept})


def _sum(node: ir.Node) -> tuple[ir.Value, ir.Value, float] | None:
    """(stored vector, operand, number) of a sum of a stored vector and a number."""
    if op_name(node) != "Add" or len(node.inputs) != 2 or node.outputs[0].is_graph_output():
        return None
    for operand, other in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        tensor = None if other is None else constant_of(other)
        root = None if operand is None else _root(operand)
        if operand is not None and root is not None and tensor is not None and tensor.size == 1:
            return root, operand, float(read_tensor(tensor).reshape(-1)[0])
    return None


def _root(value: ir.Value) -> ir.Value | None:
    """The stored vector that a value is, through layout operators."""
    value = backward(value, lambda node: has(node, *ON_ITS_WAY))
    tensor = constant_of(value)
    vector = tensor is not None and tensor.dtype in REAL and sum(d > 1 for d in shape_of(tensor)) == 1
    return value if vector else None


def _uses(value: ir.Value) -> int:
    """How many nodes use a stored tensor, those behind layout operators included."""
    count = int(value.is_graph_output())
    for use in value.uses():
        through = has(use.node, *ON_ITS_WAY) and use.idx == 0
        count += _uses(use.node.outputs[0]) if through else 1
    return count
