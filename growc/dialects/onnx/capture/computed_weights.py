"""Computed weights: weights that the graph computes from stored tensors by a function that is not linear.

No change of the stored tensors may give the weight that is wanted. A copied unit counts twice in a norm over
it (weight norm), and a function of a share of a unit is not that share of the function. While the model is
analysed, an initializer replaces the computed value, in bodies too. If the initializer changes, the file
stores it as a weight; if not, the computation stays.

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
from growc.dialects.onnx.capture.stored_values import constant_of, read_tensor, shape_of, stored_tensor
from growc.dialects.onnx.operators.site import REAL
from growc.dialects.onnx.operators.table import backward, treatment_of
from growc.ir.naming import unused

REDUCTIONS = frozenset(
    {"ReduceL1", "ReduceL2", "ReduceMax", "ReduceMean", "ReduceSum", "ReduceSumSquare", "LpNormalization"}
)
CURVED = REDUCTIONS | frozenset(
    {"Clip", "Exp", "Log", "LogSoftmax", "Relu", "Round", "Sigmoid", "Sign", "Softmax", "Softplus", "Tanh"}
)
"""Operators that commute with no index map but a permutation of units."""

POINTWISE = frozenset({"Abs", "Add", "Div", "Max", "Min", "Mul", "Neg", "Pow", "Reciprocal", "Sqrt", "Sub"})
"""Operators by which weights are also scaled by numbers. Alone they do not make a weight a computed one."""
MOVES = frozenset({"Identity", "Reshape", "Squeeze", "Transpose", "Unsqueeze"})
"""Layout operators that may stand between a stored tensor and its use."""
ARITHMETIC = CURVED | POINTWISE | MOVES | {"Cast", "Expand", "MatMul"}
"""Operators that a computed weight may use.

These are lists rather than traits: onnx's reference operators compute them as onnxruntime does, up to
rounding.
"""
BODIES = frozenset({"If", "Loop", "Scan"})
WIDE = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE})


@dataclass(eq=False)
class Folded:
    """A computed weight, and the initializer that stands for it.

    cone: the nodes that compute it. passed: the Identity by which a body gives the initializer out.
    """

    value: ir.Value
    stand_in: ir.Value
    cone: Sequence[ir.Node]
    passed: ir.Node | None = None

    @property
    def stored(self) -> tuple[str, ...]:
        """The names of the stored tensors that it is computed from, without single numbers."""
        constants = [v for n in self.cone for v in n.inputs if v is not None and constant_of(v) is not None]
        return tuple(dict.fromkeys(v.name or "" for v in constants if _is_large(stored_tensor(v))))

    def on(self, value: Callable[[ir.Value], ir.Value], node: Callable[[ir.Node], ir.Node]) -> Folded:
        """Return the same computed weight in a copy of the model.

        `value` and `node` return the copy's counterpart of a value or node of this model.
        """
        passed = None if self.passed is None else node(self.passed)
        return Folded(value(self.value), value(self.stand_in), [*map(node, self.cone)], passed)

    @property
    def is_given_out(self) -> bool:
        """Whether its body, if it had one, still gives it out. Bodies of removed layers give out nothing."""
        if self.passed is None:
            return True
        body = self.passed.graph
        return body is not None and self.passed.outputs[0] in body.outputs

    def restore(self, changed: Container[ir.Value] = ()) -> None:
        """Put the computation back in place of the initializer. `changed`: changed stored tensors."""
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
            for output in (v for node in self.cone for v in node.outputs):
                output.shape = None


def _is_large(tensor: ir.TensorProtocol) -> bool:
    return int(tensor.dtype) in REAL and tensor.size > 1


def fold(model: ir.Model) -> list[Folded]:
    """Replace every weight computed nonlinearly from stored tensors by an initializer."""
    cones = _Cones(model)
    folded: dict[ir.Value, Folded] = {}
    for value in [*_contracted(model, cones), *_given_out(model)]:
        cone = cones.curved(value)
        own = value.is_graph_output() and value.graph is model.graph
        if value in folded or not cone or own:
            continue
        tensor = _computed(value, cone, model.opset_imports)
        if tensor is not None:
            passed = _pass_on(value) if value.is_graph_output() else None
            folded[value] = Folded(value, _stand_in(value, tensor, model.graph), cone, passed)
    return list(folded.values())


def _contracted(model: ir.Model, cones: _Cones) -> Iterator[ir.Value]:
    """Yield the static operands of contractions with activations: computed values there are weights."""
    for node in model.graph.all_nodes():
        operands = [v for v in node.inputs if v is not None]
        if treatment_of(node) == "contract" and not all(map(cones.is_static, operands)):
            yield from map(_unmoved, operands[:2])


def _unmoved(value: ir.Value) -> ir.Value:
    """Return the value behind any layout operators, which may stand in front of every use of a weight."""
    return backward(value, lambda node: op_name(node) in MOVES)


def _given_out(model: ir.Model) -> Iterator[ir.Value]:
    """Yield the outputs of the branches of every If."""
    for node in model.graph.all_nodes():
        for body in bodies(node) if node.op_type == "If" else ():
            yield from body.outputs


def _pass_on(value: ir.Value) -> ir.Node:
    """Add an Identity as the body's output instead of `value`, since a body cannot output an outer value."""
    node = value.producer()
    assert node is not None
    assert node.graph is not None
    identity = ir.node("Identity", [value])
    identity.outputs[0].name, identity.outputs[0].type, identity.outputs[0].shape = (
        f"{value.name}.passed",
        value.type,
        value.shape,
    )
    node.graph.append(identity)
    node.graph.outputs[node.graph.outputs.index(value)] = identity.outputs[0]
    return identity


