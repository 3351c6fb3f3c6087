"""The decomposition of each fused operator: one function each, from operands to plain nodes.

The functions decide by attributes and by which operands are present, never by shapes. So
growc.dialects.onnx.capture.fused_ops can take the changed node apart once more to restore it. `growc::…` are
operators of the analysis alone; their rows stand in growc.dialects.onnx.operators.table, their result types
in growc.dialects.onnx.operators.infer_types. A function that returns None leaves the node as it is, and
opaque.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx_ir as ir

from growc.dialects.onnx.capture.fused_ops import MICROSOFT, MULTIPLE, Lowering, PlainValues, Rules
from growc.dialects.onnx.operators import einsum as equation
from growc.dialects.onnx.operators.attention import ONE_WIDTH

TINY = 9.999999960041972e-13
"""onnxruntime's default epsilon for its own norms: 1e-12 in float32."""


# ---------------------------------------------------------------- sums, norms, activations


def _norm(at: Lowering, op: str, *inputs: ir.Value | None) -> ir.Value:
    normed = at.add(op, *inputs, axis=-1, epsilon=at.attributes.get("epsilon", TINY))
    return at.carry(normed, epsilon="epsilon")


def skip_layer_norm(at: Lowering) -> PlainValues:
    """LayerNormalization of a residual sum, which is a result too."""
    total = at.total(at.input(0), at.input(1), at.input(4))
    return _norm(at, "LayerNormalization", total, at.input(2), at.input(3)), None, None, total


def skip_rms_norm(at: Lowering) -> PlainValues:
    """RMSNormalization of a residual sum, which is a result too."""
    total = at.total(at.input(0), at.input(1), at.input(3))
    return _norm(at, "SimplifiedLayerNormalization", total, at.input(2)), None, None, total


def embed_layer_norm(at: Lowering) -> PlainValues:
    """LayerNormalization of the sum of two or three look-ups."""
    ids, segments = at.operand(0), at.input(1)
    numbers = at.input(8) or at.add("growc::Positions", ids)
    looked_up = [at.add("Gather", at.operand(2), ids), at.add("Gather", at.operand(3), numbers)]
    if segments is not None:
        looked_up.append(at.add("Gather", at.operand(4), segments))
    total = at.total(*looked_up)
    normed = _norm(at, "LayerNormalization", total, at.input(5), at.input(6))
    return normed, at.add("growc::MaskIndex", ids, at.input(7)), total


def biased(op: str) -> Callable[[Lowering], PlainValues]:
    """An activation of a sum with a bias. Without a bias the node stays."""

    def rule(at: Lowering) -> PlainValues:
        if at.input(1) is None:
            return None
        return (at.add(f"{MICROSOFT}::{op}", at.total(at.input(0), at.input(1))),)

    return rule


def bias_add(at: Lowering) -> PlainValues:
    """x + bias + skip."""
    return (at.total(at.input(0), at.input(1), at.input(2)),)


def _activated(at: Lowering, value: ir.Value, kind: str, numbers: Sequence[float]) -> ir.Value | None:
    names = {"LeakyRelu": ("alpha",), "HardSigmoid": ("alpha", "beta"), "Clip": ("min", "max")}
    if kind not in ("Relu", "Tanh", "Sigmoid", *names) or len(numbers) < len(names.get(kind, ())):
        return None
    attributes = dict(zip(names.get(kind, ()), map(float, numbers), strict=False))
    return at.add("growc::Clip" if kind == "Clip" else kind, value, **attributes)


def _plain(at: Lowering, op: str) -> ir.Value:
    """Return an operator's result before its activation."""
    own = {k: v for k, v in at.attributes.items() if not k.startswith("activation")}
    return at.add(op, *(at.input(i) for i in range(3)), **own)


def fused_conv(at: Lowering) -> PlainValues:
    """A convolution, another tensor added to it, an activation."""
    convolved = at.carry(_plain(at, "Conv"), group="group")
    kind = at.attributes.get("activation", "")
    total = at.total(convolved, at.input(3))
    result = _activated(at, total, kind, at.attributes.get("activation_params", ())) if kind else total
    return None if result is None else (result,)


