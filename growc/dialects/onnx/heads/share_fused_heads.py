"""Fused attention whose query heads come to share key/value heads, which its operator cannot express.

Needs: a fused node that cannot be restored (growc.dialects.onnx.capture.fused_ops), and the sizes of its
parts in the result. Gives: standard operators for its parts, and between them com.microsoft's
MultiHeadAttention, on keys and values that are repeated for their groups. Caches hold every key/value head
once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from growc.algebra.space import Size
from growc.dialects.onnx.capture.fused_ops import Fused
from growc.dialects.onnx.capture.inline_control_flow import op_name
from growc.dialects.onnx.heads.insert_repeats import ATTENDS, repeat, settle
from growc.dialects.onnx.writer import Writer

MASKS = {"com.microsoft::Attention": 3, "com.microsoft::MultiHeadAttention": 4}
"""Operators whose heads all have their own keys and values, and the operand that masks keys."""

OTHERS = {"com.microsoft::Attention": (6,), "com.microsoft::MultiHeadAttention": (8, 9, 10)}
"""Their operands that the result cannot have."""

KEPT = ("unidirectional", "mask_filter_value", "scale")
"""Their attributes that the result has too."""

ResultSizes = Mapping[ir.Value, Sequence[Size] | None]


def share(fused: Fused, writer: Writer, sizes: ResultSizes) -> bool:
    """Write a fused node in parts, and return whether that was possible."""
    sharing = _Sharing(fused, writer, sizes)
    if not sharing.possible():
        return False
    for part in fused.lowering.nodes:
        if part.domain == "growc":
            sharing.write(part)
        else:
            part.name = writer.unused(f"{part.name}.{part.op_type}")
    return True


@dataclass
class _Sharing:
    fused: Fused
    writer: Writer
    sizes: ResultSizes

    def possible(self) -> bool:
        """Whether heads are shared, and every part of the node has equivalent operators."""
        kind, parts = op_name(self.fused.node), self.fused.lowering.nodes
        cores = [part for part in parts if op_name(part) == ATTENDS]
        if kind not in MASKS or len(cores) != 1 or cores[0].outputs[1].uses():
            return False
        queries, keys, values = (self.shape(v) for v in cores[0].inputs[:3])
        known = all(part.domain != "growc" or part.op_type in PARTS for part in parts)
        inputs = self.fused.lowering.inputs
        others = any(i < len(inputs) and inputs[i] is not None for i in OTHERS[kind])
        return known and not others and keys[1] == values[1] and queries[1] % keys[1] == 0

    def shape(self, value: ir.Value | None) -> list[int]:
        """Return the sizes of a value at the first sample point."""
        sizes = None if value is None else self.sizes.get(value)
        assert sizes is not None
        return [size[0] for size in sizes]

    def write(self, part: ir.Node) -> None:
        """Replace a part by equivalent operators."""
        for old, new in zip(part.outputs, PARTS[part.op_type](self, part), strict=False):
            if new.producer() is not None and new.producer() not in self.fused.lowering.nodes:
                new.name, new.shape = old.name, old.shape
            new.type = new.type or old.type
            self.sizes = {**self.sizes, new: self.sizes.get(old)}
            old.replace_all_uses_with(new, replace_graph_outputs=True)
        assert part.graph is not None
        part.graph.remove(part, safe=True)

    def add(self, part: ir.Node, op: str, *inputs: ir.Value | None, **attributes: Any) -> ir.Value:
        """Insert an operator in front of a part. Its result has the type of its first operand."""
        name = part.outputs[0].name or op
        result: ir.Value = self.writer.insert(part, op, list(inputs), attributes, f"{name}.{op}")
        assert inputs[0] is not None
        result.type = inputs[0].type or part.outputs[0].type
        return result

    def numbers(self, part: ir.Node, *numbers: int) -> ir.Value:
        """Add a constant."""
        constant: ir.Value = self.writer.numbers(f"{part.outputs[0].name}.sizes", list(numbers))
        return constant

    def apart(self, part: ir.Node, value: ir.Value, heads: int) -> ir.Value:
        """Reshape (batch, sequence, (heads channels)) to (batch, heads, sequence, channels)."""
        shape = self.numbers(part, 0, 0, heads, -1)
        return self.add(part, "Transpose", self.add(part, "Reshape", value, shape), perm=[0, 2, 1, 3])

    def together(self, part: ir.Node, value: ir.Value) -> ir.Value:
        """Reshape (batch, heads, sequence, channels) to (batch, sequence, (heads channels))."""
        moved = self.add(part, "Transpose", value, perm=[0, 2, 1, 3])
        return self.add(part, "Reshape", moved, self.numbers(part, 0, 0, -1))

    def cut(self, part: ir.Node, value: ir.Value, widths: Sequence[int]) -> list[ir.Value]:
        """Return segments of the last axis."""
        ends = [int(n) for n in np.cumsum(widths)]
        pairs = zip([0, *ends[:-1]], ends, strict=True)
        last = self.numbers(part, -1)
        return [
            self.add(part, "Slice", value, self.numbers(part, a), self.numbers(part, b), last)
            for a, b in pairs
        ]

    def repeated(self, part: ir.Node, value: ir.Value, times: int) -> ir.Value:
        """Repeat every head for each of its query heads, and join all heads."""
        node = repeat(part, value, times)
        joined = self.together(part, node.outputs[0])
        settle([node], self.writer, repeats=False)
        return joined


def _split_heads(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    source = part.inputs[0]
    assert source is not None
    flat = len(at.shape(source)) == 3
    return [at.apart(part, source, at.shape(part.outputs[0])[1]) if flat else source]


def _split_packed(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    source = part.inputs[0]
    assert source is not None
    shapes = [at.shape(out) for out in part.outputs]
    parts = at.cut(part, source, [s[1] * s[3] for s in shapes])
    return [at.apart(part, v, s[1]) for v, s in zip(parts, shapes, strict=True)]


def _split_bias(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    source = part.inputs[0]
    assert source is not None
    shapes = [at.shape(out) for out in part.outputs]  # heads, 1, channels
    parts = at.cut(part, source, [s[0] * s[2] for s in shapes])
    return [at.add(part, "Reshape", v, at.numbers(part, *s)) for v, s in zip(parts, shapes, strict=True)]


def _unstack(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    number = at.writer.constant(f"{part.outputs[0].name}.index", np.array(part.attributes["index"].value))
    return [at.add(part, "Gather", part.inputs[0], number, axis=0)]


def _stack(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    opened = [at.add(part, "Unsqueeze", v, at.numbers(part, 0)) for v in part.inputs]
    return [at.add(part, "Concat", *opened, axis=0)]


def _merge(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    """Return the attention's result, whose heads are joined already."""
    source = part.inputs[0]
    assert source is not None
    return [source]


