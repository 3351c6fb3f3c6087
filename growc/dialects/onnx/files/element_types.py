"""Changes of element types: of a model's tensors, attributes and declared types, with casts in between."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.algebra.indexmap import Array
from growc.dialects.onnx.operators.table import has
from growc.ir.traits import SAME

Substitutes = Mapping[ir.DataType, ir.DataType]
Change = Callable[[str, Array], Array]
"""The change of a weight: from its name and values to new values."""

PLACES: Mapping[ir.DataType | None, int] = {
    ir.DataType.BFLOAT16: 7,
    ir.DataType.FLOAT16: 10,
    ir.DataType.FLOAT: 23,
    ir.DataType.DOUBLE: 52,
}
"""The mantissa bits of the real types that models compute in."""

_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype")


def places_of(kind: ir.DataType | None) -> int:
    """Return the mantissa bits of a type; 0 for types that no model computes in."""
    return PLACES.get(kind, 0)


def cast_to(node: ir.Node) -> ir.DataType | None:
    """Return the target type of a Cast; None for any other operator."""
    return ir.DataType(node.attributes.get_int("to", 0)) if node.op_type == "Cast" else None


def narrows(node: ir.Node) -> bool:
    """Whether a node converts real numbers to a type with fewer mantissa bits."""
    operand = node.inputs[0] if has(node, SAME) else None
    return operand is not None and places_of(operand.dtype) > places_of(node.outputs[0].dtype) > 0


def retype(model: ir.Model, types: Substitutes, change: Change | None, kept: set[ir.Node]) -> None:
    """Replace types everywhere except in the attributes of the `kept` nodes."""
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
            if outer and old is not None and value.dtype != old:
                _cast_input(graph, value, old)


def _retype_value(value: ir.Value, types: Substitutes, change: Change | None) -> None:
    if value.dtype is not None and value.dtype in types:
        dtype = types[value.dtype]
        if value.const_value is not None and (change is not None or dtype != value.dtype):
            value.const_value = _converted(value.const_value, str(value.name), dtype, change)
        if dtype != value.dtype:
            value.type = _of_elements(value.type, dtype)


def _of_elements(kind: ir.TypeProtocol | None, dtype: ir.DataType) -> ir.TypeProtocol:
    """Return a type with another element type: of tensors, or of sequences of them."""
    if isinstance(kind, ir.SequenceType | ir.OptionalType):
        return type(kind)(_of_elements(kind.elem_type, dtype))
    return ir.TensorType(dtype)


def _converted(
    tensor: ir.TensorProtocol, name: str, dtype: ir.DataType, change: Change | None
) -> ir.LazyTensor:
    def convert() -> ir.TensorProtocol:
        array = tensor.numpy()
        return ir.Tensor((change(name, array) if change else array).astype(dtype.numpy()), name=tensor.name)

    return ir.LazyTensor(convert, dtype=dtype, shape=ir.Shape(list(tensor.shape.numpy())), name=tensor.name)


def _retype_attributes(node: ir.Node, types: Substitutes, change: Change | None) -> None:
    """Change types in attributes, constants in attributes, and constants that are float32 by default."""
    changed = []
    for attribute in node.attributes.values():
        names_type = node.domain == "" and attribute.name in _TYPE_ATTRIBUTES
        if names_type and attribute.type == ir.AttributeType.INT:
            dtype = ir.DataType(attribute.as_int())
            if dtype in types:
                changed.append(ir.AttrInt64(attribute.name, types[dtype]))
        elif attribute.type == ir.AttributeType.TENSOR and attribute.as_tensor().dtype in types:
            tensor = attribute.as_tensor()
            value = _converted(tensor, str(node.outputs[0].name), types[tensor.dtype], change).numpy()
            changed.append(ir.AttrTensor(attribute.name, ir.Tensor(value)))
    single = types.get(ir.DataType.FLOAT, ir.DataType.FLOAT)
    if single != ir.DataType.FLOAT and node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        changed.append(ir.AttrTensor("value", ir.Tensor(np.zeros(1, dtype=single.numpy()))))
    if single != ir.DataType.FLOAT and node.op_type == "Constant":
        for name in ("value_float", "value_floats"):
            if (number := node.attributes.pop(name, None)) is not None:
                changed.append(
                    ir.AttrTensor("value", ir.Tensor(np.array(number.value, dtype=single.numpy())))
                )
    for attribute in changed:
        node.attributes.add(attribute)


def _cast_input(graph: ir.Graph, value: ir.Value, old: ir.DataType) -> None:
    """Give an input its old type back, behind a cast. bfloat16 cannot be fed, so two casts round to it."""
    uses = list(value.uses())
    wide = value.dtype
    assert wide is not None
    unfed = old == ir.DataType.BFLOAT16
    first = ir.node("Cast", [value], {"to": old if unfed else wide})
    casts = [first, ir.node("Cast", [first.outputs[0]], {"to": wide})] if unfed else [first]
    first.outputs[0].type, first.outputs[0].shape = ir.TensorType(old), value.shape
    cast_input = casts[-1].outputs[0]
    cast_input.name, cast_input.type, cast_input.shape = (
        f"{value.name}:wide",
        ir.TensorType(wide),
        value.shape,
    )
    value.type = ir.TensorType(wide if unfed else old)
    if graph.num_nodes():
        graph.insert_before(graph[0], casts)
    else:
        graph.extend(casts)
    _replace(graph, uses, value, cast_input)


def _replace(graph: ir.Graph, uses: Iterable[Any], old: ir.Value, new: ir.Value) -> None:
    """Let these uses of `old`, and the graph's outputs, read `new`."""
    for use in uses:
        use.node.replace_input_with(use.idx, new)
    for index, output in enumerate(graph.outputs):
        if output is old:
            graph.outputs[index] = new


