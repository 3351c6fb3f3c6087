"""Attention in every shape that exporters leave: packings, groups, positions, scales, masks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from random_builder import FLOAT, Dim, Net, Tensor
from random_layers import norm

LONGEST = 16
"""How many positions a baked table has."""


@dataclass(frozen=True)
class Heads:
    """kv key/value heads, each for `group` query heads, of `depth` units."""

    kv: int
    group: int
    depth: int

    @property
    def queries(self) -> int:
        return self.kv * self.group


def attention(net: Net, x: Tensor, source: Tensor, heads: Heads) -> Tensor:
    """softmax(q·k)·v of x against `source` (x itself, or another stream), projected to the width of x."""
    c, width = net.choices, x.dims[-1]
    assert isinstance(width, int)
    if heads.queries > 1:
        net.roles |= {"heads": heads.queries, "head_dim": heads.depth}
    if heads.group > 1 and heads.kv > 1:
        net.roles["kv_heads"] = heads.kv
    q, k, v = _projections(net, x, source, heads)  # [b, s, heads, depth]
    if c.chance(15):
        kind, eps = c.pick("rms", "layer", "l2"), c.pick(1e-2, 1e-5)
        q, k = norm(net, q, kind, eps), norm(net, k, kind, eps)
    if source is x and heads.depth % 2 == 0 and c.chance(35):
        turn, parts = _rotation(net, x.dims[1], heads.depth), c.pick("half", "interleaved")
        q, k = _rotated(net, q, turn, parts), _rotated(net, k, turn, parts)
    q, k, v = (net.detour(net.transpose(t, 0, 2, 1, 3)) for t in (q, k, v))
    if heads.group > 1 and c.chance(15):
        out = _scores_in_groups(net, q, k, v, heads)
    else:
        if heads.group > 1:
            how = c.pick("expand", "tile", "concat")
            k, v = _repeated(net, k, heads, how), _repeated(net, v, heads, how)
        out = _softmax_product(net, q, k, v, heads, source is x)
    flat = net.reshape(net.transpose(out, 0, 2, 1, 3), (*x.dims[:2], heads.queries * heads.depth))
    return net.detour(net.linear(net.detour(flat), width))


# ----------------------------------------------------------------------------------------- projections


def _projections(net: Net, x: Tensor, source: Tensor, heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    c, n, kv, d = net.choices, heads.queries, heads.kv, heads.depth
    options = ["separate", "separate"]
    if source is x:
        options += ["parts", "groups"]
        options += ["per head", "five axes", "sliced weight"] if heads.group == 1 else []
        options += ["one key"] if kv == 1 else []
    how = c.pick(*options)
    if how == "separate":
        biased = c.chance(50)
        projections = [net.linear(x, n * d, biased)] + [net.linear(source, kv * d, biased) for _ in range(2)]
        if c.chance(8):
            projections[0], projections[1] = (norm(net, t, "rms", 1e-2) for t in projections[:2])
        return _cut_heads(net, projections, heads)
    if how == "parts":
        return _cut_heads(net, net.split(net.linear(x, (n + 2 * kv) * d), -1, [n * d, kv * d, kv * d]), heads)
    if how == "sliced weight":
        whole = net.real(np.concatenate([net.matrix(int(x.dims[-1]), n * d).T for _ in range(3)]))
        projections = []
        for k in range(3):
            bounds = [net.ints([k * n * d]), net.ints([(k + 1) * n * d]), net.ints([0])]
            part = net.node("Slice", whole, *bounds, dims=(n * d, x.dims[-1]))
            turned = net.transpose(part, 1, 0)
            projections.append(net.node("MatMul", x, turned, dims=(*x.dims[:2], n * d)))
        return _cut_heads(net, projections, heads)
    if how == "one key":
        parts = net.split(net.reshape(net.linear(x, (n + 2) * d), (*x.dims[:2], n + 2, d)), 2, [n, 1, 1])
        return parts[0], parts[1], parts[2]
    if how == "groups":
        rows = net.reshape(net.linear(x, kv * (heads.group + 2) * d), (*x.dims[:2], kv, heads.group + 2, d))
        q, k, v = net.split(rows, 3, [heads.group, 1, 1])
        k, v = (net.reshape(t, (*x.dims[:2], kv, d)) for t in (k, v))
        return net.reshape(q, (*x.dims[:2], n, d)), k, v
    whole = net.linear(x, 3 * n * d)
    if how == "per head" and c.chance(50):
        q, k, v = net.split(net.reshape(whole, (*x.dims[:2], n, 3 * d)), -1, [d, d, d])
        return q, k, v
    axis = 3 if how == "per head" else 2
    dims: tuple[Dim, ...] = (n, 3, d) if axis == 3 else (3, n, d)
    rows = net.reshape(whole, (*x.dims[:2], *dims))
    if c.chance(50):
        q, k, v = (
            net.node("Gather", rows, net.ints(i), dims=(*x.dims[:2], n, d), axis=axis) for i in range(3)
        )
    else:
        q, k, v = (net.squeeze(t, axis) for t in net.split(rows, axis, [1, 1, 1]))
    return q, k, v


def _cut_heads(net: Net, made: list[Tensor], heads: Heads) -> tuple[Tensor, Tensor, Tensor]:
    counts = (heads.queries, heads.kv, heads.kv)
    q, k, v = (
        net.reshape(net.detour(t), (*t.dims[:2], n, heads.depth)) for t, n in zip(made, counts, strict=True)
    )
    return q, k, v


def _repeated(net: Net, x: Tensor, heads: Heads, how: str) -> Tensor:
    """Every key/value head `group` times in a row: [b, kv, s, d] to [b, kv·group, s, d]."""
    batch, kv, seq, depth = x.dims
    wide = (batch, kv, heads.group, seq, depth)
    one = net.unsqueeze(x, 2)
    if how == "expand":
        many = net.node("Expand", one, net.shape(wide), dims=wide)
    elif how == "tile":
        many = net.node("Tile", one, net.ints([1, 1, heads.group, 1, 1]), dims=wide)
    else:
        many = net.node("Concat", *[one] * heads.group, dims=wide, axis=2)
    return net.reshape(many, (batch, heads.queries, seq, depth))


# ------------------------------------------------------------------------------------------- positions


def _rotation(net: Net, seq: Dim, depth: int) -> tuple[Tensor, Tensor, int]:
    """cos and sin [s, 1, half], baked and cut to length, or computed; and how many units they turn."""
    turned = depth if depth % 4 or net.choices.chance(70) else depth // 2
    speeds = 10.0 ** (-np.arange(0, turned, 2) / turned)
    if net.choices.chance(50):
        length = net.size(seq) if isinstance(seq, str) else net.ints([seq])
        angles = np.arange(LONGEST)[:, None, None] * speeds
        cut = [net.ints([0]), length, net.ints([0])]
        cos, sin = (
            net.node("Slice", net.real(f(angles)), *cut, dims=(seq, 1, turned // 2)) for f in (np.cos, np.sin)
        )
        return cos, sin, turned
    numbers = _numbers(net, seq)
    angles_now = net.node(
        "Mul",
        net.unsqueeze(net.unsqueeze(net.unary("Cast", numbers, to=FLOAT), 1), 2),
        net.real(speeds),
        dims=(seq, 1, turned // 2),
    )
    return net.unary("Cos", angles_now), net.unary("Sin", angles_now), turned


def _numbers(net: Net, seq: Dim) -> Tensor:
    """0, 1, … below the sequence's length."""
    length = net.squeeze(Tensor(net.size(seq), (1,)), 0) if isinstance(seq, str) else net.ints(seq)
    return net.node("Range", net.ints(0), length, net.ints(1), dims=(seq,))


