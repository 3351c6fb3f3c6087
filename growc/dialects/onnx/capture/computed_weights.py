"""Weights that a graph computes from stored tensors, and not linearly, stand for themselves.

A copied unit counts once more in a norm over it (weight norm), and a share of it is not that share behind a
function, so that no change of the stored tensors gives the weight that is wanted. While the model is analysed
an initializer stands in place of the computed value, in bodies too; where that changes, the file has it as a
weight, and where it does not, the computation stays.

Needs: an onnx-ir model of plain nodes. Gives: the same model, and a `Folded` for each such weight.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

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

from growc.algebra.indexmap import Array
from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.capture.owners import around, bodies, read_around
from growc.dialects.onnx.capture.stored_tensors import constant_of, read_tensor, shape_of, stored_tensor
from growc.dialects.onnx.operators.site import REAL
from growc.dialects.onnx.operators.table import backward, treatment_of
from growc.ir.naming import unused

REDUCTIONS = frozenset(
    {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceSum", "ReduceSumSquare", "LpNormalization"}
)
CURVED = REDUCTIONS | frozenset(
    {"Clip", "Exp", "Log", "LogSoftmax", "Relu", "Round", "Sigmoid", "Sign", "Softmax", "Softplus", "Tanh"}
)
"""Operators that no map but an order of units passes on its way to a reader."""

POINTWISE = frozenset({"Abs", "Add", "Div", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"})
"""Operators that weights are also scaled by numbers with: alone they make none that stands for itself."""
MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Layout that stored tensors may pass on their way to a use."""
ARITHMETIC = CURVED | POINTWISE | MOVES | {"Cast", "Expand", "MatMul"}
"""Lists and no traits: onnx's reference operators compute these as onnxruntime does, up to a rounding."""
BODIES = frozenset({"If", "Loop", "Scan"})
WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclass(eq=False)
class Folded:
    """A computed weight, and the initializer that stands for it; `cone`: what computes it; `passed`: what a
    body gives it out by.
    """

    value: ir.Value
    stand_in: ir.Value
    cone: Sequence[ir.Node]
    passed: ir.Node | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of what it is computed from, but for single numbers."""
        found = [v for n in self.cone for v in n.inputs if v is not None and constant_of(v) is not None]
        return tuple(dict.fromkeys(v.name or "" for v in found if _is_large(stored_tensor(v))))

    def on(self, value: Callable[[ir.Value], ir.Value], node: Callable[[ir.Node], ir.Node]) -> Folded:
        """The same of a copy of the model; `value`, `node`: what stands in it for those of this one."""
        passed = None if self.passed is None else node(self.passed)
        return Folded(value(self.value), value(self.stand_in), [*map(node, self.cone)], passed)

    @property
    def is_given_out(self) -> bool:
        """Whether its body still gives it out, where one did: bodies of layers that went give out nothing."""
        if self.passed is None:
            return True
        body = self.passed.graph
        return body is not None and self.passed.outputs[0] in body.outputs

    def restore(self, changed: Container[ir.Value] = ()) -> None:
        """Let the computation stand where it stood. `changed`: stored tensors that are others by now."""
        graph, name = self.stand_in.graph, self.stand_in.name
        assert graph is not None
        assert name is not None
        self.stand_in.replace_all_uses_with(self.value)
        del graph.initializers[name]
        if self.passed is not None:
            body = self.passed.graph
            assert body is not None
            body.outputs[body.outputs.index(self.passed.outputs[0])] = self.value
            body.remove(self.passed, safe=True)
        if any(v in changed for node in self.cone for v in node.inputs if v is not None):
            for made in (v for node in self.cone for v in node.outputs):
                made.shape = None


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return int(tensor.dtype) in REAL and tensor.size > 1


def fold(model: ir.Model) -> list[Folded]:
    """Let an initializer stand in for every weight that is computed and not linear in stored tensors."""
    cones = _Cones(model)
    found: dict[ir.Value, Folded] = {}
    for value in [*_contracted(model, cones), *_given_out(model)]:
        cone = cones.curved(value)
        own = value.is_graph_output() and value.graph is model.graph
        if value in found or not cone or own:
            continue
        tensor = _computed(value, cone, model.opset_imports)
        if tensor is not None:
            passed = _pass_on(value) if value.is_graph_output() else None
            found[value] = Folded(value, _stand_in(value, tensor, model.graph), cone, passed)
    return list(found.values())


def _contracted(model: ir.Model, cones: _Cones) -> Iterator[ir.Value]:
    """Static operands of contractions with activations: where a computed value is a weight."""
    for node in model.graph.all_nodes():
        operands = [v for v in node.inputs if v is not None]
        if treatment_of(node) == "contract" and not all(map(cones.is_static, operands)):
            yield from map(_unmoved, operands[:2])


def _unmoved(value: ir.Value) -> ir.Value:
    """What a value is but for its layout: that is in front of every use of a weight."""
    return backward(value, lambda node: op_name(node) in MOVES)


def _given_out(model: ir.Model) -> Iterator[ir.Value]:
    """What the branches of an If give out."""
    for node in model.graph.all_nodes():
        for body in bodies(node) if node.op_type == "If" else ():
            yield from body.outputs


def _pass_on(value: ir.Value) -> ir.Node:
    """A body cannot give out what lies around it, but a copy of that."""
    node = value.producer()
    assert node is not None
    assert node.graph is not None
    made = ir.node("Identity", [value])
    made.outputs[0].name, made.outputs[0].type, made.outputs[0].shape = (
        f"{value.name}.passed",
        value.type,
        value.shape,
    )
    node.graph.append(made)
    node.graph.outputs[node.graph.outputs.index(value)] = made.outputs[0]
    return made


@dataclass
class _Cones:
    """What stands above every value that stored tensors and arithmetic make."""

    model: ir.Model
    nodes: dict[ir.Value, list[ir.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.model.graph.all_nodes():
            operands = [*_operands(node)]
            if _is_arithmetic(node) and all(map(self.is_static, operands)):
                above = [n for v in operands for n in self.nodes.get(v, [])]
                self.nodes.update((v, list(dict.fromkeys([*above, node]))) for v in node.outputs)

    def is_static(self, value: ir.Value) -> bool:
        return value in self.nodes or constant_of(value) is not None

    def curved(self, value: ir.Value) -> list[ir.Node]:
        """The nodes above a value if some are not linear."""
        above = self.nodes.get(value, [])
        inner = (n for node in above for n in (node, *around(node)))
        return above if any(n.op_type in CURVED for n in inner) else []


def _operands(node: ir.Node) -> Iterator[ir.Value]:
    """What a node and its bodies read from around them."""
    yield from (v for v in node.inputs if v is not None)
    yield from read_around(node)


def _is_arithmetic(node: ir.Node) -> bool:
    if op_name(node) in BODIES:
        return all(n.op_type == "Constant" or _is_arithmetic(n) for b in bodies(node) for n in b)
    if op_name(node) not in ARITHMETIC or len(node.outputs) != 1:
        return False
    return node.op_type != "Cast" or node.attributes["to"].value in WIDE


def _computed(value: ir.Value, cone: Sequence[ir.Node], opsets: Mapping[str, int]) -> ir.LazyTensor | None:
    """The tensor that a cone makes, computed when it is asked for; None where its shape cannot be told."""
    made = {v for n in cone for v in n.outputs}
    leaves = {v.name or "": stored_tensor(v) for n in cone for v in _operands(n) if v not in made}
    proto = _model(value, cone, leaves, opsets)
    kind = onnx.shape_inference.infer_shapes(proto, data_prop=True).graph.output[0].type.tensor_type
    dims = [d.dim_value for d in kind.shape.dim]
    if kind.elem_type not in REAL or not kind.HasField("shape") or not all(dims):
        return None
    dtype = ir.DataType(kind.elem_type)

    def compute() -> ir.TensorProtocol:
        feeds = {i.name: _widened(read_tensor(leaves[i.name])) for i in proto.graph.input}
        [result] = ReferenceEvaluator(proto).run(None, feeds)
        return ir.Tensor(np.asarray(result).astype(dtype.numpy()), dtype=dtype)

    return ir.LazyTensor(compute, dtype=dtype, shape=ir.Shape(dims))


def _model(
    value: ir.Value,
    cone: Sequence[ir.Node],
    leaves: Mapping[str, ir.TensorProtocol],
    opsets: Mapping[str, int],
) -> onnx.ModelProto:
    """A cone as a model: integers are in it, real tensors are fed to it."""
    inputs, numbers = [], []
    for name, tensor in leaves.items():
        if int(tensor.dtype) in REAL:
            inputs.append(make_tensor_value_info(name, int(tensor.dtype), shape_of(tensor)))
        else:
            numbers.append(from_array(tensor.numpy(), name))
    nodes = [ir.serde.serialize_node(node) for node in cone]
    graph = make_graph(nodes, "weight", inputs, [make_empty_tensor_value_info(value.name or "")], numbers)
    return make_model(graph, opset_imports=[make_opsetid(d, v) for d, v in opsets.items()])


def _widened(array: Array) -> Array:
    """16-bit numbers are computed in float32 and rounded once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else np.asarray(array)


def _stand_in(value: ir.Value, tensor: ir.LazyTensor, graph: ir.Graph) -> ir.Value:
    taken = {v.name for n in graph.all_nodes() for v in n.outputs} | set(graph.initializers)
    name = unused(f"{value.name}.value", taken)
    tensor.name = name
    made = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    graph.register_initializer(made)
    value.replace_all_uses_with(made)
    return made
