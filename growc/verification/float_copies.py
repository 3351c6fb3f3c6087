"""Copies of a model in other float types, for onnxruntime.

A copy is the same graph with every float32 (or 16-bit) tensor, attribute and declared type replaced. A Cast
that narrows inputs or activations still rounds in a copy: it returns the narrow type, and a second Cast
behind it widens the result. Two kinds of operators keep the old type, between casts: those that onnxruntime
has no float64 kernel for, and those that compute integers from nothing but sizes. An example of the latter
are relative position buckets, which a last bit moves. Weights are converted one at a time, on the way from
file to file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import onnx.defs
import onnx_ir as ir
from onnx_ir.passes.common import ShapeInferencePass

from growc.dialects.onnx.capture.state_pairs import moving_values
from growc.dialects.onnx.files.element_types import (
    PLACES,
    Change,
    Substitutes,
    cast_behind,
    cast_in_front,
    cast_to,
    cast_where_used,
    narrows,
    retype,
)
from growc.dialects.onnx.files.load import in_one_folder, load_model
from growc.errors.diagnostic import GrowError
from growc.system.workshop import scratch_folder
from growc.verification.ort_kernels import Kernels, every_port
from growc.verification.ort_session import Session

WIDER: Substitutes = {ir.DataType.FLOAT: ir.DataType.DOUBLE}
SINGLE: Substitutes = {ir.DataType.FLOAT16: ir.DataType.FLOAT, ir.DataType.BFLOAT16: ir.DataType.FLOAT}

EMULATED: Substitutes = {ir.DataType.BFLOAT16: ir.DataType.FLOAT}
"""The types of a copy that rounds all its results as the model does, operator by operator."""

SAME: Substitutes = {kind: kind for kind in PLACES if kind is not None}
"""The types of a copy that has other weights, and is otherwise the model."""


@contextlib.contextmanager
def runnable(model: Path) -> Iterator[Path]:
    """Yield a path that onnxruntime's CPU kernels can run: the model's own, if they can.

    If they lack its bfloat16, the path is that of a copy, which computes in float32 and rounds every result
    that is bfloat16 in the model.
    """
    if ir.DataType.BFLOAT16 not in float_types(model) or _loads(model):
        yield Path(model)
        return
    with scratch_folder() as folder:
        yield write_copy(model, folder / "single.onnx", EMULATED)


def _loads(model: Path) -> bool:
    """Whether onnxruntime has kernels for a model with bfloat16. It takes and returns no bfloat16."""
    graph = load_model(model).graph
    if any(port.dtype == ir.DataType.BFLOAT16 for port in (*graph.inputs, *graph.outputs)):
        return False
    try:
        with Session(model, optimised=False, lean=True):
            return True
    except GrowError:
        return False


def float_types(model: Path) -> frozenset[ir.DataType]:
    """Return the float types of a model's weights, inputs and casts. Raises GrowError (G310)."""
    dtypes: set[ir.DataType | None] = set()
    loaded = load_model(model)
    for graph in loaded.graphs():
        dtypes.update(value.dtype for value in (*graph.inputs, *graph.initializers.values()))
    for node in loaded.graph.all_nodes():
        dtypes.update(value.dtype for value in node.outputs)
        dtypes.add(cast_to(node))
    return frozenset(dtype for dtype in dtypes if dtype is not None and dtype.is_floating_point())


def copy_bytes(model: Path, types: Substitutes) -> int:
    """Return the size in bytes of a copy's weights. Raises GrowError (G310)."""
    weights = [value for graph in load_model(model).graphs() for value in graph.initializers.values()]
    return sum(
        int(weight.const_value.size * types.get(weight.dtype, weight.dtype).itemsize)
        for weight in weights
        if weight.const_value is not None and weight.dtype is not None
    )


def write_copy(model: Path, target: Path, types: Substitutes, change: Change | None = None) -> Path:
    """Write `model` with its float types replaced to `target`, weights beside it as external data.

    `change` maps every weight of a replaced type; without it the values stay. Inputs keep their type, except
    bfloat16, which cannot be fed. Outputs have the new type. Raises GrowError (G310) for a model that is no
    ONNX file; OSError if there is no space.
    """
    ir.save(_copied(inferred(model), types, change), target, external_data=target.name + ".data")
    return target


def widened(model: Path) -> tuple[bytes, Path]:
    """Return a float64 copy whose weights stay in the files of `model`, and the folder of these files.

    The copy casts each weight where it is used. Raises GrowError (G310).
    """
    loaded = inferred(model)
    stored = {
        value: value.const_value
        for value in loaded.graph.initializers.values()
        if isinstance(value.const_value, ir.ExternalTensor) and value.dtype in WIDER
    }
    cast_where_used(_copied(loaded, WIDER, None).graph, stored, ir.DataType.DOUBLE)
    return in_one_folder(ir.to_proto(loaded), model)