def _rotated(net: Net, x: Tensor, turn: tuple[Tensor, Tensor, int], parts: str) -> Tensor:
    """Rotary positions on the first units of [b, s, h, d], pairs as halves or as neighbours."""
    cos, sin, turned = turn
    rest: list[Tensor] = []
    inner = x
    if turned < int(x.dims[-1]):
        inner, tail = net.split(x, -1, [turned, int(x.dims[-1]) - turned])
        rest = [tail]
    half = (*x.dims[:-1], turned // 2)
    if parts == "half":
        a, b = net.split(inner, -1, [turned // 2] * 2)
    else:
        pairs = net.reshape(inner, (*x.dims[:-1], turned // 2, 2))
        a, b = (net.node("Gather", pairs, net.ints(k), dims=half, axis=x.rank) for k in (0, 1))
    left = net.node("Sub", net.multiply(a, cos), net.multiply(b, sin), dims=half)
    right = net.add(net.multiply(b, cos), net.multiply(a, sin))
    if parts == "half":
        return net.node("Concat", left, right, *rest, dims=x.dims, axis=-1)
    both = net.node("Concat", net.unsqueeze(left, -1), net.unsqueeze(right, -1), dims=(*half, 2), axis=-1)
    done = net.reshape(both, inner.dims)
    return net.node("Concat", done, *rest, dims=x.dims, axis=-1) if rest else done


# ---------------------------------------------------------------------------------------------- scores


def _softmax_product(net: Net, q: Tensor, k: Tensor, v: Tensor, heads: Heads, self_attention: bool) -> Tensor:
    c, (batch, n, length, _), other = net.choices, q.dims, k.dims[2]
    q, k, after = _scaled(net, q, k, heads.depth)
    scores = net.node("MatMul", q, net.transpose(k, 0, 1, 3, 2), dims=(batch, n, length, other))
    scores = scores if after is None else net.scaled(scores, after)
    if c.chance(10):
        scores = net.multiply(net.unary("Tanh", net.scaled(scores, 1 / 3)), net.real(3.0))
    if self_attention:
        scores = _biased(net, scores, heads.queries)
        scores = _masked(net, scores)
    weights = net.node("Softmax", net.detour(scores), dims=scores.dims, axis=c.pick(-1, 3))
    return net.node("MatMul", weights, v, dims=q.dims)


def _scaled(net: Net, q: Tensor, k: Tensor, depth: int) -> tuple[Tensor, Tensor, float | None]:
    """1/sqrt(depth) on the queries, on both sides, from the run-time shape, or behind the product."""
    how = net.choices.pick("scores", "queries", "both", "run time", "none")
    if how == "none" and depth > 3:  # large scores make rounding large
        how = "scores"
    if how == "queries":
        return net.scaled(q, depth**-0.5), k, None
    if how == "both":
        return net.scaled(q, depth**-0.25), net.scaled(k, depth**-0.25), None
    if how == "run time":
        size = net.node("Gather", net.node("Shape", q, dims=(4,)), net.ints(3), dims=())
        root = net.unary("Sqrt", net.unary("Cast", size, to=FLOAT))
        return net.node("Div", q, root, dims=q.dims), k, None
    return q, k, depth**-0.5 if how == "scores" else None


def _biased(net: Net, scores: Tensor, n: int) -> Tensor:
    """A bias for each head by distance: slopes, a gathered table, or a baked one."""
    how = net.choices.pick("none", "none", "none", "none", "slopes", "gathered", "baked")
    seq = scores.dims[-1]
    if how == "none":
        return scores
    if how == "slopes":
        slopes = net.real(2.0 ** -np.arange(1, n + 1).reshape(n, 1, 1))
        far = net.unary("Cast", _numbers(net, seq), to=FLOAT)
        return net.add(scores, net.node("Mul", far, slopes, dims=(n, 1, seq)))
    zero, two, length = net.ints([0, 0]), net.ints([0, 1]), _lengths(net, seq)
    if how == "baked":
        table = net.real(net.normal(n, LONGEST, LONGEST))
        return net.add(scores, net.node("Slice", table, zero, length, net.ints([1, 2]), dims=(n, seq, seq)))
    distance = np.clip(np.arange(LONGEST)[:, None] - np.arange(LONGEST), -2, 3) + 2
    rows = net.node("Slice", net.ints(distance), zero, length, two, dims=(seq, seq))
    table = net.node("Gather", net.real(net.normal(6, n)), rows, dims=(seq, seq, n), axis=0)
    return net.add(scores, net.unsqueeze(net.transpose(table, 2, 0, 1), 0))


def _lengths(net: Net, seq: Dim) -> str:
    one = net.size(seq) if isinstance(seq, str) else net.ints([seq])
    return net.node("Concat", one, one, dims=(2,), axis=0).name


def _masked(net: Net, scores: Tensor) -> Tensor:
    """The future hidden, by a baked table or by comparing numbers; or padding, by a model input."""
    how = net.choices.pick("none", "baked", "compared", "padding")
    seq = scores.dims[-1]
    if how == "baked":
        table = np.triu(np.full((LONGEST, LONGEST), -1e4), 1)
        cut = [net.ints([0, 0]), _lengths(net, seq), net.ints([0, 1])]
        return net.add(scores, net.node("Slice", net.real(table), *cut, dims=(seq, seq)))
    if how == "compared":
        numbers = _numbers(net, seq)
        seen = net.node("LessOrEqual", numbers, net.unsqueeze(numbers, 1), dims=(seq, seq))
        return net.node("Where", seen, scores, net.real(net.choices.pick(-1e4, -np.inf)), dims=scores.dims)
    if how == "padding" and "mask" in net.inputs:
        kept = net.unary("Cast", Tensor("mask", net.inputs["mask"][1]), to=FLOAT)
        hidden = net.scaled(net.node("Sub", net.real(1.0), kept, dims=kept.dims), -1e4)
        return net.add(scores, net.unsqueeze(net.unsqueeze(hidden, 1), 2))
    return scores


def _scores_in_groups(net: Net, q: Tensor, k: Tensor, v: Tensor, heads: Heads) -> Tensor:
    """Grouped queries on axes of their own: keys are broadcast, never repeated."""
    batch, _, length, depth = q.dims
    wide = net.reshape(q, (batch, heads.kv, heads.group, length, depth))
    keys, values = net.unsqueeze(net.transpose(k, 0, 1, 3, 2), 2), net.unsqueeze(v, 2)
    dims = (*wide.dims[:4], k.dims[2])
    scores = net.scaled(net.node("MatMul", wide, keys, dims=dims), heads.depth**-0.5)
    weights = net.node("Softmax", scores, dims=dims, axis=-1)
    return net.reshape(net.node("MatMul", weights, values, dims=wide.dims), q.dims)
