"""Projections that compute queries, keys and values head by head: reordered rows and plain splits.

Needs: the packed projections whose parts must stand apart (growc.passes.heads.unpack_qkv). Gives: a copy of
the model with a Split of the packed value, and a Reshape and a Transpose of each part. These replace the
nodes that cut it before. Stored tensors stay; their `meta` tells the order of their rows.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.capture import COPY_OF, ORDER
from growc.dialects.onnx.capture.stored_values import constant_of
from growc.dialects.onnx.clones import Clone
from growc.dialects.onnx.origins import maker_of
from growc.dialects.onnx.writer import Writer
from growc.ir.graph import Order, Value
from growc.passes.edits import Packed


def unpack(clone: Clone, packings: Sequence[Packed]) -> None:
    """Insert the plain splits into a copy of the model."""
    writer = Writer(clone)
    for packed in packings:
        order = np.concatenate(packed.rows)
        for use, axis in packed.uses:
            _own(clone, use).meta[ORDER] = Order(axis, order, len(order), "heads")
        whole = clone.value_of(packed.value)
        after, graph = maker_of(whole)
        lead = packed.value.rank - 1
        cut = _split(writer, whole, lead, [len(rows) for rows in packed.rows])
        inserted = [cut]
        for part, piece in zip(packed.parts, cut.outputs, strict=True):
            old = clone.value_of(part.value)
            piece.name, piece.type = f"{old.name}.rows", old.type
            shape = writer.numbers(f"{old.name}.sizes", [0] * lead + list(part.sizes))
            apart = ir.node("Reshape", [piece, shape], name=f"{old.name}.Reshape")
            apart.outputs[0].name, apart.outputs[0].type = f"{old.name}.apart", old.type
            transposed = ir.node(
                "Transpose", [apart.outputs[0]], {"perm": list(part.order)}, name=f"{old.name}.Transpose"
            )
            transposed.outputs[0].type, transposed.outputs[0].shape = old.type, old.shape
            old.replace_all_uses_with(transposed.outputs[0], replace_graph_outputs=True)
            transposed.outputs[0].name, old.name = old.name, f"{old.name}.packed"
            inserted += [apart, transposed]
        graph.insert_after(after, inserted)


def _split(writer: Writer, value: ir.Value, axis: int, widths: list[int]) -> ir.Node:
    name, count = f"{value.name}.Split", len(widths)
    if writer.model.opset_imports[""] < 13:
        return ir.node("Split", [value], {"axis": axis, "split": widths}, num_outputs=count, name=name)
    sizes = writer.numbers(f"{value.name}.widths", widths)
    return ir.node("Split", [value, sizes], {"axis": axis}, num_outputs=count, name=name)


def _own(clone: Clone, use: Value) -> ir.Value:
    """Return the stored tensor of one use: a copy of its own if others use the tensor too."""
    stored = clone.value_of(use)
    if len(stored.uses()) == 1:
        return stored
    name = f"{stored.name}.{use.users[0][0].name}"
    copy = ir.Value(name=name, shape=stored.shape, type=stored.type, const_value=constant_of(stored))
    copy.meta.update({COPY_OF: stored.name, **stored.meta})
    clone.model.graph.register_initializer(copy)
    for node, operand in use.users:
        clone.node_of(node).replace_input_with(operand, copy)
    return copy
