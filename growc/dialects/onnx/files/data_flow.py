"""Data flow in an ONNX file: where the elements of a value go, and what operators compute from them.

Needs: a graph of onnx-ir with inlined bodies (growc.dialects.onnx.files.bodies).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import onnx.defs
import onnx_ir as ir

from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.operators.table import OPERATORS, backward, has, treatment_of
from growc.ir.traits import DEQUANTISE, JOIN, MOVES, SAME, SUM, WRITE, Trait
from growc.ir.walk import walk

LINEAR = frozenset({"add", "multiply", "divide", "contract"})
"""Treatments of operators that are linear in an operand."""
PRODUCTS = frozenset({"contract", "recurrent"})
"""Treatments of operators that multiply an operand with a matrix."""

_INTEGER_PRODUCTS = {"MatMulInteger", "ConvInteger"}
_BOUNDS = {"Max", "Min", "Clip"}


def reach(start: ir.Value, passes: Callable[[ir.Node, int], bool]) -> Iterator[tuple[ir.Node, int]]:
    """Yield every use (node, operand) of `start`, directly or behind nodes that `passes` accepts."""

    def behind(value: ir.Value) -> Iterator[ir.Value]:
        yield from (v for node, operand in value.uses() if passes(node, operand) for v in node.outputs)

    for value in walk([start], behind):
        yield from ((use.node, use.idx) for use in value.uses())


def others(node: ir.Node, slot: int) -> list[ir.Value]:
    """Return all operands but operand `slot`."""
    return [value for index, value in enumerate(node.inputs) if index != slot and value is not None]


def alone(node: ir.Node, moving: set[ir.Value]) -> bool:
    """Whether exactly one of the node's operands depends on the model's inputs."""
    return sum(value in moving for value in node.inputs if value is not None) == 1


def meets_weight(node: ir.Node, slot: int) -> bool:
    """Whether the node contracts operand `slot` with a stored matrix."""
    multiplies = treatment_of(node) in PRODUCTS or node.op_type in _INTEGER_PRODUCTS
    return multiplies and any(map(is_weight, others(node, slot)))


def moves(node: ir.Node, slot: int) -> bool:
    """Whether the elements of operand `slot` stand in the results."""
    chosen = node.op_type == "If" and slot > 0  # made by growc.dialects.onnx.files.bodies
    return chosen or has(node, JOIN) or (slot == 0 and has(node, *MOVES, WRITE))


def elementwise(node: ir.Node) -> bool:
    """Whether each element of the result depends only on the operands' elements at its place."""
    row = OPERATORS.get(op_name(node))
    return node.op_type in _BOUNDS | {"Pow"} or (row is not None and row.elementwise) or has(node, SAME)


def linear(node: ir.Node, slot: int) -> bool:
    """Whether the result is linear in operand `slot`."""
    treatment = treatment_of(node)
    return moves(node, slot) or treatment in LINEAR or (treatment == "layout" and elementwise(node))


def real_function(node: ir.Node, slot: int) -> bool:
    """Whether the results hold the elements of operand `slot`, or numbers computed from each of them."""
    return not compares(node) and (moves(node, slot) or elementwise(node))


def compares(node: ir.Node) -> bool:
    """Whether an elementwise operator always returns booleans."""
    known = node.domain == "" and elementwise(node) and onnx.defs.has(node.op_type)
    return known and onnx.defs.get_schema(node.op_type).outputs[0].types == {"tensor(bool)"}


def is_weight(value: ir.Value) -> bool:
    """Whether a value is a stored matrix, possibly cast or moved."""
    tensor = ir.convenience.get_const_tensor(origin(value, *MOVES, WRITE, DEQUANTISE))
    return tensor is not None and len(tensor.shape) >= 2


def origin(value: ir.Value, *through: Trait) -> ir.Value:
    """Return the value behind operators of these traits, except those that choose elements by index."""
    return backward(value, lambda node: has(node, *through) and treatment_of(node) != "lookup")


def scalar(value: ir.Value | None) -> float | None:
    """Return the value of a constant with one element, else None."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is None or tensor.size != 1 or tensor.dtype == ir.DataType.STRING:
        return None
    return float(tensor.numpy().reshape(-1)[0])


def shift(node: ir.Node, slot: int) -> int | None:
    """Return the number that the node adds to indices in operand `slot`; None if it does something else."""
    if moves(node, slot) or treatment_of(node) == "select" or node.op_type in _BOUNDS:
        return 0
    if treatment_of(node) == "add" and len(node.inputs) == 2:
        constant = scalar(node.inputs[1 - slot])
        if constant is not None and (has(node, SUM) or slot == 0):
            return int(constant if has(node, SUM) else -constant)
    return None