@dataclass
class _Cones:
    """The nodes above every value that is computed from stored tensors by arithmetic alone."""

    model: ir.Model
    nodes: dict[ir.Value, list[ir.Node]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.model.graph.all_nodes():
            if _is_arithmetic(node) and all(map(self.is_static, _operands(node))):
                above = [n for v in _operands(node) for n in self.nodes.get(v, [])]
                self.nodes.update((v, list(dict.fromkeys([*above, node]))) for v in node.outputs)

    def is_static(self, value: ir.Value) -> bool:
        return value in self.nodes or constant_of(value) is not None

    def curved(self, value: ir.Value) -> list[ir.Node]:
        """Return the nodes above a value if some of them are not linear, else nothing."""
        above = self.nodes.get(value, [])
        inner = (n for node in above for n in (node, *around(node)))
        return above if any(n.op_type in CURVED for n in inner) else []


def _operands(node: ir.Node) -> Iterator[ir.Value]:
    """Yield the values that a node reads, and those that its bodies read from around them."""
    yield from (v for v in node.inputs if v is not None)
    yield from read_around(node)


def _is_arithmetic(node: ir.Node) -> bool:
    if op_name(node) in BODIES:
        return all(n.op_type == "Constant" or _is_arithmetic(n) for b in bodies(node) for n in b)
    if op_name(node) not in ARITHMETIC or len(node.outputs) != 1:
        return False
    return node.op_type != "Cast" or node.attributes["to"].value in WIDE


def _computed(value: ir.Value, cone: Sequence[ir.Node], opsets: Mapping[str, int]) -> ir.LazyTensor | None:
    """Return the tensor that a cone computes, evaluated on demand; None if its shape cannot be inferred."""
    computed = {v for n in cone for v in n.outputs}
    leaves = {v.name or "": stored_tensor(v) for n in cone for v in _operands(n) if v not in computed}
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
    """Return a cone as a model: it contains the integers, and the real tensors are its inputs."""
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
    """Return 16-bit numbers as float32, so that they are computed in float32 and rounded once."""
    return array.astype(np.float32) if array.dtype.itemsize == 2 else np.asarray(array)


def _stand_in(value: ir.Value, tensor: ir.LazyTensor, graph: ir.Graph) -> ir.Value:
    taken = {v.name for n in graph.all_nodes() for v in n.outputs} | set(graph.initializers)
    name = unused(f"{value.name}.value", taken)
    tensor.name = name
    stand_in = ir.Value(name=name, type=ir.TensorType(tensor.dtype), shape=tensor.shape, const_value=tensor)
    graph.register_initializer(stand_in)
    value.replace_all_uses_with(stand_in)
    return stand_in
