"""Operators that count and repeat key and value heads, inserted where a graph does neither.

Needs: the places where one head stands (growc.passes.axes.expose_shared_head), or where each key/value head
has one query head (growc.passes.heads.insert_groups). Gives: a copy of the model with `growc::Unfold`, which
splits heads from the channels behind them, and `growc::Repeat`, which gives every group of query heads its
own copy.

With one head, or groups of one, both do nothing, and the written file has neither. With more it has
equivalent plain operators. An attention operator shares heads by itself.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx_ir as ir

from growc.dialects.onnx.capture.fused_ops import PART_OF
from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.origins import maker_of
from growc.dialects.onnx.writer import Writer
from growc.passes.edits import HeadEdits
from growc.passes.raising.attention import REPEAT_OP, UNFOLD_OP

ATTENDS = "growc::Attention"
"""The part of a fused operator that shares key/value heads among query heads by itself."""


UNFOLDED = "growc.unfolded"
"""Key of the `meta` of the three nodes that split heads from channels: (number of heads, axis)."""


def spread(edit: HeadEdits, clone: Clone, *, inside: bool = True) -> list[ir.Node]:
    """Insert the operators into a copy of the model, and return them.

    `inside`: insert them inside fused attention, which shares heads by itself, rather than in front of it.
    """
    inserted = []
    for value, axis in edit.unfolds:
        channels = clone.value_of(value)
        producer, graph = maker_of(channels)
        node = _neutral(UNFOLD_OP, channels, {"num_heads": 1, "axis": axis, "rank": value.rank})
        channels.replace_all_uses_with(node.outputs[0])
        node.replace_input_with(0, channels)
        graph.insert_after(producer, node)
        inserted.append(node)
    for reader, operand, axis, times in edit.repeats:
        rank = reader.required(operand).rank
        attributes = {"times": times, "axis": axis, "rank": rank}
        own = clone.node_of(reader)
        at, place = (own, operand) if inside else _in_front(own, operand)
        heads, around = at.inputs[place], at.graph
        assert heads is not None
        assert around is not None
        node = _neutral(REPEAT_OP, heads, attributes if times == 1 else {"num_heads": 1, **attributes})
        at.replace_input_with(place, node.outputs[0])
        around.insert_before(at, node)
        inserted.append(node)
    return inserted


def _in_front(reader: ir.Node, operand: int) -> tuple[ir.Node, int]:
    """Return the node and operand by which a value enters the fused operator that its reader belongs to."""
    value = reader.inputs[operand]
    producer = None if value is None else value.producer()
    passes_on = producer is not None and producer.op_type == "Identity" and PART_OF in producer.meta
    return _in_front(producer, 0) if passes_on and producer is not None else (reader, operand)


def repeat(before: ir.Node, heads: ir.Value, times: int) -> ir.Node:
    """Insert a Repeat in front of a node: each head, along the second of four axes, `times` times."""
    node = _neutral(REPEAT_OP, heads, {"times": times, "axis": 1, "rank": 4})
    assert before.graph is not None
    before.graph.insert_before(before, node)
    return node


def counting(model: ir.Model) -> list[ir.Node]:
    """Return the operators that were inserted into a model, in order."""
    return [node for node in model.graph.all_nodes() if op_name(node) in (UNFOLD_OP, REPEAT_OP)]


def _neutral(op: str, value: ir.Value, attributes: dict[str, int]) -> ir.Node:
    producer = value.producer()
    domain, kind = op.split("::")
    converted = [ir.AttrInt64(name, number) for name, number in attributes.items()]
    name = f"{value.name}.{kind}"
    node = ir.Node(domain, kind, [value], converted, num_outputs=1, name=name)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    if producer is not None:
        node.meta[PART_OF] = op_name(producer)
    return node


def settle(nodes: Sequence[ir.Node], writer: Writer, *, repeats: bool) -> None:
    """Replace inserted operators by plain ones, or by nothing if they do nothing.

    `repeats`: operators that repeat heads stay as they are.
    """
    for node in nodes:
        source, result, graph = node.inputs[0], node.outputs[0], node.graph
        assert source is not None
        assert graph is not None
        replacement, acts = source, _does_something(node)
        if acts and repeats and node.op_type == "Repeat":
            continue
        if acts:
            replacement = _unfolded(node, writer) if node.op_type == "Unfold" else _repeated(node, writer)
        result.replace_all_uses_with(replacement, replace_graph_outputs=True)
        graph.remove(node, safe=True)


def _does_something(node: ir.Node) -> bool:
    if node.op_type == "Repeat" and all(op_name(use.node) == ATTENDS for use in node.outputs[0].uses()):
        return False
    counted = node.attributes.get("num_heads")
    times = node.attributes.get("times")
    return (counted is None or counted.value > 1) and (times is None or times.value > 1)


def _unfolded(node: ir.Node, writer: Writer) -> ir.Value:
    """Reshape (batch, 1, sequence, (heads channels)) to (batch, heads, sequence, channels)."""
    heads, axis, rank = (node.attributes[n].value for n in ("num_heads", "axis", "rank"))
    order = [k for k in range(rank - 1) if k != axis] + [axis, rank - 1]
    back = [order.index(k) for k in range(rank)]
    moved = _add(node, writer, "Transpose", [node.inputs[0]], {"perm": order})
    shape = writer.numbers(f"{node.name}.shape", [0] * (rank - 2) + [heads, -1])
    apart = _add(node, writer, "Reshape", [moved, shape], {})
    unfolded = _add(node, writer, "Transpose", [apart], {"perm": back})
    for value in (moved, apart, unfolded):
        producer = value.producer()
        assert producer is not None
        producer.meta[UNFOLDED] = heads, axis
    return unfolded


def _repeated(node: ir.Node, writer: Writer) -> ir.Value:
    """Repeat (batch, heads, …) to (batch, (heads times), …)."""
    times, axis, rank = (node.attributes[n].value for n in ("times", "axis", "rank"))
    source = node.inputs[0]
    assert source is not None
    behind = [1] * (rank - axis - 1)
    place = writer.numbers(f"{node.name}.axis", [axis + 1])
    if writer.model.opset_imports[""] < 13:
        opened = _add(node, writer, "Unsqueeze", [source], {"axes": [axis + 1]})
    else:
        opened = _add(node, writer, "Unsqueeze", [source, place], {})
    wide = writer.numbers(f"{node.name}.wide", [1] * (axis + 1) + [times, *behind])
    many = _add(node, writer, "Expand", [opened, wide], {})
    factors = writer.numbers(f"{node.name}.times", [1] * axis + [times, *behind])
    before = writer.insert(node, "Shape", [source], {}, f"{node.name}.before")
    shape = writer.insert(node, "Mul", [before, factors], {}, f"{node.name}.shape")
    empty = {"allowzero": 1} if writer.model.opset_imports[""] >= 14 else {}  # an empty cache stays empty
    return _add(node, writer, "Reshape", [many, shape], empty)


def _add(
    node: ir.Node, writer: Writer, op: str, inputs: list[ir.Value | None], attributes: Mapping[str, Any]
) -> ir.Value:
    result = writer.insert(node, op, inputs, attributes, f"{node.name}.{op}")
    result.type = node.outputs[0].type
    return result