def _copied(loaded: ir.Model, types: Substitutes, change: Change | None) -> ir.Model:
    """Replace the model's float types, in place."""
    discrete = _discrete(loaded.graph)
    kept = discrete if types is WIDER else set()
    rounding = _rounding_casts(loaded, types)
    retype(loaded, types, None if change is None else _but(change, discrete), kept | rounding)
    for cast in rounding:
        assert isinstance(cast.graph, ir.Graph)
        narrow = cast_to(cast)
        assert narrow is not None
        cast_behind(cast.graph, cast, cast.outputs[0], narrow, types[narrow])
    if types is WIDER:
        _cast_around_narrow(loaded, kept)
    return loaded


def _but(change: Change, discrete: set[ir.Node]) -> Change:
    """Return the same change, without the operands of nodes that integers are computed from."""
    names = {value.name for node in discrete for value in node.inputs if value is not None}
    return lambda name, array: array if name in names else change(name, array)


def _rounding_casts(model: ir.Model, types: Substitutes) -> set[ir.Node]:
    """Return the casts that round in a copy as in the model; add one behind each node that rounds by itself.

    Values computed from weights alone are rounded only if the copy computes everything as the model does.
    """
    casts: set[ir.Node] = set()
    moving = moving_values(model.graph)
    for graph in list(model.graphs()) if types is not SAME else []:
        for node in list(graph):
            fed = graph is not model.graph or any(output in moving for output in node.outputs)
            for value in node.outputs if types is EMULATED or (fed and narrows(node)) else ():
                kind = value.dtype
                if kind is not None and kind in types:
                    cast = cast_to(node) is not None
                    casts.add(node if cast else cast_behind(graph, node, value, kind, kind))
    return casts


def _discrete(graph: ir.Graph) -> set[ir.Node]:
    """Return the nodes that compute real numbers from sizes alone, for nothing but integers or booleans."""
    moving = moving_values(graph)
    nodes: set[ir.Node] = set()
    for node in reversed(list(graph)):
        uses = [use.node for output in node.outputs for use in output.uses()]
        still = not any(output in moving or output.is_graph_output() for output in node.outputs)
        if still and uses and all(user in nodes or not _gives_reals(user) for user in uses):
            nodes.add(node)
    return {node for node in nodes if _gives_reals(node)}


def _gives_reals(node: ir.Node) -> bool:
    """Whether a result of the node may hold real numbers."""
    return any(output.dtype is None or output.dtype.is_floating_point() for output in node.outputs)


def _cast_around_narrow(model: ir.Model, kept: set[ir.Node]) -> None:
    """Put float32 casts around the `kept` nodes, and around those without a kernel for float64."""
    kernels = Kernels(model.opset_imports)
    for graph in list(model.graphs()):
        for node in list(graph):
            narrow = every_port(node) if node in kept else kernels.float_only(node)
            for index, value in enumerate(node.inputs):
                if value is not None and _is_wide(value, narrow.inputs.get(index)):
                    cast_in_front(graph, node, index, ir.DataType.FLOAT)
            for index, value in enumerate(node.outputs):
                if value.name and _is_wide(value, narrow.outputs.get(index)):  # absent results have no name
                    cast_behind(graph, node, value, ir.DataType.FLOAT, ir.DataType.DOUBLE)


def _is_wide(value: ir.Value, certain: bool | None) -> bool:
    """Whether a value at a port for float32 is float64. `certain`: it is real even if its type is unknown."""
    if certain is None:
        return False
    return value.dtype == ir.DataType.DOUBLE if value.dtype is not None else certain


def inferred(model: Path) -> ir.Model:
    """Return the ONNX file `model` with inferred types and shapes. Raises GrowError (G310)."""
    find = ShapeInferencePass(
        check_type=False, strict_mode=False
    )  # infer as much as possible for unusual operators
    loaded = find(load_model(model)).model
    for node in loaded.graph.all_nodes():  # the pass confuses sequences with their elements
        operand_type = node.inputs[0].type if node.inputs and node.inputs[0] is not None else None
        for formal, value in zip(_formals(loaded, node), node.outputs, strict=False):
            may = [kind.startswith("seq(") for kind in formal.types]
            if value.dtype is not None and (
                all(may) or (any(may) and isinstance(operand_type, ir.SequenceType))
            ):
                value.type = ir.SequenceType(ir.TensorType(value.dtype))
                value.shape = None
    return loaded


def _formals(model: ir.Model, node: ir.Node) -> list[onnx.defs.OpSchema.FormalParameter]:
    """Return ONNX's description of a node's outputs; nothing for operators that ONNX lacks."""
    version = model.opset_imports.get(node.domain, 1)
    if not onnx.defs.has(node.op_type, version, node.domain):
        return []
    return list(onnx.defs.get_schema(node.op_type, version, node.domain).outputs)
