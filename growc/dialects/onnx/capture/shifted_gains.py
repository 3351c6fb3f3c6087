"""Gains that are stored as their distance from a number, which the model adds at every use.

A factor of such a gain is no factor of the stored tensor. So the number belongs to the weight
(`Weight.shift`), and the analysed graph does not contain the sum. Maps act on the gain; the file stores the
gain less the number.

Needs: an onnx-ir graph. Gives: `Shifts`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.capture.stored_values import constant_of, read_tensor, shape_of
from growc.dialects.onnx.operators.site import REAL
from growc.dialects.onnx.operators.table import backward, has
from growc.ir.traits import SAME, TAKE, TURN, VIEW

ON_ITS_WAY = (SAME, VIEW, TURN, TAKE)
"""Traits of operators that may stand between a weight and its use. Each use gets its own chain."""


@dataclass(frozen=True)
class Shifts:
    """The shifted gains. `of`: the number for each stored tensor. `sums`: for each sum, its other operand."""

    of: Mapping[ir.Value, float]
    sums: Mapping[ir.Value, ir.Value]


def shifts(graph: ir.Graph) -> Shifts:
    """Return the stored vectors to which every use first adds the same number."""
    numbers: dict[ir.Value, list[float]] = defaultdict(list)
    sums: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
    for node in graph:
        addition = _sum(node)
        if addition is not None:
            root, operand, number = addition
            numbers[root].append(number)
            sums[node.outputs[0]] = root, operand
    shifted = {
        root: added[0]
        for root, added in numbers.items()
        if len(set(added)) == 1 and added[0] and _uses(root) == len(added)
    }
    return Shifts(shifted, {total: operand for total, (root, operand) in sums.items() if root in shifted})


def _sum(node: ir.Node) -> tuple[ir.Value, ir.Value, float] | None:
    """Return (stored vector, operand, number) if a node adds a number to a stored vector."""
    if op_name(node) != "Add" or len(node.inputs) != 2 or node.outputs[0].is_graph_output():
        return None
    for operand, other in (tuple(node.inputs), tuple(node.inputs)[::-1]):
        tensor = None if other is None else constant_of(other)
        root = None if operand is None else _root(operand)
        if operand is not None and root is not None and tensor is not None and tensor.size == 1:
            return root, operand, float(read_tensor(tensor).reshape(-1)[0])
    return None


def _root(value: ir.Value) -> ir.Value | None:
    """Return the stored vector behind layout operators, or None."""
    value = backward(value, lambda node: has(node, *ON_ITS_WAY))
    tensor = constant_of(value)
    vector = tensor is not None and tensor.dtype in REAL and sum(d > 1 for d in shape_of(tensor)) == 1
    return value if vector else None


def _uses(value: ir.Value) -> int:
    """Count the nodes that use a stored tensor, including those behind layout operators."""
    count = int(value.is_graph_output())
    for use in value.uses():
        through = has(use.node, *ON_ITS_WAY) and use.idx == 0
        count += _uses(use.node.outputs[0]) if through else 1
    return count
