"""Translation of an onnx-ir model into the neutral graph: one use per weight, canonical order, no dead code.

Needs: a model from `container.load`. Gives: `growc.ir.graph.Graph`. Its order and structure do not depend on
names, on the order of nodes in the file, or on the order of a commutative operator's operands.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.computed_weights import fold
from growc.dialects.onnx.capture.fused_decompositions import LOWERINGS
from growc.dialects.onnx.capture.fused_ops import PART_OF, lower
from growc.dialects.onnx.capture.inline_control_flow import InlinedNode, flatten, op_name
from growc.dialects.onnx.capture.owners import read_around
from growc.dialects.onnx.capture.quantised_decompositions import QUANTISED
from growc.dialects.onnx.capture.quantised_weights import DEQUANTIZE, QuantisedWeight, stored
from growc.dialects.onnx.capture.shifted_gains import ON_ITS_WAY, shifts
from growc.dialects.onnx.capture.state_pairs import state_pairs
from growc.dialects.onnx.capture.stored_values import (
    constant_of,
    is_known,
    read_tensor,
    shape_of,
    stored_tensor,
)
from growc.dialects.onnx.dtype_names import dtype_name
from growc.dialects.onnx.files.bodies import with_bodies_inlined
from growc.dialects.onnx.files.load import inlined
from growc.dialects.onnx.operators.addresses import KEPT
from growc.dialects.onnx.operators.table import has
from growc.dialects.onnx.operators.value_laws import LAWS
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.graph import FLOATING, Graph, Node, Order, Value, Weight
from growc.ir.walk import postorder

RESERVED = "growc.reserved"
"""Key of a graph's `meta`: names of tensors stored beside the graph, which nothing else may use."""

COPY_OF, ZERO, ORDER, MEAN_OF = "growc.copy_of", "growc.zero", "growc.order", "growc.mean_of"
ALIASES, ASSUMED, UPCYCLED = "growc.aliases", "growc.assumed", "growc.upcycled"
"""Keys of a tensor's `meta`.

COPY_OF: the name that the tensor had in the source. ZERO: whether it was made zero with its layer. ORDER: the
units of one axis (`Order`). MEAN_OF: the tensors of which it is the mean. ALIASES: its other names. ASSUMED:
whether it stands for an operand that an operator is not given. UPCYCLED: its place in a mixture (`Upcycled`).
"""

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Max", "Min", "Sum", "Mean", "Equal", "BitwiseAnd"}
)
"""Operators whose operands may change places.

This is a list rather than a trait, because only the canonical order asks for it.
"""


def capture(model: ir.Model, dialect: Any) -> Graph:
    """Return the neutral graph of `model`. `dialect` is kept on the graph for table look-ups.

    Raises GrowError (G309) if onnxruntime has laid channels out in blocks for one processor.
    """
    inlined(model)
    _refuse_blocked(model)
    if not dialect.fused and not dialect.folded:  # later, nodes to be restored have no reader either
        RemoveUnusedNodesPass()(model)  # a fused node that nobody reads has no place to come back to
    dialect.fused += lower(model, {**LOWERINGS, **QUANTISED})
    dialect.folded += fold(model)
    return _Capture(model, dialect).graph()


def _refuse_blocked(model: ir.Model) -> None:
    """Raise GrowError (G309) if onnxruntime has laid channels out in blocks for one processor."""
    for node in model.graph.all_nodes():
        if node.domain == "com.microsoft.nchwc":
            message = f"`{node.name or node.op_type}` ({op_name(node)}) reads channels in blocks"
            why = "onnxruntime laid the weights out for one kind of processor, and padded them to its blocks"
            remedy = "grow the model as it was before, or optimised up to ORT_ENABLE_EXTENDED"
            raise GrowError(Diagnostic("G309", message, notes=(why,), help=remedy))


def _captured(step: InlinedNode) -> Iterable[ir.Value]:
    """Return the values of outer scopes that the bodies read of an operator growc does not follow."""
    return () if step.around_body else read_around(step.node)


def stored_weight(value: ir.Value, tensor: ir.TensorProtocol) -> Weight:
    """Return the neutral weight of a stored tensor that is not quantised."""
    shape = list(shape_of(tensor))
    order: Order | None = value.meta.get(ORDER)
    read = partial(read_tensor, tensor) if order is None else partial(_in_order, tensor, order)
    if order is not None:
        shape[order.axis] = len(order.units)
    past = _past(value) | {"order": order, "assumed": value.meta.get(ASSUMED, False)}
    past |= {"upcycled": value.meta.get(UPCYCLED), "known": is_known(tensor)}
    past |= {"some": partial(read_tensor, tensor) if order is None else None}
    return Weight(value.name or "", tuple(shape), dtype_name(tensor.dtype), read, value, **past)


