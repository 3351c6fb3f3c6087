"""Convolutional stems and networks."""

from __future__ import annotations

import numpy as np
from random_builder import FLOAT, Dim, Net, Tensor

SIDE = 6
"""Pixels on a side."""


def kernel(net: Net, out: int, inside: int, size: int) -> str:
    """A weight with which sums over its window stay of order one."""
    return net.real(net.normal(out, inside, size, size, scale=(inside * size * size) ** -0.5))


def patches(net: Net, width: int) -> Tensor:
    """Pixels to a sequence of patches [b, 9, width]."""
    batch: Dim = net.choices.pick("batch", 1)
    net.inputs["pixels"] = (FLOAT, (batch, 3, SIDE, SIDE))
    x = Tensor("pixels", net.inputs["pixels"][1])
    dims = (batch, width, SIDE // 2, SIDE // 2)
    biased = [net.real(net.bias(width))] if net.choices.chance(60) else []
    x = net.node("Conv", x, kernel(net, width, 3, 2), *biased, dims=dims, strides=[2, 2])
    flat = net.reshape(x, (batch, width, SIDE * SIDE // 4))
    x = net.transpose(flat, 0, 2, 1)
    if net.choices.chance(30):
        row = net.node(
            "Expand", net.real(net.normal(1, 1, width)), net.shape((batch, 1, width)), dims=(batch, 1, width)
        )
        x = net.node("Concat", row, x, dims=(batch, int(x.dims[1]) + 1, width), axis=1)
    return x


def image_model(net: Net) -> None:
    """A stem, residual, dense or U-shaped stages, and a classifier or a map."""
    c = net.choices
    width = c.pick(8, 6, 4, 12)
    net.roles["channels"] = width
    batch: Dim = c.pick("batch", 1)
    net.inputs["pixels"] = (FLOAT, (batch, 3, SIDE, SIDE))
    x = Tensor("pixels", net.inputs["pixels"][1])
    x = _normed(net, _conv(net, x, width, 3))
    x = net.unary("Relu", x) if c.chance(70) else activation_of(net, x)
    for _ in range(c.pick(1, 2)):
        how = c.pick("residual", "residual", "depthwise", "dense", "squeeze", "down and up")
        x = _STAGES[how](net, x)
    _finish(net, x)


def activation_of(net: Net, x: Tensor) -> Tensor:
    """An activation that does not depend on which axis is last."""
    return net.unary(net.choices.pick("Relu", "Sigmoid", "Tanh", "HardSwish"), x)


def _channels(x: Tensor) -> int:
    assert isinstance(x.dims[1], int)
    return x.dims[1]


def _conv(net: Net, x: Tensor, out: int, size: int, group: int = 1, biased: bool | None = None) -> Tensor:
    pad = size // 2
    with_bias = net.choices.chance(50) if biased is None else biased
    operands = [
        kernel(net, out, _channels(x) // group, size),
        *([net.real(net.bias(out))] if with_bias else []),
    ]
    dims = (x.dims[0], out, *x.dims[2:])
    return net.node("Conv", x, *operands, dims=dims, pads=[pad] * 4, group=group)


def _normed(net: Net, x: Tensor) -> Tensor:
    """BatchNorm, GroupNorm in pieces, InstanceNorm, LayerNorm over channels, or nothing."""
    c, n = net.choices, _channels(x)
    how = c.pick("batch", "none", "group", "instance", "layer")
    eps = c.pick(1e-2, 1e-5)
    if how == "batch":
        numbers = [net.gain(n), net.bias(n), net.normal(n, scale=0.1), np.abs(net.gain(n))]
        return net.node("BatchNormalization", x, *map(net.real, numbers), dims=x.dims, epsilon=eps)
    if how == "instance":
        return net.node(
            "InstanceNormalization", x, net.real(net.gain(n)), net.real(net.bias(n)), dims=x.dims, epsilon=eps
        )
    if how == "group":
        ones, zeros = net.real(np.ones(2)), net.real(np.zeros(2))
        flat = net.reshape(x, (x.dims[0], 2, -1))
        flat = net.node("InstanceNormalization", flat, ones, zeros, dims=flat.dims, epsilon=eps)
        y = net.reshape(flat, x.dims)
        y = net.multiply(y, net.real(net.gain(n).reshape(n, 1, 1)))
        return net.add(y, net.real(net.bias(n).reshape(n, 1, 1)))
    if how == "layer" and net.opset >= 17:
        last = net.transpose(x, 0, 2, 3, 1)
        gain, bias = net.real(net.gain(n)), net.real(net.bias(n))
        last = net.node("LayerNormalization", last, gain, bias, dims=last.dims, axis=-1, epsilon=eps)
        return net.transpose(last, 0, 3, 1, 2)
    return x


def _residual(net: Net, x: Tensor) -> Tensor:
    n, inner = _channels(x), net.choices.pick(8, 4, 6)
    group = net.choices.pick(1, 1, 2)
    y = activation_of(net, _normed(net, _conv(net, x, inner, 1)))
    y = activation_of(net, _conv(net, y, inner, 3, group if inner % 2 == 0 else 1))
    y = net.add(x, _normed(net, _conv(net, y, n, 1)))
    return net.detour(net.unary("Relu", y) if net.choices.chance(60) else y)


def _depthwise(net: Net, x: Tensor) -> Tensor:
    n = _channels(x)
    y = activation_of(net, _conv(net, x, n, 3, n))
    return net.add(x, _conv(net, activation_of(net, _conv(net, y, 2 * n, 1)), n, 1))


def _dense(net: Net, x: Tensor) -> Tensor:
    n = _channels(x)
    y = activation_of(net, _conv(net, x, 4, 3))
    return net.node("Concat", x, y, dims=(x.dims[0], n + 4, *x.dims[2:]), axis=1)


def _squeeze(net: Net, x: Tensor) -> Tensor:
    """Squeeze and excitation: channels weighed by what all pixels say."""
    n = _channels(x)
    mean = net.node("GlobalAveragePool", x, dims=(x.dims[0], n, 1, 1))
    y = net.unary("Sigmoid", _conv(net, net.unary("Relu", _conv(net, mean, 4, 1)), n, 1))
    return net.add(x, net.multiply(_conv(net, x, n, 1), y)) if net.choices.chance(50) else net.multiply(x, y)


def _down_and_up(net: Net, x: Tensor) -> Tensor:
    """A pool, a convolution, and back by a transposed one; the skip is concatenated."""
    n, half = _channels(x), SIDE // 2
    low = (x.dims[0], n, half, half)
    op = net.choices.pick("MaxPool", "AveragePool")
    y = net.node(op, x, dims=low, kernel_shape=[2, 2], strides=[2, 2])
    y = net.unary("Relu", _conv(net, y, 6, 3))
    up = net.real(net.normal(6, n, 2, 2, scale=6**-0.5))
    y = net.node("ConvTranspose", y, up, dims=x.dims, kernel_shape=[2, 2], strides=[2, 2])
    both = net.node("Concat", x, y, dims=(x.dims[0], 2 * n, *x.dims[2:]), axis=1)
    return _conv(net, both, n, 1)


_STAGES = {
    "residual": _residual,
    "depthwise": _depthwise,
    "dense": _dense,
    "squeeze": _squeeze,
    "down and up": _down_and_up,
}


def _finish(net: Net, x: Tensor) -> None:
    c, n = net.choices, _channels(x)
    how = c.pick("mean", "flat", "map", "max")
    if how == "map":
        net.outputs.append(_conv(net, x, 3, 1))
        return
    if how == "flat":
        y = net.node("MaxPool", x, dims=(x.dims[0], n, 3, 3), kernel_shape=[2, 2], strides=[2, 2])
        wide = n * 9
        flat = net.node("Flatten", y, dims=(x.dims[0], wide), axis=1)
    else:
        op = {"mean": "GlobalAveragePool", "max": "GlobalMaxPool"}[how]
        y = net.node(op, x, dims=(x.dims[0], n, 1, 1))
        flat = net.node("Flatten", y, dims=(x.dims[0], n), axis=1)
    net.outputs.append(net.linear(flat, 5))
