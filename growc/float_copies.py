"""Copies of a model in other float types, for onnxruntime.

A copy is the same graph with every float32 (or 16-bit) tensor, attribute and declared type replaced. What a
Cast takes from the numbers that are fed it takes in a copy, too: it still gives the narrow type, and a second
one behind it makes that wide. Two kinds of operator keep the old type, between casts: those that onnxruntime
has no float64 kernel for, and those that compute integers from nothing but sizes (relative position buckets,
which a last bit moves). Weights are converted one at a time, on the way from file to file.
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

from growc.diagnostic import GrowError
from growc.dialects.onnx.states import moving_values
from growc.inferred import inferred
from growc.kernels import Kernels, every_port
from growc.session import Session
from growc.signature import load_model

Array = NDArray[Any]
Types = Mapping[ir.DataType, ir.DataType]
Change = Callable[[str, Array], Array]
"""What becomes of a weight, by its name."""

WIDER: Types = {ir.DataType.FLOAT: ir.DataType.DOUBLE}
SINGLE: Types = {ir.DataType.FLOAT16: ir.DataType.FLOAT, ir.DataType.BFLOAT16: ir.DataType.FLOAT}

EMULATED: Types = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}
"""A copy with these types rounds all that it computes as the model does, operator by operator."""

_PLACES: Mapping[ir.DataType | None, int] = {
    ir.DataType.BFLOAT16: 7,
    ir.DataType.FLOAT16: 10,
    ir.DataType.FLOAT: 23,
    ir.DataType.DOUBLE: 52,
}

SAME: Types = {kind: kind for kind in _PLACES if kind is not None}
"""A copy with these types has other weights, and is the model in all else."""

_TYPE_ATTRIBUTES = ("to", "dtype", "output_datatype")


@contextlib.contextmanager
def runnable(model: Path) -> Iterator[Path]:
    """A path that onnxruntime's CPU kernels can run: the model's own, if they can.

    Where they do not know its bfloat16 it is that of a copy that computes in float32, and rounds every result
    that is bfloat16 in the model.
    """
    if ir.DataType.BFLOAT16 not in float_types(model) or _loads(model):
        yield Path(model)
        return
    with tempfile.TemporaryDirectory(prefix="growc-") as folder:
        yield write_copy(model, Path(folder) / "single.onnx", EMULATED)


def _loads(model: Path) -> bool:
    """Whether onnxruntime has kernels for a model with bfloat16, which it neither takes nor gives."""
    graph = load_model(model).graph
    if any(port.dtype == ir.DataType.BFLOAT16 for port in (*graph.inputs, *graph.outputs)):
        return False
    try:
        with Session(model, optimised=False, lean=True):
            return True
    except GrowError:
        return False


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


def copy_bytes(model: Path, types: Types) -> int:
    """The size of the weights of a copy. Raises GrowError (G310)."""
    weights = [value for graph in load_model(model).graphs() for value in graph.initializers.values()]
    return sum(
        int(weight.const_value.size * types.get(weight.dtype, weight.dtype).itemsize)
        for weight in weights
        if weight.const_value is not None and weight.dtype is not None
    )


def write_copy(model: Path, target: Path, types: Types, change: Change | None = None) -> Path:
    """Write `model` with its float types replaced to `target`, weights beside it as external data.

    `change` maps every weight of a replaced type; without it the values stay. Inputs keep their type (but
    bfloat16, which cannot be fed); outputs have the new one.
    Raises GrowError (G310) for a model that is no ONNX file; OSError where there is no space.
    """
    loaded = inferred(model)
    discrete = _discrete(loaded.graph)
    kept = discrete if types is WIDER else set()
    rounding = _rounding_casts(loaded, types)
    _retype(loaded, types, None if change is None else _but(change, discrete), kept | rounding)
    for cast in rounding:
        assert isinstance(cast.graph, ir.Graph)
        narrow = ir.DataType(cast.attributes.get_int("to", 0))
        _cast_behind(cast.graph, cast, cast.outputs[0], narrow, types[narrow])
    if types is WIDER:
        _cast_around_narrow(loaded, kept)
    ir.save(loaded, target, external_data=target.name + ".data")
    return target


def _but(change: Change, discrete: set[ir.Node]) -> Change:
    """The same change, of all but what integers are computed from."""
    names = {value.name for node in discrete for value in node.inputs if value is not None}
    return lambda name, array: array if name in names else change(name, array)


def _rounding_casts(model: ir.Model, types: Types) -> set[ir.Node]:
    """The casts that round in a copy as in the model; one more behind every operator that rounds by itself.

    What is computed from weights alone is rounded only where a copy computes all as the model does.
    """
    found: set[ir.Node] = set()
    moving = moving_values(model.graph)
    for graph in list(model.graphs()) if types is not SAME else []:
        for node in list(graph):
            fed = graph is not model.graph or any(output in moving for output in node.outputs)
            for value in node.outputs if types is EMULATED or (fed and _narrows(node)) else ():
                kind = value.dtype
                if kind is not None and kind in types:
                    cast = node.op_type == "Cast"
                    found.add(node if cast else _cast_behind(graph, node, value, kind, kind))
    return found


def _narrows(node: ir.Node) -> bool:
    """Whether it makes real numbers of some type ones of fewer places."""
    given = node.inputs[0] if node.domain == "" and node.op_type in ("Cast", "CastLike") else None
    return given is not None and places_of(given.dtype) > places_of(node.outputs[0].dtype) > 0


def places_of(kind: ir.DataType | None) -> int:
    """The binary places behind the point of a real type that models compute in; 0 of any other."""
    return _PLACES.get(kind, 0)


def _retype(model: ir.Model, types: Types, change: Change | None, kept: set[ir.Node]) -> None:
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
            if outer and old is not None and value.dtype != old:
                _cast_input(graph, value, old)


def _retype_value(value: ir.Value, types: Types, change: Change | None) -> None:
    if value.dtype is not None and value.dtype in types:
        dtype = types[value.dtype]
        if value.const_value is not None and (change is not None or dtype != value.dtype):
            value.const_value = _converted(value.const_value, str(value.name), dtype, change)
        if dtype != value.dtype:
            value.type = _of_elements(value.type, dtype)


def _of_elements(kind: ir.TypeProtocol | None, dtype: ir.DataType) -> ir.TypeProtocol:
    """A type with other elements: of tensors, or of sequences of them."""
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


def _retype_attributes(node: ir.Node, types: Types, change: Change | None) -> None:
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
            value = _converted(tensor, str(node.outputs[0].name), types[tensor.dtype], change).numpy()
            changed.append(ir.AttrTensor(attribute.name, ir.Tensor(value)))
    single = types.get(ir.DataType.FLOAT, ir.DataType.FLOAT)
    if single != ir.DataType.FLOAT and node.op_type == "ConstantOfShape" and "value" not in node.attributes:
        changed.append(ir.AttrTensor("value", ir.Tensor(np.zeros(1, dtype=single.numpy()))))
    if single != ir.DataType.FLOAT and node.op_type == "Constant":
        for name in ("value_float", "value_floats"):
            if (held := node.attributes.pop(name, None)) is not None:
                changed.append(ir.AttrTensor("value", ir.Tensor(np.array(held.value, dtype=single.numpy()))))
    for attribute in changed:
        node.attributes.add(attribute)


def _cast_input(graph: ir.Graph, value: ir.Value, old: ir.DataType) -> None:
    """Give an input its old type back, behind a cast; two casts round to bfloat16, which cannot be fed."""
    uses = list(value.uses())
    wide = value.dtype
    assert wide is not None
    unfed = old == ir.DataType.BFLOAT16
    first = ir.node("Cast", [value], {"to": old if unfed else wide})
    casts = [first, ir.node("Cast", [first.outputs[0]], {"to": wide})] if unfed else [first]
    first.outputs[0].type, first.outputs[0].shape = ir.TensorType(old), value.shape
    seen = casts[-1].outputs[0]
    seen.name, seen.type, seen.shape = f"{value.name}:wide", ir.TensorType(wide), value.shape
    value.type = ir.TensorType(wide if unfed else old)
    if graph.num_nodes():
        graph.insert_before(graph[0], casts)
    else:
        graph.extend(casts)
    _replace(graph, uses, value, seen)


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
                    _cast_behind(graph, node, value, ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _is_wide(value: ir.Value, certain: bool | None) -> bool:
    """Whether a value at a port for float32 is float64; `certain`: it is real even if its type is unknown."""
    if certain is None:
        return False
    return value.dtype == ir.DataType.DOUBLE if value.dtype is not None else certain


def _cast_behind(
    graph: ir.Graph, node: ir.Node, value: ir.Value, own: ir.DataType, seen: ir.DataType
) -> ir.Node:
    """Let `node` give a result of its `own` type, and cast it to the type that everyone behind has `seen`."""
    uses = list(value.uses())
    cast = ir.node("Cast", [value], {"to": seen})
    made = cast.outputs[0]
    made.type, made.shape = ir.TensorType(seen), value.shape
    made.name, value.name = value.name, f"{value.name}:{node.op_type}"
    value.type = ir.TensorType(own)
    graph.insert_after(node, cast)
    _replace(graph, uses, value, made)
    return cast
