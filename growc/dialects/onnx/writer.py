"""Edits of a copy of a model: new nodes, stored tensors and numbers, and changed nodes.

Needs: a copy of the model (`Clone`). Gives: `Writer`. Everything that it adds has a unique name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.split_broadcasts import names_in
from growc.dialects.onnx.capture.stored_values import shape_of
from growc.dialects.onnx.clones import Clone
from growc.ir.graph import Node
from growc.ir.naming import unused
from growc.passes.edits import Part, Patch, ShapeEntries


class Writer:
    """A writer into a copy of a model. Patches name values and nodes of the source's graph."""

    def __init__(self, clone: Clone) -> None:
        self.clone, self.model = clone, clone.model
        self.names = names_in(self.model)

    def initializer(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        """Add a stored tensor."""
        value = ir.Value(
            name=self.unused(name), type=ir.TensorType(tensor.dtype), shape=ir.Shape(shape_of(tensor))
        )
        value.const_value = tensor
        tensor.name = value.name
        self.model.graph.register_initializer(value)
        return value

    def constant(self, name: str, array: Array) -> ir.Value:
        """Add a stored tensor of these numbers."""
        return self.initializer(name, ir.tensor(array))

    def numbers(self, name: str, values: list[int]) -> ir.Value:
        """Add a stored vector of integers."""
        return self.constant(name, np.asarray(values, dtype=np.int64))

    def unused(self, name: str) -> str:
        """Return the name, or a variant of it that is free, and reserve it."""
        return unused(name, self.names)

    def alias(self, body: ir.Graph, last: ir.Node | None, value: ir.Value) -> ir.Value:
        """Return a value of a body that equals one of any scope: a body must give out values of its own."""
        identity = ir.node("Identity", [value], name=self.unused(f"{value.name}.Identity"))
        identity.outputs[0].name = self.unused(f"{value.name}.result")
        identity.outputs[0].type, identity.outputs[0].shape = value.type, value.shape
        if last is None:
            body.append(identity)
        else:
            body.insert_after(last, identity)
        return identity.outputs[0]

    def patch(self, site: Node, patch: Patch, node: ir.Node) -> None:
        """Patch `node`, which is the origin of `site` or a copy of that."""
        node.op_type = patch.op or node.op_type
        for name, value in patch.attributes.items():
            node.attributes.pop(name, None)
            if value is not None:
                node.attributes[name] = ir.convenience.convert_attribute(name, value)
        for i, entries in patch.operands.items():
            if i >= len(node.inputs):
                node.resize_inputs(i + 1)
            literal = [e for e in entries if isinstance(e, int)]
            base = f"{node.outputs[0].name}.operand{i}"
            operand = (
                self.constant(base, patch.literal(literal, site.input(i)))
                if len(literal) == len(entries)
                else self.joined(node, i, entries, base)
            )
            node.replace_input_with(i, operand)

    def joined(self, node: ir.Node, i: int, entries: ShapeEntries, base: str) -> ir.Value:
        """Return the old operand's elements with numbers between them."""
        old = node.inputs[i]
        assert old is not None
        pieces: list[ir.Value] = []
        joined = _pieces(old, len(entries))
        for k, entry in enumerate(entries):
            if entry is None and joined:
                pieces.append(joined[k])
                continue
            if isinstance(entry, int):
                pieces.append(self.numbers(f"{base}.literal", [entry]))
                continue
            pieces.append(self.part(node, old, k, entry, base))
        return pieces[0] if len(pieces) == 1 else self.insert(node, "Concat", pieces, {"axis": 0}, base)

    def part(self, node: ir.Node, old: ir.Value, k: int, entry: Part | None, base: str) -> ir.Value:
        """Return element k of an operand, or the value that it is to be a part of, times a fraction."""
        if entry is None or entry.whole is None:
            bounds = [self.numbers(f"{base}.bound", [b]) for b in (k, k + 1)]
            piece = self.insert(node, "Slice", [old, *bounds], {}, f"{base}.kept")
        else:
            flat = [self.clone.value_of(entry.whole), self.numbers(f"{base}.one", [1])]
            piece = self.insert(node, "Reshape", flat, {}, f"{base}.whole")
            piece = self.insert(node, "Cast", [piece], {"to": ir.DataType.INT64}, f"{base}.whole")
        factor = Fraction(1) if entry is None else entry.factor
        for op, number in (("Mul", factor.numerator), ("Div", factor.denominator)):
            if number != 1:
                operands = [piece, self.numbers(f"{base}.factor", [number])]
                piece = self.insert(node, op, operands, {}, f"{base}.scaled")
        return piece

    def insert(
        self,
        before: ir.Node,
        op: str,
        inputs: Sequence[ir.Value | None],
        attributes: Mapping[str, Any],
        name: str,
    ) -> ir.Value:
        """Insert a node in front of another one, and return its result, an integer."""
        new = ir.node(op, inputs, attributes, name=self.unused(f"{name}.{op}"))
        new.outputs[0].name = self.unused(name)
        new.outputs[0].type = ir.TensorType(ir.DataType.INT64)
        scope_of(before).insert_before(before, new)
        return new.outputs[0]


def _pieces(value: ir.Value, count: int) -> list[ir.Value]:
    """Return the elements of a shape that is a Concat of `count` one-element vectors; else nothing."""
    node = value.producer()
    if node is None or node.op_type != "Concat" or len(node.inputs) != count:
        return []
    pieces = [v for v in node.inputs if v is not None and v.shape is not None and list(v.shape) == [1]]
    return pieces if len(pieces) == count else []


def scope_of(node: ir.Node) -> ir.Graph | ir.Function:
    """Return the graph or body that contains a node."""
    assert node.graph is not None, node
    return node.graph
