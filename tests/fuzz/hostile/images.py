"""Networks of convolutions: stages, residual blocks, concatenations, pools."""

from __future__ import annotations

import numpy as np

from hostile.linear import linear
from hostile.net import Net

SIDE = 6


def images(n: Net) -> list[tuple[str, str, list[object]]]:
    """A network on (b, 3, 6, 6)."""
    size = n.pick.choice([4, 6, 8])
    x = _conv(n, "x", 3, size, 3)
    for i in range(n.pick.choice([1, 2, 2])):
        n.prefix = f"block.{i}."
        x = _block(n, x, size)
    n.prefix = ""
    if n.chance(0.3):
        x, size = n.op("Concat", x, _conv(n, x, size, 4, 1), axis=1), size + 4
    how = n.some("pool", {"average": 4, "max": 2, "flat": 2, "mean": 3, "map": 1})
    if how == "map":
        n.give(_conv(n, x, size, 2, 1), "y")
        return [("x", n.kind, [n.batch, 3, SIDE, SIDE])]
    if how == "flat":
        side = n.op("MaxPool", x, kernel_shape=[3, 3], strides=[3, 3])
        flat = n.op("Flatten", side, axis=1)
        size *= 4
    elif how == "mean":
        flat = n.reduce("Mean", x, 2, 3, keep=0)
    else:
        flat = n.op("Flatten", n.op("GlobalAveragePool" if how == "average" else "GlobalMaxPool", x), axis=1)
    n.give(linear(n, flat, size, 3, rank=2), "y")
    return [("x", n.kind, [n.batch, 3, SIDE, SIDE])]


def _conv(n: Net, x: str, rows: int, columns: int, side: int, group: int = 1) -> str:
    kernel = n.normal(columns, rows // group, side, side, scale=1.2 / np.sqrt(rows * side * side / group))
    bias = [n.normal(columns, scale=0.3)] if n.chance(0.6) else []
    pad = side // 2
    return n.op("Conv", x, kernel, *bias, pads=[pad] * 4, group=group)


def _block(n: Net, x: str, size: int) -> str:
    how = n.some(
        "block",
        {"residual": 6, "pre": 3, "bottleneck": 2, "depthwise": 3, "plain": 2, "squeeze": 2, "dense": 1},
    )
    act = n.pick.choice(["Relu", "Relu", "Sigmoid", "LeakyRelu", "Tanh"])
    if how == "pre":
        y = n.op(act, _norm(n, x, size))
        y = _conv(n, y, size, size, 3)
        return n.op("Add", x, _conv(n, n.op(act, _norm(n, y, size)), size, size, 3))
    if how == "bottleneck":
        y = n.op(act, _norm(n, _conv(n, x, size, 4, 1), 4))
        y = n.op(act, _conv(n, y, 4, 4, 3, n.pick.choice([1, 2])))
        return n.op("Add", x, _norm(n, _conv(n, y, 4, size, 1), size))
    if how == "depthwise":
        y = _norm(n, _conv(n, x, size, size, 3, size), size)
        return n.op("Add", x, _conv(n, n.op(act, _conv(n, y, size, 10, 1)), 10, size, 1))
    if how == "plain":
        return n.op(act, _norm(n, _conv(n, x, size, size, 3), size))
    if how == "dense":
        more = n.op("Concat", x, n.op(act, _conv(n, x, size, 4, 3)), axis=1)
        return _conv(n, _norm(n, more, size + 4), size + 4, size, 1)
    y = n.op(act, _norm(n, _conv(n, x, size, size, 3), size))
    if how == "squeeze":
        pooled = n.op("GlobalAveragePool", y)
        y = n.op("Mul", y, n.op("Sigmoid", _conv(n, n.op("Relu", _conv(n, pooled, size, 4, 1)), 4, size, 1)))
    y = n.op("Add", x, y)
    return n.op("Relu", y) if n.chance(0.5) else y


def _norm(n: Net, x: str, size: int) -> str:
    how = n.some("image norm", {"batch": 8, "none": 3, "instance": 2, "group": 2, "channels": 2, "lrn": 1})
    eps = n.pick.choice([1e-5, 0.05, 0.4])
    scale, shift = n.normal(size, mean=1.0, scale=0.3), n.normal(size, scale=0.3)
    if how == "batch":
        mean, variance = n.normal(size, scale=0.3), n.tensor(n.rng.uniform(0.5, 2.0, size))
        return n.op("BatchNormalization", x, scale, shift, mean, variance, epsilon=eps)
    if how == "instance":
        return n.op("InstanceNormalization", x, scale, shift, epsilon=eps)
    if how == "lrn" and n.kind == "f32":
        return n.op("LRN", x, size=3)
    if how == "group":
        wide = n.reshape(x, 0, 2, -1)
        ones, none = n.number(1.0, shape=(2,)), n.number(0.0, shape=(2,))
        normed = n.op("InstanceNormalization", wide, ones, none, epsilon=eps)
        back = n.op("Reshape", normed, n.op("Shape", x))
        return n.op("Add", n.op("Mul", back, n.normal(size, 1, 1, mean=1.0, scale=0.3)), n.normal(size, 1, 1))
    if how == "channels":
        centred = n.op("Sub", x, n.reduce("Mean", x, 1))
        variance = n.reduce("Mean", n.op("Mul", centred, centred), 1)
        normed = n.op("Div", centred, n.op("Sqrt", n.op("Add", variance, n.eps())))
        return n.op("Mul", normed, n.normal(size, 1, 1, mean=1.0, scale=0.3))
    return x