def _in_order(tensor: ir.TensorProtocol, order: Order) -> Array:
    units = read_tensor(tensor).take(order.units, axis=order.axis)
    present = np.expand_dims(order.units >= 0, tuple(range(1, units.ndim - order.axis)))
    return np.where(present, units, np.zeros_like(units))


def _quantised(value: ir.Value, weight: QuantisedWeight) -> Weight:
    integers = weight.node.inputs[0]
    name, past = ("", {}) if integers is None else (integers.name or "", _past(integers))
    return Weight(name, weight.shape, weight.dtype, weight.read, value, weight, **past)


def _past(value: ir.Value) -> dict[str, Any]:
    copy_of, zero = value.meta.get(COPY_OF, ""), value.meta.get(ZERO, False)
    aliases = () if copy_of else value.meta.get(ALIASES, ())
    return {"copy_of": copy_of, "zero": zero, "aliases": aliases, "mean_of": value.meta.get(MEAN_OF, ())}


SortKey = tuple[int, bytes, bytes]
"""The sort key of a value: its depth above weights, then two hashes of the cone above it.

A value above no weights has depth -1. The first hash leaves out all that depends on no weights; the second
covers everything. Exporters differ most in the parts without weights: position ids, masks, shapes.
"""


class _Capture:
    def __init__(self, model: ir.Model, dialect: Any) -> None:
        self.model, self.dialect = model, dialect
        self.weights: dict[ir.Value | QuantisedWeight, Weight] = {}
        self.values: dict[ir.Value, Value] = {}
        self.nodes: list[Node] = []
        self.keys: dict[ir.Value, SortKey] = {}
        self.steps = list(flatten(model.graph))
        self.makers = {v: step for step in self.steps for v in step.outputs}
        self.chains: set[InlinedNode] = set()
        self.stored: dict[ir.Value, QuantisedWeight] = {}
        self.made: dict[object, QuantisedWeight] = {}
        self.shifted = shifts(model.graph)

    def graph(self) -> Graph:
        source = self.model.graph
        inputs = [self.value(v) for v in source.inputs if not v.is_initializer()]
        self.structural_keys(inputs=[v for v in source.inputs if not v.is_initializer()])
        last = [self.makers[v] for v in source.outputs if v in self.makers]
        for step in list(postorder(last, self.predecessors)):
            dropped = step.op == "Constant" or any(self.is_weight(v) for v in step.outputs)
            if step not in self.chains and not dropped:
                self.add(step)
        outputs = [self.operand(v) for v in source.outputs]
        by_name = {v.name: v for v in source.inputs}
        places = {v.name: operand for v, operand in zip(source.outputs, outputs, strict=True)}
        pairs = state_pairs(self.in_line()).items()
        states = [(self.value(by_name[v.name]), places[c.output.name]) for v, c in pairs]
        weights = list(self.weights.values())
        return Graph(self.nodes, inputs, outputs, weights, self.dialect, states)

    def in_line(self) -> ir.Graph:
        """Return the graph with its bodies in line: a copy if it has bodies, else the graph itself."""
        graph: ir.Graph = self.model.graph
        return with_bodies_inlined(graph.clone()) if any(s.around_body for s in self.steps) else graph

    # ---- canonical order

    def structural_keys(self, inputs: list[ir.Value]) -> None:
        """Set the key of each value: equal for equal structures, whatever the names."""
        for i, value in enumerate(inputs):
            self.keys[value] = (-1, b"", self.digest("input", i))
        for step in self.steps:
            operands = [self.key(v) for v in [*step.inputs, *_captured(step)]]
            op = step.op
            if op in DEQUANTIZE and (weight := self.quantised(step)) is not None:
                digest = self.digest("constant", weight.shape)
                self.keys[step.outputs[0]] = (0, digest, digest)
                self.stored[step.outputs[0]] = weight
                continue
            if op in COMMUTATIVE:
                operands.sort()
            for i, out in enumerate(step.outputs):
                self.keys[out] = operands[0] if op == "Identity" else self.above(op, i, operands)
            if (
                has(step.node, *ON_ITS_WAY)
                and all(v is None or self.is_static(v) for v in step.inputs)
                and len(step.outputs) == 1
            ):
                self.chains.add(step)

    def quantised(self, step: InlinedNode) -> QuantisedWeight | None:
        """Return the quantised weight that a step computes, or None."""
        tensors = [None if v is None else constant_of(v) for v in step.inputs]
        missing = any(t is None and v is not None for t, v in zip(tensors, step.inputs, strict=True))
        weight = None if missing else stored(step.op, step.node, tensors)
        if weight is None or not step.op.endswith("DequantizeLinear"):
            return weight
        attributes = sorted((name, repr(a.value)) for name, a in step.node.attributes.items())
        first = self.made.setdefault((step.op, *step.inputs, *attributes), weight)
        if first is not weight:  # several nodes make one weight: its uses count as if they read one node
            first.twins.append(step.node)
        return first

    def is_weight(self, value: ir.Value) -> bool:
        """Whether a node's result counts as a stored tensor."""
        return value in self.stored or value in self.shifted.sums

    def is_static(self, value: ir.Value) -> bool:
        if self.is_weight(value):
            return True
        return constant_of(value) is not None or self.makers.get(value) in self.chains

    def above(self, op: str, output: int, operands: list[SortKey]) -> SortKey:
        depth = max((d for d, _, _ in operands), default=-1)
        everything = self.digest(op, output, *(e for _, _, e in operands))
        if depth < 0:
            return -1, b"", everything
        return depth + 1, self.digest(op, output, *(w for _, w, _ in operands)), everything

    def key(self, value: ir.Value | None) -> SortKey:
        if value is None:
            return -1, b"", b""
        if value not in self.keys:
            tensor = constant_of(value)
            shape = None if tensor is None else tuple(tensor.shape)
            digest = self.digest("constant", shape)
            weight = tensor is not None and dtype_name(tensor.dtype) in FLOATING and tensor.size > 1
            self.keys[value] = (0, digest, digest) if weight else (-1, b"", digest)
        return self.keys[value]

    @staticmethod
    def digest(*parts: object) -> bytes:
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()

    def predecessors(self, step: InlinedNode) -> list[InlinedNode]:
        operands = [v for v in [*step.inputs, *_captured(step)] if v is not None]
        if step.op in COMMUTATIVE:
            operands.sort(key=self.key)
        return [self.makers[v] for v in operands if v in self.makers]

    # ---- building

    def value(self, value: ir.Value) -> Value:
        if value not in self.values:
            self.values[value] = self.fresh(value)
        return self.values[value]

    def operand(self, value: ir.Value) -> Value:
        """Return the neutral operand. A static value gets a fresh constant, behind a fresh chain."""
        value = self.shifted.sums.get(value, value)
        tensor, maker = constant_of(value), self.makers.get(value)
        if tensor is not None or value in self.stored:
            return self.constant(value)
        if maker in self.chains:
            return self.add(maker).outputs[0]
        return self.value(value)

    def constant(self, value: ir.Value) -> Value:
        known = self.stored.get(value)
        key = known or value
        if key not in self.weights:
            new = stored_weight(value, stored_tensor(value)) if known is None else _quantised(value, known)
            new.computed = next((f.stored for f in self.dialect.folded if value is f.stand_in), ())
            new.shift = self.shifted.of.get(value, 0.0)
            self.weights[key] = new
        weight = self.weights[key]
        return Value(weight.name, weight=weight, floating=weight.floating, origin=value)

    def add(self, step: InlinedNode) -> Node:
        chain = step in self.chains
        inputs = tuple(None if v is None else self.operand(v) for v in step.inputs)
        outputs = tuple(self.fresh(v) if chain else self.value(v) for v in step.outputs)
        captured = tuple(self.operand(v) for v in _captured(step))
        guards = tuple((self.value(v), taken) for v, taken in step.guards)
        name = step.node.name or step.outputs[0].name or ""
        origin = step if step.places else step.node
        node = Node(step.op, name, inputs, outputs, step.attributes, origin, captured, guards, chain)
        node.part_of = step.node.meta.get(PART_OF, "")
        if (row := self.dialect.operators.get(step.op)) is not None:
            node.treatment = row.treatment
            node.traits = frozenset() if may_drop(node) or reduces(node) else row.traits
        node.laws = LAWS.get(step.op, node.laws)
        for i, operand in enumerate([*inputs, *captured]):
            if operand is not None:
                operand.users.append((node, i))
        for out in outputs:
            out.producer = node
        self.nodes.append(node)
        return node

    def fresh(self, value: ir.Value) -> Value:
        floating = value.dtype is None or dtype_name(value.dtype) in FLOATING
        return Value(value.name or "", floating=floating, origin=value)


def may_drop(node: Node) -> bool:
    """Whether a node is a dropout that may run in training mode."""
    training = node.input(2) if node.op == "Dropout" else None
    stored = None if training is None or training.weight is None else training.weight.read()
    return training is not None and (stored is None or bool(np.any(stored)))


def reduces(node: Node) -> bool:
    """Whether a node combines the elements it writes with those already there."""
    return node.attributes.get("reduction", "none") not in KEPT
