"""Copies of a model in other float types, for onnxruntime.

A copy is the same graph with every float32 (or 16-bit) tensor, attribute and declared type replaced. Two
kinds of operator keep the old type, between casts: those that onnxruntime has no float64 kernel for, and
those that compute integers from nothing but sizes (relative position buckets, which a last bit moves).
Weights are converted one at a time, on the way from file to file.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray
from onnx_ir.passes.common import ShapeInferencePass

from growc.dialects.onnx.states import moving_values
from growc.kernels import Kernels, every_port
from growc.signature import load_model

Array = NDArray[Any]
Types = Mapping[ir.DataType, ir.DataType]

WIDER: Types = {ir.DataType.FLOAT: ir.DataType.DOUBLE}
SINGLE: Types = {ir.DataType.FLOAT16: ir.DataType.FLOAT, ir.DataType.BFLOAT16: ir.DataType.FLOAT}

SAME: Types = {ir.DataType.FLOAT: ir.DataType.FLOAT}

_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype")


@contextlib.contextmanager
def runnable(model: Path) -> Iterator[Path]:
    """A path that onnxruntime's CPU kernels can run: the model's, or a float32 copy's if it has bfloat16."""
    if ir.DataType.BFLOAT16 not in float_types(model):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="growc-") as folder:
        yield write_copy(model, Path(folder) / "single.onnx", SINGLE)


def float_types(model: Path) -> frozenset[ir.DataType]:
    """The float types that a model's weights, inputs and casts have. Raises GrowError (G310)."""
    found: set[ir.DataType | None] = set()
    loaded = load_model(model)
    for graph in loaded.graphs():
        found.update(value.dtype for value in (*graph.inputs, *graph.initializers.values()))
    for node in loaded.graph.all_nodes():
        found.update(value.dtype for value in node.outputs)
        if node.op_type == "Cast":
            found.add(ir.DataType(node.attributes.get_int("to", 0)))
    return frozenset(dtype for dtype in found if dtype is not None and dtype.is_floating_point())


def rounds_activations(model: Path) -> bool:
    """Whether a model rounds what it computes to a few steps. Raises GrowError (G310)."""
    kinds = ("QuantizeLinear", "DynamicQuantize", "QLinear", "QGemm")
    return any(node.op_type.startswith(kinds) for node in load_model(model).graph.all_nodes())


def copy_bytes(model: Path, types: Types) -> int:
    """The size of the weights of a copy. Raises GrowError (G310)."""
    weights = [value for graph in load_model(model).graphs() for value in graph.initializers.values()]
    return sum(
        int(weight.const_value.size * types.get(weight.dtype, weight.dtype).itemsize)
        for weight in weights
        if weight.const_value is not None and weight.dtype is not None
    )


def write_copy(
    model: Path, target: Path, types: Types, change: Callable[[Array], Array] | None = None
) -> Path:
    """Write `model` with its float types replaced to `target`, weights beside it as external data.

    `change` maps every weight of a replaced type; without it the values stay. Inputs keep their type (but
    bfloat16, which cannot be fed); outputs have the new one.
    Raises GrowError (G310) for a model that is no ONNX file; OSError where there is no space.
    """
    loaded = load_model(model)
    if types is WIDER:
        loaded = ShapeInferencePass()(loaded).model
    kept = _discrete(loaded.graph) if types is WIDER else set()
    _retype(loaded, types, change, kept)
    if types is WIDER:
        _cast_around_narrow(loaded, kept)
    ir.save(loaded, target, external_data=target.name + ".data")
    return target


def _retype(
    model: ir.Model, types: Types, change: Callable[[Array], Array] | None, kept: set[ir.Node]
) -> None:
    """Replace types everywhere but in the attributes of the `kept` nodes."""
    for graph in list(model.graphs()):
        for value in graph.initializers.values():
            _retype_value(value, types, change)
        for node in graph:
            if node not in kept:
                _retype_attributes(node, types, change)
            for value in node.outputs:
                _retype_value(value, types, change)
        for value in graph.inputs:
            old = value.dtype
            _retype_value(value, types, change)
            outer = graph is model.graph and value.name not in graph.initializers
            if outer and old is not None and old in types and old != ir.DataType.BFLOAT16:
                _cast_input(graph, value, old)


def _retype_value(value: ir.Value, types: Types, change: Callable[[Array], Array] | None) -> None:
    if value.dtype is not None and value.dtype in types:
        dtype = types[value.dtype]
        if value.const_value is not None:
            value.const_value = _converted(value.const_value, dtype, change)
        value.dtype = dtype


def _converted(
    tensor: ir.TensorProtocol, dtype: ir.DataType, change: Callable[[Array], Array] | None
) -> ir.LazyTensor:
    def convert() -> ir.TensorProtocol:
        array = tensor.numpy()
        return ir.Tensor((change(array) if change else array).astype(dtype.numpy()), name=tensor.name)

    return ir.LazyTensor(convert, dtype=dtype, shape=ir.Shape(list(tensor.shape.numpy())), name=tensor.name)