def _attend(at: _Sharing, part: ir.Node) -> list[ir.Value]:
    """Insert MultiHeadAttention on repeated keys and values.

    Caches are repeated separately, because the fused operator appends new keys and values without repeats.
    """
    fused, (q, k, v, bias) = at.fused, part.inputs[:4]
    assert q is not None
    times = at.shape(q)[1] // at.shape(k)[1]
    news, pasts = [], []
    for value in (k, v):
        assert value is not None
        producer = value.producer()
        whole = producer is None or producer not in fused.lowering.nodes
        *before, new = [value] if whole or producer is None else [v for v in producer.inputs if v is not None]
        news.append(at.repeated(part, new, times))
        pasts += [repeat(part, past, times) for past in before]
    mask = MASKS[op_name(fused.node)]
    masked = fused.lowering.inputs[mask] if mask < len(fused.lowering.inputs) else None
    inputs = [at.together(part, q), *news, None, masked, bias, *(node.outputs[0] for node in pasts)]
    kept = {name: fused.node.attributes[name] for name in KEPT if name in fused.node.attributes}
    count = 3 if pasts else 1  # onnxruntime reads caches only if it returns them
    attributes = [*kept.values(), ir.AttrInt64("num_heads", at.shape(q)[1])]
    node = ir.Node(
        "com.microsoft", "MultiHeadAttention", inputs, attributes, num_outputs=count, name=fused.node.name
    )
    for out, kind in zip(node.outputs, ("attended", "keys", "values"), strict=False):
        out.name = at.writer.unused(f"{part.outputs[0].name}.{kind}")
    assert part.graph is not None
    part.graph.insert_before(part, node)
    settle(pasts, at.writer, repeats=False)
    return [node.outputs[0]]


PARTS: dict[str, Callable[[_Sharing, ir.Node], list[ir.Value]]] = {
    "Attention": _attend,
    "MergeHeads": _merge,
    "SplitBias": _split_bias,
    "SplitHeads": _split_heads,
    "SplitPacked": _split_packed,
    "Stack": _stack,
    "Unstack": _unstack,
}
"""The functions that write the parts of these operators in a file."""
