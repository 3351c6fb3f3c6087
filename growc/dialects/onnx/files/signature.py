"""The role of each input of a model, derived from the graph that it flows into, never from its name.

Needs: an ONNX file. Gives: one `Input` for each input without a default. An input is

1. `ids` if it picks rows of a table (through layout operators and constant offsets); the tables give
   the bounds;
2. `positions` if it ends in a sine or cosine, or tells where something is written;
3. `data` if it meets a weight in a contraction, and any real input that is nothing else;
4. `state` if it is real and an output carries it on, or new values are appended to it (a key/value cache);
5. `bias` if it is real and is only ever added to a softmax's operand;
6. `switch` if it is one number that decides which branch of an If runs;
7. `mask` otherwise: integers and booleans that are not looked up, and reals that are compared or multiplied
   with a huge constant.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.dialects.onnx.capture.state_pairs import GROWING, Carry, moving_values, state_pairs
from growc.dialects.onnx.files.bodies import with_bodies_inlined
from growc.dialects.onnx.files.data_flow import (
    alone,
    compares,
    elementwise,
    linear,
    meets_weight,
    moves,
    origin,
    others,
    reach,
    real_function,
    scalar,
    shift,
)
from growc.dialects.onnx.files.load import load_model
from growc.dialects.onnx.operators.table import has, treatment_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.ir.traits import DEQUANTISE, JOIN, SAME
from growc.ir.walk import walk

_LARGE = 1e4
"""The least absolute value of a constant that closes attention: an input multiplied with it is a mask."""

_LOOKUPS = {
    ("", "Gather", 1): (0, "axis"),
    ("", "GatherElements", 1): (0, "axis"),
    ("", "GatherND", 1): (0, ""),
    ("", "RotaryEmbedding", 3): (1, ""),
    ("com.microsoft", "RotaryEmbedding", 1): (2, ""),
    ("com.microsoft", "GatherBlockQuantized", 1): (0, "gather_axis"),
    ("com.microsoft", "EmbedLayerNormalization", 0): (2, ""),
    ("com.microsoft", "EmbedLayerNormalization", 1): (4, ""),
    ("com.microsoft", "EmbedLayerNormalization", 7): (3, ""),
}
"""(domain, operator, index operand): the operand that is indexed, and the attribute with its axis."""

LARGEST = 1 << 31
"""The most elements that an input may have."""

_BIASES = {("", "Attention", 3), ("com.microsoft", "MultiHeadAttention", 5)}
_SCATTERS = {"ScatterND", "ScatterElements", "Scatter"}


class Role(Enum):
    """The role of an input; the module's docstring defines each."""

    IDS = "ids"
    POSITIONS = "positions"
    MASK = "mask"
    BIAS = "bias"
    STATE = "state"
    DATA = "data"
    SWITCH = "switch"


@dataclass(frozen=True)
class Input:
    """One input of a model.

    dtype: the type to feed (float32 stands for bfloat16). dims: for each axis its size, its symbol (possibly
    a sum such as "past + seq"), or None if it has no name. low, high: for ids the half-open range that stays
    inside every table. time: the axis along which a state grows, or None.
    """

    name: str
    dtype: np.dtype[Any]
    dims: tuple[int | str | None, ...]
    role: Role
    low: int = 0
    high: int = 2
    time: int | None = None

    @property
    def real(self) -> bool:
        """Whether it holds real numbers."""
        return self.dtype.kind == "f"


def read_signature(model: Path) -> tuple[Input, ...]:
    """Return the inputs of the ONNX file `model` that must be fed, in its order.

    Raises GrowError: G310 for a file that is no ONNX model, G403 for an input that cannot be fed.
    """
    return signature_of(load_model(model).graph)


def signature_of(graph: ir.Graph) -> tuple[Input, ...]:
    """Return the inputs of a graph that must be fed. Inlines its bodies in place. Raises GrowError (G403)."""
    graph = with_bodies_inlined(graph)
    moving, states = moving_values(graph), state_pairs(graph)
    return tuple(
        _describe(value, moving, states.get(value))
        for value in graph.inputs
        if value.name not in graph.initializers
    )


def _unfeedable(name: str, reason: str) -> GrowError:
    return GrowError(Diagnostic("G403", f"input `{name}` {reason}, which growc cannot feed"))


def _is_size(dim: int | ir.SymbolicDim) -> bool:
    return not isinstance(dim, int) or dim >= 0


