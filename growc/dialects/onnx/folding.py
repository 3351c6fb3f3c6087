"""Weights that a graph computes by norms over stored tensors (weight norm) stand for themselves.

A copied unit counts once more in such a norm, and noise changes it, so that no change of the stored tensors
gives the weight that is wanted. While the model is analysed an initializer stands in place of the computed
value; where that changes, the file has it as a weight, and where it does not, the computation stays.

Needs: an onnx-ir model of plain nodes. Gives: the same model, and a `Folded` for each such weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
from onnx.helper import (
    make_empty_tensor_value_info,
    make_graph,
    make_model,
    make_opsetid,
    make_tensor_value_info,
)
from onnx.numpy_helper import from_array
from onnx.reference import ReferenceEvaluator

from growc.dialects.onnx.flatten import op_name
from growc.dialects.onnx.operand import REAL
from growc.dialects.onnx.tensors import constant_of, read_tensor
from growc.graph import Array

CONTRACTIONS = frozenset({"MatMul", "Gemm", "Conv", "ConvTranspose"})
"""Where a computed value is a weight: the other operand is an activation."""

REDUCTIONS = frozenset(
    {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceSum", "ReduceSumSquare", "LpNormalization"}
)

POINTWISE = frozenset({"Abs", "Add", "Clip", "Div", "Max", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"})
LAYOUT = frozenset({"Cast", "Expand", "Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclass
class Folded:
    """A computed weight, and the initializer that stands for it."""

    value: ir.Value
    stand_in: ir.Value

    def restore(self) -> None:
        """Let the computation stand where it stood."""
        graph, name = self.stand_in.graph, self.stand_in.name
        assert graph is not None
        assert name is not None
        self.stand_in.replace_all_uses_with(self.value)
        del graph.initializers[name]


def fold(model: ir.Model) -> list[Folded]:
    """Let an initializer stand for every weight that norms over stored tensors make, in place."""
    cones = _Cones(model)
    found: dict[ir.Value, Folded] = {}
    for node in list(model.graph):
        operands = [v for v in node.inputs if v is not None]
        if node.op_type not in CONTRACTIONS or all(cones.is_static(v) for v in operands):
            continue
        for value in operands[:2]:
            if value not in found and (cone := cones.normed(value)) and not value.is_graph_output():
                tensor = _computed(value, cone, model.opset_imports)
                if tensor is not None:
                    found[value] = Folded(value, _stand_in(value, tensor, model.graph))
    return list(found.values())


@dataclass
class _Cones:
    """What stands above every value that stored tensors and arithmetic make."""

    model: ir.Model
    nodes: dict[ir.Value, list[ir.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.model.graph:
            operands = [v for v in node.inputs if v is not None]
            if _is_arithmetic(node) and all(map(self.is_static, operands)):
                above = [n for v in operands for n in self.nodes.get(v, [])]
                self.nodes[node.outputs[0]] = list(dict.fromkeys([*above, node]))

    def is_static(self, value: ir.Value) -> bool:
        return value in self.nodes or constant_of(value) is not None

    def normed(self, value: ir.Value) -> list[ir.Node]:
        """The nodes above a value if a norm of a stored tensor is among them."""
        above = self.nodes.get(value, [])
        return above if any(n.op_type in REDUCTIONS for n in above) else []


def _is_arithmetic(node: ir.Node) -> bool:
    if op_name(node) not in REDUCTIONS | POINTWISE | LAYOUT or len(node.outputs) != 1:
        return False
    return node.op_type != "Cast" or node.attributes["to"].value in WIDE


def _computed(value: ir.Value, cone: Sequence[ir.Node], opsets: Mapping[str, int]) -> Any:
    """The tensor that a cone makes, computed when it is asked for; None where its shape cannot be told."""
    made = {n.outputs[0] for n in cone}
    leaves = {v.name or "": constant_of(v) for n in cone for v in n.inputs if v is not None and v not in made}
    proto = _model(value, cone, leaves, opsets)
    kind = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph.output[0].type.tensor_type
    dims = [d.dim_value for d in kind.shape.dim]
    if kind.elem_type not in REAL or not kind.HasField("shape") or not all(dims):
        return None
    dtype = ir.DataType(kind.elem_type)

    def compute() -> Any:
        feeds = {i.name: _widened(read_tensor(leaves[i.name])) for i in proto.graph.input}
        [result] = ReferenceEvaluator(proto).run(None, feeds)
        return ir.Tensor(np.asarray(result).astype(dtype.numpy()), dtype=dtype)

    return ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape(dims))


def _model(
    value: ir.Value, cone: Sequence[ir.Node], leaves: Mapping[str, Any], opsets: Mapping[str, int]
) -> onnx.ModelProto:
    """A cone as a model: integers are in it, real tensors are fed to it."""
    inputs, numbers = [], []
    for name, tensor in leaves.items():
        if int(tensor.dtype) in REAL:
            inputs.append(make_tensor_value_info(name, int(tensor.dtype), list(tensor.shape)))
        else:
            numbers.append(from_array(tensor.numpy(), name))
    nodes = [ir.to_proto(node) for node in cone]
    graph = make_graph(nodes, "weight", inputs, [make_empty_tensor_value_info(value.name or "")], numbers)
    return make_model(graph, opset_imports=[make_opsetid(d, v) for d, v in opsets.items()])


def _widened(array: Array) -> Array:
    """16-bit numbers are computed in float32 and rounded once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else np.asarray(array)


def _stand_in(value: ir.Value, tensor: ir.LazyTensor, graph: ir.Graph) -> ir.Value:
    taken = {v.name for n in graph.all_nodes() for v in n.outputs} | set(graph.initializers)
    name = f"{value.name}.value"
    while name in taken:
        name += "_"
    tensor.name = name
    made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    graph.register_initializer(made)
    value.replace_all_uses_with(made)
    return made