def cast_behind(
    graph: ir.Graph, node: ir.Node, value: ir.Value, own: ir.DataType, seen: ir.DataType
) -> ir.Node:
    """Let `node` compute a result of its `own` type, and cast it to the type `seen` by all readers."""
    uses = list(value.uses())
    cast = ir.node("Cast", [value], {"to": seen})
    result = cast.outputs[0]
    result.type, result.shape = ir.TensorType(seen), value.shape
    result.name, value.name = value.name, f"{value.name}:{node.op_type}"
    value.type = ir.TensorType(own)
    graph.insert_after(node, cast)
    _replace(graph, uses, value, result)
    return cast


def cast_in_front(graph: ir.Graph, node: ir.Node, operand: int, dtype: ir.DataType) -> None:
    """Cast an operand of `node` in front of it."""
    cast = ir.node("Cast", [node.inputs[operand]], {"to": dtype})
    cast.outputs[0].type = ir.TensorType(dtype)
    graph.insert_before(node, cast)
    node.replace_input_with(operand, cast.outputs[0])


def cast_where_used(
    graph: ir.Graph, stored: Mapping[ir.Value, ir.ExternalTensor], dtype: ir.DataType
) -> None:
    """Replace weights by casts of stored tensors, each cast in front of the weight's first reader."""
    places = {node: place for place, node in enumerate(graph)}
    nodes = list(places)
    for value, tensor in stored.items():
        users = [places.get(use.node, 0) for use in value.uses()]  # uses in bodies have no place
        name = str(value.name)
        own = ir.Value(name=f"{name}.stored", type=ir.TensorType(tensor.dtype), const_value=tensor)
        cast = ir.node("Cast", [own], {"to": dtype})
        cast.outputs[0].name, cast.outputs[0].type, cast.outputs[0].shape = name, value.type, value.shape
        value.replace_all_uses_with(cast.outputs[0], replace_graph_outputs=True)
        del graph.initializers[name]
        graph.initializers[f"{name}.stored"] = own
        graph.insert_before(nodes[min(users, default=0)], cast)
