"""Attention, spelled in many ways."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hostile.linear import linear
from hostile.net import Net

WEIGHTED = {"softmax": 20, "sigmoid": 2, "relu": 1, "exp": 1, "squares": 1, "none": 1, "linear": 3}


@dataclass
class Heads:
    """Sizes of one attention: `groups` query heads for each of `kv` heads."""

    width: int
    kv: int
    groups: int
    size: int
    value: int

    @property
    def queries(self) -> int:
        """How many query heads there are."""
        return self.kv * self.groups


def heads(n: Net, width: int) -> Heads:
    """Sizes that need not have anything to do with the stream."""
    kv = n.pick.choice([1, 2, 2, 2, 3])
    groups = n.pick.choice([1, 1, 1, 2, 2, 3]) if kv * 3 <= 6 else 1
    size = n.pick.choice([2, 2, 4, 4, 3])
    value = size if n.chance(0.85) else n.pick.choice([2, 3, 5])
    n.tag(f"heads:{'one' if kv * groups == 1 else 'grouped' if groups > 1 else 'many'}")
    return Heads(width, kv, groups, size, value)


def attention(n: Net, x: str, width: int, other: str = "", handed: dict[str, str] | None = None) -> str:
    """Attention over `other`, or over the values themselves. `handed` are values of the layer before."""
    h = heads(n, width)
    plain = h.groups == 1 and h.value == h.size and not other
    fused = {"graph": 30, "mha": 2, "packed mha": 1, "op 23": 4, "gqa": 1}
    how = n.some("attention", fused if n.kind == "f32" else {"graph": 1})
    if how == "mha":
        h.groups, h.value = 1, h.size
        return _multi_head(n, x, h, other)
    if how == "packed mha" and plain:
        return _packed(n, x, h)
    if how == "op 23" and n.opset >= 23:
        return _opset_23(n, x, h, other)
    q, k, v = _projections(n, x, other or x, h)
    return _weighed(n, q, k, v, x, h, handed)


def _projections(n: Net, x: str, y: str, h: Heads) -> list[str]:
    """Queries (b h s d), keys and values, from weights that are packed or not."""
    packing = {"apart": 12, "packed": 5, "stacked": 3, "kv": 2, "one input": 1}
    how = n.some("qkv", packing if x == y else {"apart": 3, "kv": 1})
    sizes = [h.queries * h.size, h.kv * h.size, h.kv * h.value]
    if how == "packed":
        parts = n.split(linear(n, x, h.width, sum(sizes)), sizes, 2)
    elif how == "stacked" and h.groups == 1 and h.value == h.size:
        return _stacked(n, x, h)
    elif how == "kv":
        parts = [linear(n, x, h.width, sizes[0])]
        parts += n.split(linear(n, y, h.width, sizes[1] + sizes[2]), sizes[1:], 2)
    elif how == "one input" and h.groups == 1 and h.value == h.size:
        shared = linear(n, x, h.width, sizes[0])
        parts = [shared, linear(n, x, h.width, sizes[1]), shared]
    else:
        parts = [linear(n, s, h.width, size) for s, size in zip((x, y, y), sizes, strict=True)]
    split = []
    for part, count, size in zip(parts, (h.queries, h.kv, h.kv), (h.size, h.size, h.value), strict=True):
        split.append(n.transpose(n.reshape(part, 0, 0, count, size), 0, 2, 1, 3))
    return split


def _stacked(n: Net, x: str, h: Heads) -> list[str]:
    """One product whose axis is three, heads, and what a head has, in some order."""
    product = linear(n, x, h.width, 3 * h.kv * h.size)
    if n.chance(0.5):
        five = n.transpose(n.reshape(product, 0, 0, 3, h.kv, h.size), 2, 0, 3, 1, 4)
        if n.chance(0.5):
            return [n.op("Gather", five, n.number(i, "i64"), axis=0) for i in range(3)]
        parts = n.split(five, [1, 1, 1], 0)
        return [n.op("Squeeze", part, n.ints(0)) for part in parts]
    four = n.transpose(n.reshape(product, 0, 0, h.kv, 3 * h.size), 0, 2, 1, 3)
    return n.split(four, [h.size] * 3, 3)


def _weighed(n: Net, q: str, k: str, v: str, x: str, h: Heads, handed: dict[str, str] | None) -> str:
    """Attention of heads by queries, keys and values, projected back to the stream."""
    q, k = _normed(n, q, k, h)
    if n.chance(0.25):
        q, k = rotary(n, q, h.size, x), rotary(n, k, h.size, x)
    if handed is not None:
        if "v" in handed and n.chance(0.6):
            n.tag("values handed on")
            v = n.op("Add", v, n.op("Mul", handed["v"], n.number(0.5)))
        handed["v"] = v
    k, v = (_repeated(n, part, h, size) for part, size in ((k, h.size), (v, h.value)))
    how = n.some("scores", WEIGHTED)
    if how == "linear":
        context = _linear(n, q, k, v, h)
    else:
        scores = _scores(n, q, k, x, h, how)
        context = n.op("MatMul", scores, v)
    if n.chance(0.1):
        n.tag("head gains")
        context = n.op("Mul", context, n.normal(h.queries, 1, 1, mean=1.0, scale=0.4))
    if n.chance(0.08):
        n.tag("norm in heads")
        square = n.reduce("Mean", n.op("Mul", context, context), -1)
        context = n.op("Div", context, n.op("Sqrt", n.op("Add", square, n.eps())))
    merged = n.reshape(n.transpose(context, 0, 2, 1, 3), 0, 0, h.queries * h.value)
    if n.chance(0.1):
        n.tag("gated heads")
        gate = n.op("Sigmoid", linear(n, x, h.width, h.queries * h.value))
        merged = n.op("Mul", merged, gate)
    return linear(n, merged, h.queries * h.value, h.width)


def _normed(n: Net, q: str, k: str, h: Heads) -> tuple[str, str]:
    """Norms on queries and keys, where there are any."""
    how = n.some("qk norm", {"none": 12, "rms": 3, "l2": 2, "layer": 1})
    if how == "none":
        return q, k
    normed = []
    for part in (q, k):
        if how == "layer":
            part = n.op("Sub", part, n.reduce("Mean", part, -1))
        fold = "Sum" if how == "l2" else "Mean"
        square = n.op("Add", n.reduce(fold, n.op("Mul", part, part), -1), n.eps())
        part = n.op("Div", part, n.op("Sqrt", square))
        normed.append(n.op("Mul", part, n.normal(h.size, mean=1.0, scale=0.3)) if n.chance(0.7) else part)
    return normed[0], normed[1]


def rotary(n: Net, q: str, size: int, x: str) -> str:
    """Rotation by halves; the angles follow from positions that the graph counts."""
    if size % 2:
        return q
    n.tag("rotary")
    steps = n.op("Gather", n.op("Shape", x), n.number(1, "i64"), axis=0)
    places = n.cast(n.op("Range", n.number(0, "i64"), steps, n.number(1, "i64")), n.kind)
    rates = n.tensor(1.0 / 10 ** (np.arange(size // 2) / max(1, size // 2)))
    angles = n.op("Mul", n.op("Unsqueeze", places, n.ints(1)), rates)
    both = n.op("Concat", angles, angles, axis=-1)
    cos, sin = (n.op(f, both) for f in ("Cos", "Sin")) if n.kind == "f32" else (both, both)
    first, second = n.split(q, [size // 2] * 2, 3)
    turned = n.op("Concat", n.op("Neg", second), first, axis=-1)
    return n.op("Add", n.op("Mul", q, cos), n.op("Mul", turned, sin))


def _repeated(n: Net, part: str, h: Heads, size: int) -> str:
    """Keys or values, once for each query head of a group."""
    if h.groups == 1 or (h.kv == 1 and n.chance(0.5)):
        return part
    how = n.some("repeat", {"expand": 3, "tile": 1, "concat": 1, "gather": 1})
    if how == "gather":
        return n.op("Gather", part, n.ints(*np.repeat(np.arange(h.kv), h.groups).tolist()), axis=1)
    five = n.op("Unsqueeze", part, n.ints(2))
    if how == "expand":
        five = n.op("Expand", five, n.ints(1, 1, h.groups, 1, 1))
    elif how == "tile":
        five = n.op("Tile", five, n.ints(1, 1, h.groups, 1, 1))
    else:
        five = n.op("Concat", *[five] * h.groups, axis=2)
    return n.reshape(five, 0, h.queries, -1, size)


def _scores(n: Net, q: str, k: str, x: str, h: Heads, how: str) -> str:
    """How much every place takes of every other."""
    scale = h.size**-0.5
    where = n.some("scale", {"scores": 4, "both": 1, "computed": 2, "none": 1, "div": 2})
    if where == "both":
        q, k = (n.op("Mul", part, n.number(scale**0.5)) for part in (q, k))
    scores = n.op("MatMul", q, n.transpose(k, 0, 1, 3, 2))
    if where == "scores":
        scores = n.op("Mul", scores, n.number(scale))
    elif where == "div":
        scores = n.op("Div", scores, n.number(1 / scale))
    elif where == "computed":
        scores = n.op("Div", scores, n.op("Sqrt", n.size_of(q, 3)))
    if n.chance(0.1):
        n.tag("capped scores")
        scores = n.op("Mul", n.op("Tanh", n.op("Div", scores, n.number(3.0))), n.number(3.0))
    if n.chance(0.15):
        n.tag("bias of heads")
        scores = n.op(
            "Add", scores, n.normal(h.queries, 1, 1) if n.chance(0.5) else n.normal(1, h.queries, 1, 1)
        )
    if n.chance(0.3) and how == "softmax":
        n.tag("causal")
        steps = n.op("Slice", n.op("Shape", x), n.ints(1), n.ints(2), n.ints(0))
        square = n.op("Concat", steps, steps, axis=0)
        ones = n.op("ConstantOfShape", square)
        mask = n.op("Trilu", n.op("Add", ones, n.number(1.0, "f32")), upper=0) if n.opset >= 14 else ones
        seen = n.op("Greater", mask, n.number(0.5 if n.opset >= 14 else -1.0, "f32"))
        scores = n.op("Where", seen, scores, n.number(-1e4))
    if how == "softmax":
        return n.op("Softmax", scores, axis=-1)
    if how in ("sigmoid", "relu", "exp"):
        return n.op({"sigmoid": "Sigmoid", "relu": "Relu", "exp": "Exp"}[how], scores)
    return n.op("Mul", scores, scores) if how == "squares" else scores


def _linear(n: Net, q: str, k: str, v: str, h: Heads) -> str:
    """Keys and values first: no scores at all."""
    how = n.some("feature map", {"elu": 2, "relu": 1, "softmax": 2, "none": 1})
    if how == "softmax":
        q, k = n.op("Softmax", q, axis=-1), n.op("Softmax", k, axis=-2 if n.chance(0.5) else -1)
    elif how != "none":
        q, k = (n.op("Elu" if how == "elu" and n.kind == "f32" else "Relu", part) for part in (q, k))
        q, k = (n.op("Add", part, n.number(1.0)) for part in (q, k))
    context = n.op("MatMul", q, n.op("MatMul", n.transpose(k, 0, 1, 3, 2), v))
    if how in ("elu", "relu") and n.chance(0.6):
        total = n.op("MatMul", q, n.transpose(n.reduce("Sum", k, 2), 0, 1, 3, 2))
        return n.op("Div", context, total)
    return context


def _multi_head(n: Net, x: str, h: Heads, other: str) -> str:
    """com.microsoft's operator on three tensors."""
    parts = [linear(n, s, h.width, h.kv * h.size) for s in (x, other or x, other or x)]
    bias = [n.normal(3 * h.kv * h.size, scale=0.3)] if n.chance(0.5) else []
    context = n.op("MultiHeadAttention", *parts, *bias, domain="com.microsoft", num_heads=h.kv)
    return linear(n, context, h.kv * h.size, h.width)