def _retype_attributes(node: ir.Node, types: Types, change: Callable[[Array], Array] | None) -> None:
    """Types named by attributes, constants held by them, and the constants that mean float32 by default."""
    changed = []
    for attribute in node.attributes.values():
        names_type = node.domain == "" and attribute.name in _TYPE_ATTRIBUTES
        if names_type and attribute.type == ir.AttributeType.INT:
            dtype = ir.DataType(attribute.as_int())
            if dtype in types:
                changed.append(ir.AttrInt64(attribute.name, types[dtype]))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in types:
            tensor = attribute.as_tensor()
            value = _converted(tensor, types[tensor.dtype], change).numpy()
            changed.append(ir.AttrTensor(attribute.name, ir.Tensor(value)))
    single = types.get(ir.DataType.FLOAT)
    if single is not None and node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        changed.append(ir.AttrTensor("value", ir.Tensor(np.zeros(1, dtype=single.numpy()))))
    if single is not None and node.op_type == "Constant":
        for name in ("value_float", "value_floats"):
            if (held := node.attributes.pop(name, None)) is not None:
                changed.append(ir.AttrTensor("value", ir.Tensor(np.array(held.value, dtype=single.numpy()))))
    for attribute in changed:
        node.attributes.add(attribute)


def _cast_input(graph: ir.Graph, value: ir.Value, old: ir.DataType) -> None:
    """Give an input its old type back, behind a cast."""
    uses = list(value.uses())
    cast = ir.node("Cast", [value], {"to": value.dtype})
    wide = cast.outputs[0]
    wide.name, wide.type, wide.shape = f"{value.name}:wide", value.type, value.shape
    value.type = ir.TensorType(old)
    if graph.num_nodes():
        graph.insert_before(graph[0], cast)
    else:
        graph.append(cast)
    _replace(graph, uses, value, wide)


def _replace(graph: ir.Graph, uses: Iterable[Any], old: ir.Value, new: ir.Value) -> None:
    """Let these uses of `old`, and the graph's outputs, see `new`."""
    for use in uses:
        use.node.replace_input_with(use.idx, new)
    for index, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[index] = new


def _discrete(graph: ir.Graph) -> set[ir.Node]:
    """The nodes that compute real numbers from sizes alone, of which only integers or booleans are used."""
    moving = moving_values(graph)
    found: set[ir.Node] = set()
    for node in reversed(list(graph)):
        uses = [use.node for output in node.outputs for use in output.uses()]
        still = not any(output in moving or output.is_graph_output() for output in node.outputs)
        if still and uses and all(user in found or not _gives_reals(user) for user in uses):
            found.add(node)
    return {node for node in found if _gives_reals(node)}


def _gives_reals(node: ir.Node) -> bool:
    """Whether a result of the node may hold real numbers."""
    return any(output.dtype is None or output.dtype.is_floating_point() for output in node.outputs)


def _cast_around_narrow(model: ir.Model, kept: set[ir.Node]) -> None:
    """Put float32 casts around the `kept` nodes, and around those that have no kernel for float64."""
    kernels = Kernels(model.opset_imports)
    for graph in list(model.graphs()):
        for node in list(graph):
            narrow = every_port(node) if node in kept else kernels.float_only(node)
            for index, value in enumerate(node.inputs):
                if value is not None and _is_wide(value, narrow.inputs.get(index)):
                    cast = ir.node("Cast", [value], {"to": ir.DataType.FLOAT})
                    cast.outputs[0].type = ir.TensorType(ir.DataType.FLOAT)
                    graph.insert_before(node, cast)
                    node.replace_input_with(index, cast.outputs[0])
            for index, value in enumerate(node.outputs):
                if value.name and _is_wide(value, narrow.outputs.get(index)):  # no name: left out
                    _widen_after(graph, node, value)


def _is_wide(value: ir.Value, certain: bool | None) -> bool:
    """Whether a value at a port for float32 is float64; `certain`: it is real even if its type is unknown."""
    if certain is None:
        return False
    return value.dtype == ir.DataType.DOUBLE if value.dtype is not None else certain


def _widen_after(graph: ir.Graph, node: ir.Node, value: ir.Value) -> None:
    """Let `node` give float32 and cast it, so that everyone behind sees what they saw."""
    uses = list(value.uses())
    cast = ir.node("Cast", [value], {"to": ir.DataType.DOUBLE})
    wide = cast.outputs[0]
    wide.type, wide.shape = ir.TensorType(ir.DataType.DOUBLE), value.shape
    wide.name, value.name = value.name, f"{value.name}:narrow"
    value.type = ir.TensorType(ir.DataType.FLOAT)
    graph.insert_after(node, cast)
    _replace(graph, uses, value, wide)
