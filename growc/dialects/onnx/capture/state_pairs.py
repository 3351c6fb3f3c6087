"""State pairs: inputs that take an output of the step before (key/value caches, recurrent states).

Needs: a graph of onnx-ir. Gives: for each such input, the output that carries it on. A pair is found by what
the graph does, never by names. An input is a state if

1. it reaches, through operators that only move elements, one that puts something new beside or over it
   (Concat, ScatterND, an attention operator's past, an LSTM's initial state). The result reaches an output
   in the same way. The joined value is no residual stream, to which something is added; or
2. it is given back untouched, and is read only by products of two activations (the keys and values of a
   cross attention).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

import onnx_ir as ir

from growc.dialects.onnx.files.data_flow import reach
from growc.dialects.onnx.operators.table import backward, has, treatment_of
from growc.ir.traits import JOIN, REPEAT, SAME, SIZES, SUM, TAKE, TURN, VIEW
from growc.ir.walk import walk

MOVES = (SAME, VIEW, TURN, TAKE)
"""Traits of operators that only move elements of operand 0."""

PASTS: dict[tuple[str, str], dict[int, int]] = {
    ("", "ScatterND"): {0: 0},
    ("", "ScatterElements"): {0: 0},
    ("", "TensorScatter"): {0: 0},
    ("", "Attention"): {4: 1, 5: 2},
    ("", "LSTM"): {5: 1, 6: 2},
    ("", "GRU"): {5: 1},
    ("", "RNN"): {5: 1},
    ("com.microsoft", "Attention"): {4: 1},
    ("com.microsoft", "MultiHeadAttention"): {6: 1, 7: 2},
    ("com.microsoft", "GroupQueryAttention"): {3: 1, 4: 2},
}
"""Operators that carry a state on: the operand that holds it, and the result that takes its place.

These are lists rather than traits, as are the next ones. Files are also read as they stand, and the table has
no rows for operators that capture takes apart.
"""

GROWING = frozenset({"Concat", "Attention", "MultiHeadAttention", "GroupQueryAttention"})
"""Operators whose result holds a longer state than their operand."""

SCALES = ("multiply", "divide")
PRODUCTS = frozenset({"MatMul", "Gemm", "Einsum", "Attention", "FusedMatMul"})


class Carry(NamedTuple):
    """The output that carries a state on, and the node that joins something new to it, if any."""

    output: ir.Value
    by: ir.Node | None


def state_pairs(graph: ir.Graph) -> dict[ir.Value, Carry]:
    """Return what carries each input state on. No output stands twice."""
    moving = moving_values(graph)
    free = set(graph.outputs)
    pairs: dict[ir.Value, Carry] = {}
    for value in graph.inputs:
        if value.is_initializer() or value.dtype is None or not value.dtype.is_floating_point():
            continue
        for carry in _arrivals(value, free, moving):
            shapes = value.shape, carry.output.shape
            alike = shapes[0] is None or shapes[1] is None or len(shapes[0]) == len(shapes[1])
            if alike and (carry.by is not None or _is_memory(value, moving)):
                pairs[value] = carry
                free.remove(carry.output)
                break
    return pairs


def moving_values(graph: ir.Graph) -> set[ir.Value]:
    """Return the values of the outer graph that depend on elements of the inputs, not only on shapes."""
    moving = {value for value in graph.inputs if value.name not in graph.initializers}
    for node in graph:
        nested = any(
            attribute.type in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS)
            for attribute in node.attributes.values()
        )
        fed = nested or any(value in moving for value in node.inputs)
        if fed and not has(node, SIZES):
            moving.update(node.outputs)
    return moving


def _arrivals(start: ir.Value, outputs: set[ir.Value], moving: set[ir.Value]) -> Iterator[Carry]:
    """Yield the outputs that carry a value, each with the first node that joins something to it."""

    def behind(carry: Carry) -> Iterator[Carry]:
        for use in carry.output.uses():
            for after, joins in _carried(use.node, use.idx, moving):
                yield Carry(after, carry.by or (use.node if joins else None))

    for value, by in walk([Carry(start, None)], behind, nearest=True):
        if value in outputs and not (by is not None and _is_stream(value, moving)):
            yield Carry(value, by)


def _carried(node: ir.Node, operand: int, moving: set[ir.Value]) -> Iterator[tuple[ir.Value, bool]]:
    """Yield the results that take an operand's place, and whether the node joins something new to them."""
    result = PASTS.get((node.domain, node.op_type), {}).get(operand)
    if has(node, *MOVES) and operand == 0:
        yield from ((output, False) for output in node.outputs)
    elif node.op_type == "If" and operand:  # it stands for one operand (growc.dialects.onnx.files.bodies)
        yield node.outputs[0], False
    elif has(node, JOIN):
        yield node.outputs[0], _joins(node, moving)
    elif result is not None and result < len(node.outputs):
        yield node.outputs[result], True


def _is_stream(value: ir.Value, moving: set[ir.Value]) -> bool:
    """Whether anything is added to a value, or to the value that the operators around it moved."""
    source = backward(value, _moves)
    return any(has(node, SUM) and _joins(node, moving) for node in _users(source, _moves))


def _joins(node: ir.Node, moving: set[ir.Value]) -> bool:
    """Whether at least two operands of a node move."""
    return len(list(islice((v for v in node.inputs if v in moving), 2))) > 1


def _is_memory(value: ir.Value, moving: set[ir.Value]) -> bool:
    """Whether products of two activations read a value, and nothing else does."""
    products = 0
    for node in _users(value, _scales):
        if _scales(node) or has(node, SIZES):
            continue
        if node.op_type not in PRODUCTS or sum(v in moving for v in node.inputs) < 2:
            return False
        products += 1
    return products > 0


def _moves(node: ir.Node) -> bool:
    return has(node, *MOVES)


def _scales(node: ir.Node) -> bool:
    return has(node, *MOVES, REPEAT) or treatment_of(node) in SCALES


def _users(start: ir.Value, through: Callable[[ir.Node], bool]) -> Iterator[ir.Node]:
    """Yield every node that reads a value, directly or behind operators that `through` accepts."""

    def passes(node: ir.Node, operand: int) -> bool:
        return through(node) and (operand == 0 or treatment_of(node) in SCALES)

    return (node for node, _ in reach(start, passes))