def _packed(n: Net, x: str, h: Heads) -> str:
    """com.microsoft's operator with its own weight."""
    inner = h.kv * h.size
    weight = n.normal(h.width, 3 * inner, scale=0.5)
    context = n.op(
        "Attention", x, weight, n.normal(3 * inner, scale=0.3), domain="com.microsoft", num_heads=h.kv
    )
    return linear(n, context, inner, h.width)


def _opset_23(n: Net, x: str, h: Heads, other: str) -> str:
    """The standard's operator, on three or four axes."""
    sizes = [h.queries * h.size, h.kv * h.size, h.kv * h.value]
    q, k, v = (linear(n, s, h.width, z) for s, z in zip((x, other or x, other or x), sizes, strict=True))
    options: dict[str, float] = {}
    if n.chance(0.3):
        options["is_causal"] = 1
    if n.chance(0.3):
        options["scale"] = 0.6
    if n.chance(0.2):
        options["softcap"] = 2.0
    if n.chance(0.5):
        context = n.op("Attention", q, k, v, q_num_heads=h.queries, kv_num_heads=h.kv, **options)
    else:
        four = [
            n.transpose(n.reshape(part, 0, 0, count, size), 0, 2, 1, 3)
            for part, count, size in zip(
                (q, k, v), (h.queries, h.kv, h.kv), (h.size, h.size, h.value), strict=True
            )
        ]
        context = n.reshape(
            n.transpose(n.op("Attention", *four, **options), 0, 2, 1, 3), 0, 0, h.queries * h.value
        )
    return linear(n, context, h.queries * h.value, h.width)