def fused_gemm(at: Lowering) -> PlainValues:
    """A matrix product and an activation."""
    product = _plain(at, "Gemm")
    numbers = [at.attributes.get(f"activation_{k}", 0.0) for k in ("alpha", "beta")]
    result = _activated(at, product, at.attributes.get("activation", ""), numbers)
    return None if result is None else (result,)


# ---------------------------------------------------------------- attention


def _heads(at: Lowering, value: ir.Value, attribute: str) -> ir.Value:
    """Return an operand as (batch, heads, sequence, channels), whatever its layout."""
    split = at.add("growc::SplitHeads", value, num_heads=at.attributes.get(attribute))
    return at.carry(split, **{attribute: "num_heads"})


def _extended(at: Lowering, past: ir.Value | None, new: ir.Value) -> ir.Value:
    """Return a cache with the new entries appended."""
    return at.add("Identity", new) if past is None else at.add("Concat", past, new, axis=2)


def _core(
    at: Lowering,
    q: ir.Value,
    k: ir.Value,
    v: ir.Value,
    bias: ir.Value | None,
    *others: ir.Value | None,
    multiple: int | None = None,
    one_width: bool = False,
) -> tuple[ir.Value, ir.Value]:
    """Return softmax(q·k + bias)·v, and the scores. The others (masks, lengths) are the same for all heads.

    multiple: the number that must divide a head's channels, as onnxruntime demands. one_width: whether the
    operator has one number of channels a head for queries, keys and values.
    """
    attributes: dict[str, float | None] = {"scale": at.attributes.get("scale") or None, MULTIPLE: multiple}
    attributes[ONE_WIDTH] = one_width or None
    masks = [o for o in others if o is not None]
    y, scores = at.several("growc::Attention", q, k, v, bias, *masks, outputs=2, **attributes)
    return at.carry(y, scale="scale"), scores


def _merged(at: Lowering, value: ir.Value) -> ir.Value:
    return at.add("growc::MergeHeads", value)


def attention(at: Lowering) -> PlainValues:
    """The default domain's Attention: operands in three or four axes, caches, masks."""
    flat = bool(at.attributes.get("q_num_heads"))
    q, k, v = (at.operand(i) for i in range(3))
    if flat:
        q, k, v = _heads(at, q, "q_num_heads"), _heads(at, k, "kv_num_heads"), _heads(at, v, "kv_num_heads")
    k, v = _extended(at, at.input(4), k), _extended(at, at.input(5), v)
    y, scores = _core(at, q, k, v, at.input(3), *at.inputs[6:])
    return _merged(at, y) if flat else y, k, v, scores


def packed_attention(at: Lowering) -> PlainValues:
    """com.microsoft Attention: one weight for q, k and v side by side."""
    x = at.total(at.add("MatMul", at.operand(0), at.operand(1)), at.input(2))
    heads, widths = at.attributes.get("num_heads"), at.attributes.get("qkv_hidden_sizes")
    q, k, v = at.several(
        "growc::SplitPacked", x, outputs=3, num_heads=heads, kv_num_heads=heads, widths=widths
    )
    at.carry(q, num_heads="num_heads", qkv_hidden_sizes="widths")
    if at.attributes.get("do_rotary"):
        q, k = _rotated(at, q), _rotated(at, k)
    past = at.input(4)
    if past is not None:
        old = [at.add("growc::Unstack", past, index=i) for i in range(2)]
        k, v = _extended(at, old[0], k), _extended(at, old[1], v)
    y, _ = _core(at, q, k, v, at.input(5), at.input(3), at.input(6))
    return _merged(at, y), at.add("growc::Stack", k, v)