def _describe(value: ir.Value, moving: set[ir.Value], state: Carry | None) -> Input:
    name = str(value.name)
    if not isinstance(value.type, ir.TensorType) or value.dtype is None or value.shape is None:
        raise _unfeedable(name, "is no tensor of known rank")
    if value.dtype == ir.DataType.STRING:
        raise _unfeedable(name, "holds text")
    if prod(d for d in value.shape if isinstance(d, int)) > LARGEST or not all(
        _is_size(d) for d in value.shape
    ):
        raise _unfeedable(name, f"has the shape {value.shape}")
    dtype = np.dtype(np.float32 if value.dtype == ir.DataType.BFLOAT16 else value.dtype.numpy())
    dims = tuple(dim if isinstance(dim, int) else dim.value for dim in value.shape)
    if all(dim == 1 for dim in dims) and _switches(value):
        return Input(name, dtype, dims, Role.SWITCH)
    if dtype.kind == "f":
        role, time = _real_role(value, moving) if state is None else (Role.STATE, _growing_axis(value, state))
        return Input(name, dtype, dims, role, time=time)
    ranges = list(_ranges(value))
    if ranges:
        low = max(bounds[0] for bounds in ranges)
        return Input(name, dtype, dims, Role.IDS, low, max(low + 1, min(bounds[1] for bounds in ranges)))
    return Input(name, dtype, dims, _discrete_role(value, moving))


def _switches(value: ir.Value) -> bool:
    """Whether a value decides which branch of an If runs."""
    reached = reach(value, lambda node, slot: moves(node, slot) or elementwise(node))
    return any(node.op_type == "If" and slot == 0 for node, slot in reached)


def _discrete_role(value: ir.Value, moving: set[ir.Value]) -> Role:
    for node, slot in reach(value, lambda node, slot: linear(node, slot) and alone(node, moving)):
        if node.op_type in ("Cos", "Sin") or (node.op_type in _SCATTERS and slot == 1):
            return Role.POSITIONS
    direct = reach(value, lambda node, slot: real_function(node, slot) and alone(node, moving))
    return Role.DATA if any(meets_weight(node, slot) for node, slot in direct) else Role.MASK


def _real_role(value: ir.Value, moving: set[ir.Value]) -> tuple[Role, int | None]:
    direct = list(reach(value, lambda node, slot: real_function(node, slot) and alone(node, moving)))
    if any(meets_weight(node, slot) for node, slot in direct):
        return Role.DATA, None
    for node, slot in direct:
        to_bool = has(node, SAME) and node.attributes.get_int("to", 0) == ir.DataType.BOOL
        if to_bool or compares(node):
            return Role.MASK, None
        closing = (abs(scalar(other) or 0.0) >= _LARGE for other in others(node, slot))
        if treatment_of(node) in ("multiply", "select") and any(closing):
            return Role.MASK, None
    for node, slot in reach(value, lambda node, slot: moves(node, slot) and alone(node, moving)):
        if has(node, JOIN) and slot == 0 and any(other in moving for other in others(node, slot)):
            return Role.STATE, _time_axis(value, node)
    ends = {
        "Softmax" if (node.domain, node.op_type, slot) in _BIASES else node.op_type
        for node, slot in reach(value, real_function)
        if not real_function(node, slot)
    }
    return (Role.BIAS if ends == {"Softmax"} else Role.DATA), None


def _growing_axis(value: ir.Value, state: Carry) -> int | None:
    """Return the axis along which the output that carries a state on is longer, or None."""
    return _time_axis(value, state.by) if state.by is not None and state.by.op_type in GROWING else None


def _time_axis(value: ir.Value, concat: ir.Node) -> int | None:
    """Return the axis along which a state grows: its only symbolic one behind the first, or the Concat's."""
    assert value.shape is not None
    symbolic = [axis for axis, dim in enumerate(value.shape) if axis and not isinstance(dim, int)]
    if len(symbolic) == 1:
        return symbolic[0]
    axis = concat.attributes.get_int("axis", 0) % len(value.shape)
    return axis if axis in symbolic else None


def _ranges(start: ir.Value) -> Iterator[tuple[int, int]]:
    """Yield the half-open range of ids inside every table that `start` indexes."""

    def behind(place: tuple[ir.Value, int]) -> Iterator[tuple[ir.Value, int]]:
        value, offset = place
        for node, slot in value.uses():
            if (more := shift(node, slot)) is not None:
                yield from ((output, offset + more) for output in node.outputs)

    for value, offset in walk([(start, 0)], behind):
        for node, slot in value.uses():
            if (rows := _rows(node, slot)) is not None:  # rows are also counted from the end
                yield max(0, -rows - offset), rows - offset


def _rows(node: ir.Node, slot: int) -> int | None:
    """Return the size of the axis that operand `slot` indexes, 2 if unknown; None if it indexes nothing."""
    if node.op_type == "OneHot" and slot == 0:
        return int(scalar(node.inputs[1]) or 2)
    lookup = _LOOKUPS.get((node.domain, node.op_type, slot))
    if lookup is None:
        return None
    operand, attribute = lookup
    axis = node.attributes.get_int(attribute, 0) if attribute else 0
    table = node.inputs[operand] if operand < len(node.inputs) else None
    if table is None:
        return None
    if table.shape is None:
        table = origin(table, SAME, DEQUANTISE)
    tensor = ir.convenience.get_const_tensor(table)
    shape = table.shape if tensor is None else tensor.shape
    size = shape[axis] if shape is not None and -len(shape) <= axis < len(shape) else None
    return size if isinstance(size, int) and size > 0 else 2
