"""Result types of operators that onnx cannot infer: onnxruntime's own, and neutral ones.

Needs: element type and size of every operand at one sample point. Gives: those of the results; None if they
are not known. Raises ValueError if sizes do not fit.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import numpy as np
import onnx


class Type(NamedTuple):
    """An element type (onnx's number), and the size of every axis."""

    element: int
    dims: tuple[int, ...]


OperandTypes = Sequence[Type]
Attributes = Mapping[str, Any]


def results(op: str, operands: Sequence[Type | None], attributes: Attributes) -> OperandTypes:
    """Return the types of a node's results, as many as are known. Raises ValueError if sizes do not fit."""
    rule = _RULES.get(op)
    known_operands = [o for o in takewhile(lambda o: o is not None, operands) if o is not None]
    try:
        return rule(known_operands, attributes) if rule else ()
    except (IndexError, KeyError):  # an operand's type is not known, or an attribute is missing
        return ()


def _ratio(whole: int, parts: int) -> int:
    if parts < 1 or whole % parts:
        raise ValueError(f"{whole} channels are split among {parts} heads")
    return whole // parts


def _first(
    dims: Callable[[tuple[int, ...]], tuple[int, ...]] = tuple, element: int = 0
) -> Callable[[OperandTypes, Attributes], OperandTypes]:
    """Return the rule for a result whose sizes are those of the first operand, or follow from them.

    element: the result's type; if absent, that of the attribute `to`, or else of the operand.
    """

    def rule(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
        kind = element or attributes.get("to", operands[0].element)
        return [Type(kind, dims(operands[0].dims))]

    return rule


def _split_heads(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    element, dims = operands[0]
    if len(dims) == 4:
        return operands[:1]
    batch, length, width = dims
    heads = attributes["num_heads"]
    return [Type(element, (batch, heads, length, _ratio(width, heads)))]


def _split_packed(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    element, (batch, length, width) = operands[0]
    heads, kv_heads = attributes["num_heads"], attributes["kv_num_heads"]
    counts = (heads, kv_heads, kv_heads)
    widths = attributes.get("widths") or [c * _ratio(width, sum(counts)) for c in counts]
    if sum(widths) != width:
        raise ValueError(f"parts of {widths} make no {width}")
    return [Type(element, (batch, c, length, _ratio(w, c))) for c, w in zip(counts, widths, strict=True)]


def _unfold(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    (element, dims), heads = operands[0], attributes["num_heads"]
    sizes = [*dims[:-1], _ratio(dims[-1], heads)]
    sizes[attributes["axis"]] = heads
    return [Type(element, tuple(sizes))]


def _repeat(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    (element, dims), axis = operands[0], attributes["axis"]
    return [Type(element, (*dims[:axis], dims[axis] * attributes["times"], *dims[axis + 1 :]))]


def _split_bias(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    element, (width,) = operands[0]
    parts = [(heads, channels) for _, (_, heads, _, channels) in operands[1:4]]
    if sum(heads * channels for heads, channels in parts) != width:
        raise ValueError(f"parts of {parts} make no {width}")
    return [Type(element, (heads, 1, channels)) for heads, channels in parts]


def _unpack(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    element, (batch, length, heads, _, channels) = operands[0]
    if heads != attributes["num_heads"]:
        raise ValueError(f"{heads} heads are said to be {attributes['num_heads']}")
    return [Type(element, (batch, heads, length, channels))]


def _stack(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    return [Type(operands[0].element, (len(operands), *operands[0].dims))]


def _attention(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    (element, (batch, heads, length, depth)), (_, (_, kv_heads, keys, width)) = operands[0], operands[1]
    if depth != width or heads % kv_heads:
        raise ValueError(f"queries of {heads} x {depth} meet keys of {kv_heads} x {width}")
    return [
        Type(element, (batch, heads, length, operands[2].dims[3])),
        Type(element, (batch, heads, length, keys)),
    ]


def _merge_heads(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    element, (batch, heads, length, channels) = operands[0]
    return [Type(element, (batch, length, heads * channels))]


def _fused_matmul(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    pairs = zip(operands[:2], "AB", strict=True)
    a, b = ([o.dims[i] for i in turned(len(o.dims), attributes, which)] for o, which in pairs)
    lead = np.broadcast_shapes(a[:-2], b[:-2])
    if a[-1] != b[-2 if len(b) > 1 else -1]:
        raise ValueError(f"{a[-1]} meets {b[-2 if len(b) > 1 else -1]}")
    return [Type(operands[0].element, (*lead, *a[-2:-1], *(b[-1:] if len(b) > 1 else ())))]


def turned(rank: int, attributes: Attributes, which: str) -> list[int]:
    """Return the axes of an operand (A or B) of FusedMatMul in the order in which they are multiplied."""
    order = list(range(rank))
    if rank > 1 and attributes.get(f"transBatch{which}"):
        order = [*order[1:-1], order[0], order[-1]]
    if rank > 1 and attributes.get(f"trans{which}"):
        order[-2:] = order[:-3:-1]
    return order


def _fourier(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    """The types of a Fourier transform.

    `sizes`: of the transformed axes, 0 if not given. `half`: 1 if half of the last axis is kept, -1 if the
    last axis comes from such a half.
    """
    dims, half = list(operands[0].dims), attributes["half"]
    for axis, size in zip(attributes["axes"], attributes["sizes"], strict=True):
        dims[axis] = size or dims[axis]
    last = attributes["axes"][-1]
    if half > 0:
        dims[last] = dims[last] // 2 + 1
    elif half < 0 and not attributes["sizes"][-1]:
        dims[last] = 2 * (dims[last] - 1)
    return [Type(attributes["to"], tuple(dims))]


def _of_two(operands: OperandTypes, attributes: Attributes) -> OperandTypes:
    return [Type(attributes["to"], np.broadcast_shapes(operands[0].dims, operands[1].dims))]


_RULES: dict[str, Callable[..., OperandTypes]] = {
    "LayerNormalization": _first(),  # onnxruntime has it in all opsets
    "SimplifiedLayerNormalization": _first(),
    "GroupNormalization": _first(),
    "com.microsoft::Gelu": _first(),
    "com.microsoft::FastGelu": _first(),
    "com.microsoft::QuickGelu": _first(),
    "com.microsoft::RotaryEmbedding": _first(),
    "com.microsoft::FusedMatMul": _fused_matmul,
    "com.microsoft::TransposeMatMul": _fused_matmul,
    "aten::complex": _of_two,
    "aten::conj": _first(),
    "aten::fft": _fourier,
    "aten::imag": _first(),
    "aten::polar": _of_two,
    "aten::to": _first(),
    "aten::view_as_complex": _first(lambda dims: dims[:-1]),
    "aten::view_as_real": _first(lambda dims: (*dims, 2)),
    "growc::Attention": _attention,
    "growc::Clip": _first(),
    "growc::HeadColumn": _first(lambda dims: (*dims, 1, 1)),
    "growc::Largest": _first(lambda dims: (), onnx.TensorProto.FLOAT),
    "growc::Least": _first(lambda dims: (), onnx.TensorProto.FLOAT),
    "growc::MaskIndex": _first(lambda dims: dims[:1], onnx.TensorProto.INT32),
    "growc::MergeHeads": _merge_heads,
    "growc::Positions": _first(lambda dims: dims[-1:], onnx.TensorProto.INT64),
    "growc::RotaryEmbedding": _first(),
    "growc::Repeat": _repeat,
    "growc::Rounded": _first(element=onnx.TensorProto.UINT8),
    "growc::Shift": _first(element=onnx.TensorProto.FLOAT),
    "growc::SplitBias": _split_bias,
    "growc::SplitHeads": _split_heads,
    "growc::SplitPacked": _split_packed,
    "growc::Stack": _stack,
    "growc::Step": _first(lambda dims: (), onnx.TensorProto.FLOAT),
    "growc::Unfold": _unfold,
    "growc::Unpack": _unpack,
    "growc::Unstack": _first(lambda dims: dims[1:]),
    "growc::Zero": _first(lambda dims: (), onnx.TensorProto.UINT8),
}
