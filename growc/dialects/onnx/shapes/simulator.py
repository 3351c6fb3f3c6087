"""One node at one point: its result types by onnx's inference, and its results by onnx's reference operators.

Needs: operands by element type, sizes, and values if known. Gives: the same of the results. Nodes that differ
only in names are computed once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

import numpy as np
import onnx
import onnx_ir as ir
from onnx.reference.ops import load_op

from growc.algebra.indexmap import Array
from growc.algebra.space import Size
from growc.dialects.onnx.operators.infer_types import Type, results
from growc.dialects.onnx.origins import node_of
from growc.errors.short_repr import brief
from growc.ir.graph import Node

IN_SCHEMAS = {
    int(ir.DataType.BFLOAT16): int(ir.DataType.FLOAT),
    int(ir.DataType.COMPLEX64): int(ir.DataType.FLOAT),
    int(ir.DataType.COMPLEX128): int(ir.DataType.DOUBLE),
}
"""The substitute of each type in shape inference.

Exporters write bfloat16 where old operators lack it, and no operator has complex numbers.
"""
DRAWS = onnx.defs.OpSchema.NodeDeterminism.NonDeterministic
"""The mark of operators that draw random numbers, or may."""
NAMES = ("name", "doc_string", "metadata_props")
"""The parts of a node that do not affect its results."""


class ContradictionError(Exception):
    """The sizes of the model contradict each other at these sample points."""

    def __init__(self, node: Node, message: str) -> None:
        super().__init__(message)
        self.node, self.message = node, message
        self.operands: list[tuple[int, ...]] = []
        """Known integers that the node reads."""
        self.sizes: list[Size] = []
        """The sizes that meet at the node."""


class PartialType(NamedTuple):
    """An element type (onnx's number; 0: not known), and the sizes of the axes, as far as known."""

    element: int
    dims: tuple[int | None, ...] | None

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """The sizes of all axes, or None."""
        return self.at(None)

    def at(self, length: int | None) -> tuple[int, ...] | None:
        """Return the sizes of all axes, or None. `length` replaces unknown sizes."""
        if self.dims is None:
            return None
        sizes = [length if d is None else d for d in self.dims]
        return None if None in sizes else tuple(d for d in sizes if d is not None)


class SettledPoints(NamedTuple):
    """Sample points, and the assumptions about symbols there (growc.dialects.onnx.shapes.sample_points)."""

    samples: tuple[Size, ...]
    assigned: Mapping[str, Size | str | tuple[str, str]]


PartialTypes = tuple[PartialType | None, ...]


class NodeResults(NamedTuple):
    """The results of a node at all sample points, one entry for each.

    types: element types (onnx's number; None: not known). sizes: of all axes; None: not known. values: at
    each point; None: not known.
    """

    types: Sequence[int | None]
    sizes: Sequence[tuple[Size, ...] | None]
    values: Sequence[tuple[Array, ...] | None]


@dataclass(eq=False)
class NodeClass:
    """Nodes that are equal except for names, with operands i0, i1, … and results o0, …

    known_types: the types of their results, by their operands at one sample point.
    results: their results at all points, by their operands there.
    """

    __repr__ = brief

    proto: onnx.NodeProto
    known_types: dict[object, list[PartialType | None]] = field(default_factory=dict)
    results: dict[object, NodeResults] = field(default_factory=dict)


class Simulator:
    """An evaluator of one model's nodes, which caches results between runs."""

    def __init__(self, model: ir.Model) -> None:
        self.opsets = {("" if d == "ai.onnx" else d): v for d, v in model.opset_imports.items()}
        self.nodes: dict[Node, NodeClass] = {}
        self.distinct: dict[bytes, NodeClass] = {}
        self.runners: dict[NodeClass, Any] = {}
        self.schemas: dict[str, Any] = {}
        self.settled: SettledPoints | None = None
        """The sample points at which the model was last simulated without a contradiction."""

    def on(self, model: ir.Model) -> Self:
        """Return the same for a model with other nodes, with the cached results of equal ones."""
        simulator = type(self)(model)
        simulator.settled = self.settled
        if simulator.opsets == self.opsets:
            simulator.distinct, simulator.runners, simulator.schemas = (
                self.distinct,
                self.runners,
                self.schemas,
            )
        return simulator

    def schema(self, op: str) -> Any:
        """Return onnx's schema of an operator; None for onnxruntime's own, neutral and deprecated ones."""
        if op not in self.schemas:
            domain, _, name = op.rpartition("::")
            try:
                schema = onnx.defs.get_schema(name, self.opsets.get(domain) or 1, domain)
            except onnx.defs.SchemaError:
                schema = None
            self.schemas[op] = None if schema is None or schema.deprecated else schema
        return self.schemas[op]

    def alike(self, node: Node, attributes: Mapping[str, Any], operands: int, op: str) -> NodeClass:
        """Return the nodes that are equal to this one with the changes of a patch."""
        if node not in self.nodes:
            proto = ir.serde.serialize_node(node_of(node))
            proto.input[:] = [f"i{i}" if v is not None else "" for i, v in enumerate(node.inputs)]
            proto.output[:] = [f"o{i}" for i in range(len(node.outputs))]
            for name in NAMES:
                proto.ClearField(name)
            self.nodes[node] = self._alike(proto)
        alike = self.nodes[node]
        if attributes or op or operands > len(node.inputs):
            changed = onnx.NodeProto()
            changed.CopyFrom(alike.proto)
            changed.op_type = op or changed.op_type
            changed.input.extend(f"i{i}" for i in range(len(node.inputs), operands))
            unchanged = [a for a in alike.proto.attribute if a.name not in attributes]
            del changed.attribute[:]
            changed.attribute.extend(unchanged)
            new_attributes = (
                onnx.helper.make_attribute(k, v) for k, v in attributes.items() if v is not None
            )
            changed.attribute.extend(new_attributes)
            return self._alike(changed)
        return alike

    def _alike(self, proto: onnx.NodeProto) -> NodeClass:
        return self.distinct.setdefault(proto.SerializeToString(deterministic=True), NodeClass(proto))

    def infer(
        self, node: Node, alike: NodeClass, operands: PartialTypes, known: Sequence[Array | None]
    ) -> list[PartialType | None]:
        """Return the result types by onnx's inference; None for an unknown one. Raises ContradictionError."""
        data = [(i, k) for i, k in enumerate(known) if k is not None and k.dtype.kind in "fiub"]
        key = node.op, operands, tuple((i, k.dtype.str, k.shape, k.tobytes()) for i, k in data)
        if key not in alike.known_types:
            alike.known_types[key] = self._inferred(node, alike.proto, operands, data)
        return alike.known_types[key]

    def _inferred(
        self, node: Node, proto: onnx.NodeProto, operands: PartialTypes, known: Sequence[tuple[int, Array]]
    ) -> list[PartialType | None]:
        domain = _domain(node)
        schema = self.schema(_with_domain(domain, proto))
        if schema is None:
            return _own_results(node, proto, operands)
        make = onnx.helper.make_tensor_type_proto
        types = {
            n: make(t.element, t.dims)
            for n, t in zip(proto.input, operands, strict=False)
            if n and t is not None
        }
        data = {f"i{i}": onnx.numpy_helper.from_array(k, f"i{i}") for i, k in known}
        imports = [onnx.helper.make_opsetid(domain, self.opsets.get(domain) or 1)]
        try:
            inferred = onnx.shape_inference.infer_node_outputs(schema, proto, types, data, None, imports)
        except Exception as cause:  # onnx raises several unrelated types if sizes do not fit
            raise ContradictionError(node, str(cause).strip().splitlines()[-1]) from cause
        types_told = [_told(inferred.get(f"o{i}")) for i in range(len(node.outputs))]
        if any(t is not None and t.sizes is not None for t in types_told):
            return types_told
        own = _own_results(
            node, proto, operands
        )  # onnx infers no shape for some operators with a function body
        return [a or b for a, b in zip(own, types_told, strict=True)]

    def evaluate(self, node: Node, alike: NodeClass, inputs: list[Array | None]) -> list[Array] | None:
        """Return the node's results by onnx's reference operators; None if it cannot be evaluated."""
        if alike not in self.runners:
            self.runners[alike] = self._runner(node, alike.proto)
        runner = self.runners[alike]
        if runner is None:
            return None
        while inputs and inputs[-1] is None:
            inputs = inputs[:-1]
        with suppress(Exception):  # the values stay unknown; the shape is still inferred
            return [np.asarray(r) for r in runner.run(*inputs)]
        return None

    def _runner(self, node: Node, proto: onnx.NodeProto) -> Any:
        domain = _domain(node)
        schema = self.schema(_with_domain(domain, proto))
        if schema is not None and schema.node_determinism == DRAWS:
            return None  # each run draws other numbers
        with suppress(Exception):  # without a reference implementation it is not evaluated
            parameters = {"log": lambda *_: None, "opsets": self.opsets, "verbose": 0}
            parameters |= {"evaluator_cls": None, "existing_functions": {}, "new_ops": None}
            return load_op(domain, proto.op_type, self.opsets.get(domain, 1))(proto, parameters)
        return None


def _domain(node: Node) -> str:
    return node.op.split("::")[0] if "::" in node.op else ""


def _with_domain(domain: str, proto: onnx.NodeProto) -> str:
    return f"{domain}::{proto.op_type}" if domain else proto.op_type


def _own_results(node: Node, proto: onnx.NodeProto, operands: PartialTypes) -> list[PartialType | None]:
    """Return result types of operators that onnx does not know. Raises ContradictionError."""
    operand_types = [None if t is None or t.sizes is None else Type(t.element, t.sizes) for t in operands]
    attributes = {a.name: onnx.helper.get_attribute_value(a) for a in proto.attribute}
    try:
        types = results(node.op, operand_types, attributes)
    except ValueError as cause:
        raise ContradictionError(node, str(cause)) from cause
    types_told = [None if f is None else PartialType(f.element, f.dims) for f in types]
    return [*types_told, *[None] * len(node.outputs)][: len(node.outputs)]


def _told(kind: onnx.TypeProto | None) -> PartialType | None:
    if kind is None or not kind.HasField("tensor_type"):
        return None
    tensor = kind.tensor_type
    dims = [d.dim_value if d.HasField("dim_value") else None for d in tensor.shape.dim]
    return PartialType(tensor.elem_type, tuple(dims) if tensor.HasField("shape") else None)