def multi_head_attention(at: Lowering) -> PlainValues:
    """com.microsoft MultiHeadAttention: operands apart, key and value packed, or all three packed."""
    query, key, value = at.operand(0), at.input(1), at.input(2)

    def part(packed: ir.Value, index: int) -> ir.Value:
        unpacked = at.add("growc::Unpack", packed, index=index, num_heads=at.attributes.get("num_heads"))
        return at.carry(unpacked, num_heads="num_heads")

    if key is None:
        q, k, v = (part(query, i) for i in range(3))
    elif value is None:
        q, k, v = _heads(at, query, "num_heads"), part(key, 0), part(key, 1)
    else:
        q, k, v = (_heads(at, x, "num_heads") for x in (query, key, value))
    bias = at.input(3)
    if bias is not None:
        biases = at.several("growc::SplitBias", bias, q, k, v, outputs=3)
        q, k, v = (at.total(x, b) for x, b in zip((q, k, v), biases, strict=True))
    k, v = _extended(at, at.input(6), k), _extended(at, at.input(7), v)
    y, scores = _core(at, q, k, v, at.input(5), at.input(4), *at.inputs[8:])
    return _merged(at, y), k, v, scores


def _rotated(at: Lowering, x: ir.Value, *tables: ir.Value | None) -> ir.Value:
    return at.add("growc::RotaryEmbedding", x, *(t for t in tables if t is not None))


def grouped_query_attention(at: Lowering) -> PlainValues:
    """com.microsoft GroupQueryAttention: grouped heads, norms of q and k, rotation, caches."""
    if any(at.input(i) is not None for i in (12, 13)):  # quantised caches
        return None
    heads, kv_heads = at.attributes.get("num_heads"), at.attributes.get("kv_num_heads")
    query, key, value = at.operand(0), at.input(1), at.input(2)
    if key is None or value is None:
        q, k, v = at.several("growc::SplitPacked", query, outputs=3, num_heads=heads, kv_num_heads=kv_heads)
        at.carry(q, num_heads="num_heads", kv_num_heads="kv_num_heads")
    else:
        q, k, v = (
            _heads(at, x, n)
            for x, n in ((query, "num_heads"), (key, "kv_num_heads"), (value, "kv_num_heads"))
        )
    if at.input(14) is not None:
        eps = at.attributes.get("qk_norm_epsilon", 9.999999974752427e-07)
        q, k = (
            at.carry(
                at.add("SimplifiedLayerNormalization", x, at.operand(i), axis=-1, epsilon=eps),
                qk_norm_epsilon="epsilon",
            )
            for x, i in ((q, 14), (k, 15))
        )
    if at.attributes.get("do_rotary"):
        q, k = (_rotated(at, x, *(at.input(i) for i in (7, 8, 9))) for x in (q, k))
    k, v = _extended(at, at.input(3), k), _extended(at, at.input(4), v)
    bias, sink = at.input(10), at.input(11)
    if sink is not None:
        column = at.add("growc::HeadColumn", sink)
        bias = column if bias is None else at.total(bias, column)
    multiple = 16 if at.attributes.get("do_rotary") else 8
    y, scores = _core(at, q, k, v, bias, at.input(5), at.input(6), multiple=multiple, one_width=True)
    return _merged(at, y), k, v, scores


def einsum(at: Lowering) -> PlainValues:
    """Einsum of more than two operands, which are multiplied two at a time."""
    operands, result = equation.parse(str(at.attributes["equation"]))
    if len(operands) < 3:
        return None
    product = at.operand(0)
    for i, two in enumerate(equation.pairwise(operands, result), 1):
        product = at.add("Einsum", product, at.operand(i), equation=two)
    return (product,)


LOWERINGS: Rules = {
    ("", "Attention"): attention,
    ("", "Einsum"): einsum,
    (MICROSOFT, "Attention"): packed_attention,
    (MICROSOFT, "MultiHeadAttention"): multi_head_attention,
    (MICROSOFT, "GroupQueryAttention"): grouped_query_attention,
    (MICROSOFT, "SkipLayerNormalization"): skip_layer_norm,
    (MICROSOFT, "SkipSimplifiedLayerNormalization"): skip_rms_norm,
    (MICROSOFT, "EmbedLayerNormalization"): embed_layer_norm,
    (MICROSOFT, "BiasGelu"): biased("Gelu"),
    (MICROSOFT, "FastGelu"): biased("FastGelu"),
    (MICROSOFT, "BiasAdd"): bias_add,
    (MICROSOFT, "FusedConv"): fused_conv,
    (MICROSOFT, "FusedGemm"): fused_gemm,
}
"""The fused operators, by domain and name."""
