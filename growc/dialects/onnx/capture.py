"""From an onnx-ir model to the neutral graph: one weight one use, canonical order, dead code left out.

Needs: a model from `container.load`. Gives: `growc.graph.Graph`, whose order and structure do not depend on
names, on the order of nodes in the file, or on which operand of a commutative operator comes first.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import InlinePass

from growc.dialects.onnx.fused import lower
from growc.dialects.onnx.lowerings import LOWERINGS
from growc.dialects.onnx.states import state_pairs
from growc.graph import FLOATING, Array, Graph, Node, Value, Weight

COMMUTATIVE = frozenset(
    {"Add", "Mul", "And", "Or", "Xor", "Max", "Min", "Sum", "Mean", "Equal", "BitwiseAnd"}
)

LAYOUT = frozenset(
    {"Identity", "Transpose", "Cast", "Reshape", "Squeeze", "Unsqueeze", "Flatten", "Slice", "Gather"}
)
"""Operators that a weight may pass on its way to its use; each use gets its own copy of the chain."""


def capture(model: ir.Model, dialect: Any) -> Graph:
    """The neutral graph of `model`. `dialect` is kept on the graph for table look-ups."""
    if model.functions:
        InlinePass()(model)
    dialect.fused += lower(model, LOWERINGS)
    return _Capture(model, dialect).graph()


def op_name(node: ir.Node) -> str:
    """`MatMul` for the default domain, `domain::Name` for others."""
    return node.op_type if node.domain in ("", "ai.onnx") else f"{node.domain}::{node.op_type}"


def constant_of(value: ir.Value) -> Any:
    """The tensor behind a value that is an initializer or the output of a Constant node; else None."""
    if value.const_value is not None and (value.is_initializer() or value.producer() is None):
        return value.const_value
    node = value.producer()
    if node is None or op_name(node) != "Constant":
        return None
    return _constant_tensor(node)


def read_tensor(tensor: Any) -> Array:
    """The values of a tensor; those of external data as a memory map, of which only what is used is read."""
    if isinstance(tensor, ir.ExternalTensor) and tensor.dtype.itemsize >= 1 and tensor.nbytes:
        shape = tuple(int(d) for d in tensor.shape.numpy())
        return np.memmap(tensor.path, tensor.dtype.numpy(), "r", tensor.offset or 0, shape)
    return np.asarray(tensor.numpy())


def _constant_tensor(node: ir.Node) -> Any:
    for attribute in node.attributes.values():
        if attribute.name == "value":
            return attribute.value
        if attribute.name in ("value_int", "value_ints"):
            return ir.tensor(attribute.value, dtype=ir.DataType.INT64)
        if attribute.name in ("value_float", "value_floats"):
            return ir.tensor(attribute.value, dtype=ir.DataType.FLOAT)
    return None


def _captured(node: ir.Node) -> Iterator[ir.Value]:
    """Values of enclosing scopes that the bodies of this node use."""
    for attribute in node.attributes.values():
        bodies = {ir.AttributeType.GRAPH: [attribute.value], ir.AttributeType.GRAPHS: attribute.value}
        for body in bodies.get(attribute.type, []):
            inner = list(body.all_nodes())
            own = {id(v) for v in body.inputs} | {id(v) for n in inner for v in n.outputs}
            own |= {id(v) for v in body.initializers.values()}
            for n in inner:
                for graph in (a.value for a in n.attributes.values() if a.type == ir.AttributeType.GRAPH):
                    own |= {id(v) for v in graph.inputs} | {id(v) for v in graph.initializers.values()}
            operands = [v for n in inner for v in n.inputs] + list(body.outputs)
            yield from (v for v in operands if v is not None and id(v) not in own)


Key = tuple[int, bytes, bytes]
"""How deep a value stands above weights (-1: no weights), then two hashes of the cone above it: without what
depends on no weights, and of everything. Exporters differ most in the latter: position ids, masks, shapes."""


class _Capture:
    def __init__(self, model: ir.Model, dialect: Any) -> None:
        self.model, self.dialect = model, dialect
        self.weights: dict[int, Weight] = {}
        self.values: dict[int, Value] = {}
        self.nodes: list[Node] = []
        self.keys: dict[int, Key] = {}
        self.chains: set[int] = set()

    def graph(self) -> Graph:
        source = self.model.graph
        inputs = [self.value(v) for v in source.inputs if not v.is_initializer()]
        self.structural_keys(inputs=[v for v in source.inputs if not v.is_initializer()])
        order = self.postorder(v.producer() for v in source.outputs)
        for node in order:
            if id(node) not in self.chains and op_name(node) != "Constant":
                self.add(node)
        outputs = [self.operand(v) for v in source.outputs]
        places = {id(v): made for v, made in zip(source.outputs, outputs, strict=True)}
        states = [(self.value(v), places[id(c.output)]) for v, c in state_pairs(source).items()]
        weights = list(self.weights.values())
        return Graph(self.nodes, inputs, outputs, weights, self.dialect, self.model, states)

    # ---- canonical order

    def structural_keys(self, inputs: list[ir.Value]) -> None:
        """The key of each value: equal for equal structures, whatever the names."""
        for i, value in enumerate(inputs):
            self.keys[id(value)] = (-1, b"", self.digest("input", i))
        for node in self.model.graph:
            operands = [self.key(v) for v in node.inputs] + [self.key(v) for v in _captured(node)]
            op = op_name(node)
            if op in COMMUTATIVE:
                operands.sort()
            for i, out in enumerate(node.outputs):
                self.keys[id(out)] = operands[0] if op == "Identity" else self.above(op, i, operands)
            if (
                op in LAYOUT
                and all(v is None or self.is_static(v) for v in node.inputs)
                and len(node.outputs) == 1
            ):
                self.chains.add(id(node))

    def is_static(self, value: ir.Value) -> bool:
        node = value.producer()
        return constant_of(value) is not None or (node is not None and id(node) in self.chains)

    def above(self, op: str, output: int, operands: list[Key]) -> Key:
        depth = max((d for d, _, _ in operands), default=-1)
        everything = self.digest(op, output, *(e for _, _, e in operands))
        if depth < 0:
            return -1, b"", everything
        return depth + 1, self.digest(op, output, *(w for _, w, _ in operands)), everything

    def key(self, value: ir.Value | None) -> Key:
        if value is None:
            return -1, b"", b""
        if id(value) not in self.keys:
            tensor = constant_of(value)
            shape = None if tensor is None else tuple(tensor.shape)
            digest = self.digest("constant", shape)
            weight = tensor is not None and _dtype_name(tensor.dtype) in FLOATING and tensor.size > 1
            self.keys[id(value)] = (0, digest, digest) if weight else (-1, b"", digest)
        return self.keys[id(value)]

    @staticmethod
    def digest(*parts: object) -> bytes:
        return hashlib.blake2b(repr(parts).encode(), digest_size=12).digest()

    def predecessors(self, node: ir.Node) -> list[ir.Node]:
        operands = [v for v in [*node.inputs, *_captured(node)] if v is not None]
        if op_name(node) in COMMUTATIVE:
            operands.sort(key=self.key)
        return [p for p in (v.producer() for v in operands) if p is not None and p.graph is self.model.graph]

    def postorder(self, roots: Iterable[ir.Node | None]) -> list[ir.Node]:
        done: set[int] = set()
        order: list[ir.Node] = []
        for root in roots:
            stack = [] if root is None else [(root, iter(self.predecessors(root)))]
            if root is not None and id(root) in done:
                continue
            if root is not None:
                done.add(id(root))
            while stack:
                node, rest = stack[-1]
                following = next((p for p in rest if id(p) not in done), None)
                if following is None:
                    order.append(node)
                    stack.pop()
                else:
                    done.add(id(following))
                    stack.append((following, iter(self.predecessors(following))))
        return order

    # ---- building

    def value(self, value: ir.Value) -> Value:
        if id(value) not in self.values:
            self.values[id(value)] = self.fresh(value)
        return self.values[id(value)]

    def operand(self, value: ir.Value) -> Value:
        """The neutral operand: a fresh constant (with a fresh chain in front of it) for what is static."""
        node = value.producer()
        tensor = constant_of(value)
        if tensor is not None:
            return self.constant(value, tensor)
        if node is not None and id(node) in self.chains:
            return self.add(node).outputs[0]
        return self.value(value)

    def constant(self, value: ir.Value, tensor: Any) -> Value:
        if id(value) not in self.weights:
            shape = tuple(int(d) for d in tensor.shape)
            reader = partial(read_tensor, tensor)
            self.weights[id(value)] = Weight(
                value.name or "", shape, _dtype_name(tensor.dtype), reader, origin=value
            )
        weight = self.weights[id(value)]
        return Value(weight.name, weight=weight, floating=weight.floating, origin=value)

    def add(self, node: ir.Node) -> Node:
        chain = id(node) in self.chains
        inputs = tuple(None if v is None else self.operand(v) for v in node.inputs)
        outputs = tuple(self.fresh(v) if chain else self.value(v) for v in node.outputs)
        captured = tuple(self.operand(v) for v in _captured(node))
        attributes = {a.name: a.value for a in node.attributes.values()}
        name = node.name or node.outputs[0].name or ""
        made = Node(op_name(node), name, inputs, outputs, attributes, node, captured, chain)
        for i, operand in enumerate([*inputs, *captured]):
            if operand is not None:
                operand.users.append((made, i))
        for out in outputs:
            out.producer = made
        self.nodes.append(made)
        return made

    def fresh(self, value: ir.Value) -> Value:
        floating = value.dtype is None or _dtype_name(value.dtype) in FLOATING
        return Value(value.name or "", floating=floating, origin=value)


def _dtype_name(dtype: Any) -> str:
    names = {"FLOAT": "float32", "DOUBLE": "float64", "FLOAT16": "float16", "BFLOAT16": "bfloat16"}
    return str(names.get(dtype.name, dtype.name.lower()))
