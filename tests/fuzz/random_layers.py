"""Norms, activations, feed-forward branches and stranger things, each in many spellings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from random_builder import FLOAT, Net, Tensor

# ---------------------------------------------------------------------------------------------- norms


def norm(net: Net, x: Tensor, kind: str, eps: float) -> Tensor:
    """A norm over the last axis, with gain and bias or without."""
    width = x.dims[-1]
    assert isinstance(width, int)
    out = {"layer": _layer_norm, "rms": _rms_norm, "l2": _l2_norm, "decoy": _decoy}[kind](net, x, width, eps)
    return net.detour(out)


def _affine(net: Net, x: Tensor, width: int, biased: bool) -> Tensor:
    if net.choices.chance(85):
        x = net.multiply(x, net.real(net.gain(width)))
        if biased and net.choices.chance(80):
            x = net.add(x, net.real(net.bias(width)))
    return x


def _layer_norm(net: Net, x: Tensor, width: int, eps: float) -> Tensor:
    if net.opset >= 17 and net.choices.chance(70):
        operands = [net.real(net.gain(width))]
        if net.choices.chance(80):
            operands.append(net.real(net.bias(width)))
        axis = net.choices.pick(-1, x.rank - 1)
        return net.node("LayerNormalization", x, *operands, dims=x.dims, axis=axis, epsilon=eps)
    centred = net.node("Sub", x, _mean(net, x), dims=x.dims)
    return _affine(net, _over_root(net, centred, _square(net, centred), eps), width, True)


def _rms_norm(net: Net, x: Tensor, width: int, eps: float) -> Tensor:
    if net.opset >= 23 and net.choices.chance(70):
        return net.node("RMSNormalization", x, net.real(net.gain(width)), dims=x.dims, axis=-1, epsilon=eps)
    cast = net.unary("Cast", x, to=FLOAT) if net.choices.chance(30) else x
    core = _over_root(net, cast, _square(net, cast), eps)
    core = net.unary("Cast", core, to=FLOAT) if net.choices.chance(30) else core
    return _affine(net, core, width, False)


def _l2_norm(net: Net, x: Tensor, width: int, eps: float) -> Tensor:
    dims = (*x.dims[:-1], 1)
    if net.choices.chance(50) and net.opset < 18:
        length = net.node("ReduceL2", x, dims=dims, axes=[-1], keepdims=1)
    elif net.choices.chance(50):
        length = net.unary("Sqrt", _total(net, _square(net, x)))
    else:
        length = net.node("Pow", _total(net, _square(net, x)), net.real(0.5), dims=dims)
    length = net.node("Max", length, net.real(eps), dims=dims)
    return _affine(net, net.node("Div", x, length, dims=x.dims), width, False)


def _decoy(net: Net, x: Tensor, width: int, eps: float) -> Tensor:
    """A look-alike that is no norm: the variance without its mean, or eps outside the root."""
    centred = net.node("Sub", x, _mean(net, x), dims=x.dims)
    if net.choices.chance(50):
        return _affine(net, _over_root(net, x, _square(net, centred), max(eps, 1e-2)), width, True)
    root = net.add(net.unary("Sqrt", _mean(net, _square(net, centred))), net.real(0.1))
    return _affine(net, net.node("Div", centred, root, dims=x.dims), width, True)


def _mean(net: Net, x: Tensor) -> Tensor:
    axis = net.choices.pick(-1, x.rank - 1)
    dims = (*x.dims[:-1], 1)
    if net.opset >= 18:
        return net.node("ReduceMean", x, net.ints([axis]), dims=dims, keepdims=1)
    return net.node("ReduceMean", x, dims=dims, axes=[axis], keepdims=1)


def _total(net: Net, x: Tensor, axis: int = -1) -> Tensor:
    dims = tuple(1 if k == axis % x.rank else d for k, d in enumerate(x.dims))
    return net.node("ReduceSum", x, net.ints([axis]), dims=dims, keepdims=1)


def _square(net: Net, x: Tensor) -> Tensor:
    if net.choices.chance(50):
        return net.node("Mul", x, x, dims=x.dims)
    return net.node("Pow", x, net.real(2.0), dims=x.dims)


def _over_root(net: Net, x: Tensor, squares: Tensor, eps: float) -> Tensor:
    shifted = net.add(_mean(net, squares), net.real(eps))
    how = net.choices.pick("div", "reciprocal", "one over", "power")
    if how == "power":
        return net.multiply(x, net.node("Pow", shifted, net.real(-0.5), dims=shifted.dims))
    root = net.unary("Sqrt", shifted)
    if how == "div":
        return net.node("Div", x, root, dims=x.dims)
    if how == "reciprocal":
        return net.multiply(x, net.unary("Reciprocal", root))
    return net.multiply(x, net.node("Div", net.real(1.0), root, dims=root.dims))


# ---------------------------------------------------------------------------------------- activations


def _one(op: str, **attributes: object) -> Callable[[Net, Tensor], Tensor]:
    return lambda net, x: net.unary(op, x, **attributes)


def _gelu(net: Net, x: Tensor) -> Tensor:
    if net.opset >= 20 and net.choices.chance(60):
        return net.unary("Gelu", x, approximate=net.choices.pick("none", "tanh"))
    if net.choices.chance(50):
        half = net.unary("Erf", net.node("Div", x, net.real(2**0.5), dims=x.dims))
    else:
        cube = net.node("Pow", x, net.real(3.0), dims=x.dims)
        inner = net.add(x, net.multiply(cube, net.real(0.044715)))
        half = net.unary("Tanh", net.multiply(inner, net.real(0.7978845608)))
    return net.multiply(net.multiply(x, net.add(half, net.real(1.0))), net.real(0.5))


def _gated_by_itself(factor: float) -> Callable[[Net, Tensor], Tensor]:
    def made(net: Net, x: Tensor) -> Tensor:
        inner = x if factor == 1 else net.multiply(x, net.real(factor))
        return net.multiply(x, net.unary("Sigmoid", inner))

    return made


def _squared_relu(net: Net, x: Tensor) -> Tensor:
    return _square(net, net.unary("Relu", x))


def _clipped(net: Net, x: Tensor) -> Tensor:
    return net.node("Clip", x, net.real(net.choices.pick(0.0, -1.0, 0.5)), net.real(2.0), dims=x.dims)


def _per_channel_slope(net: Net, x: Tensor) -> Tensor:
    width = x.dims[-1]
    assert isinstance(width, int)
    return net.node("PRelu", x, net.real(0.2 * net.gain(width)), dims=x.dims)


ACTIVATIONS: tuple[Callable[[Net, Tensor], Tensor], ...] = (
    _one("Relu"),
    _gelu,
    _gated_by_itself(1.0),
    _gated_by_itself(1.702),
    _one("Tanh"),
    _one("Sigmoid"),
    _one("LeakyRelu", alpha=0.1),
    _one("Elu", alpha=0.7),
    _one("Softplus"),
    _one("HardSwish"),
    _one("Abs"),
    _one("Sin"),
    _squared_relu,
    _clipped,
    _per_channel_slope,
)


def activation(net: Net, x: Tensor) -> Tensor:
    """Any activation function."""
    return net.choices.pick(*ACTIVATIONS)(net, x)


# ------------------------------------------------------------------------------------------- branches


def feed_forward(net: Net, x: Tensor, inner: int) -> Tensor:
    """Two matrices and a nonlinearity; gated in many ways."""
    width = x.dims[-1]
    assert isinstance(width, int)
    net.roles["ffn"] = inner
    how = net.choices.pick("plain", "plain", "gated", "packed", "strided", "stacked pair")
    if how == "plain":
        y = activation(net, net.linear(x, inner))
    elif how == "gated":
        y = net.multiply(activation(net, net.linear(x, inner)), net.linear(x, inner))
    else:
        y = _packed(net, net.linear(x, 2 * inner), inner, how)
    return net.detour(net.linear(net.detour(y), width))


def _packed(net: Net, both: Tensor, inner: int, how: str) -> Tensor:
    """gate|up of one matrix: end to end, by turns, or as rows of a pair."""
    if how == "packed":
        gate, up = net.split(both, -1, [inner, inner])
    elif how == "strided":
        gate, up = (
            net.node(
                "Slice",
                both,
                net.ints([k]),
                net.ints([np.iinfo(np.int64).max]),
                net.ints([-1]),
                net.ints([2]),
                dims=(*both.dims[:-1], inner),
            )
            for k in (0, 1)
        )
    else:
        pair = net.reshape(both, (*both.dims[:-1], 2, inner))
        gate, up = (
            net.node("Gather", pair, net.ints(k), dims=(*both.dims[:-1], inner), axis=both.rank - 1)
            for k in (0, 1)
        )
    return net.multiply(activation(net, gate), up)


def experts(net: Net, x: Tensor, inner: int) -> Tensor:
    """A mixture of experts: separate or stacked, all of them weighed or the best one picked."""
    width, n = x.dims[-1], net.choices.pick(2, 3, 4)
    assert isinstance(width, int)
    net.roles["ffn"] = inner
    scores = net.node("Softmax", net.linear(x, n), dims=(*x.dims[:-1], n), axis=-1)
    how = net.choices.pick("separate", "stacked", "best")
    if how == "separate":
        parts = []
        for k, share in enumerate(net.split(scores, -1, [1] * n)):
            out = net.linear(activation(net, net.linear(x, inner)), width)
            parts.append(net.multiply(out, share) if k % 2 else net.node("Mul", share, out, dims=x.dims))
        total = parts[0]
        for part in parts[1:]:
            total = net.add(total, part)
        return total
    up = np.stack([net.matrix(width, inner) for _ in range(n)])
    down = np.stack([net.matrix(inner, width) for _ in range(n)])
    if how == "stacked":
        y = net.node("MatMul", net.unsqueeze(x, 1), net.real(up), dims=(x.dims[0], n, x.dims[1], inner))
        y = activation(net, y)
        y = net.node("MatMul", y, net.real(down), dims=(x.dims[0], n, x.dims[1], width))
        y = net.multiply(y, net.unsqueeze(net.transpose(scores, 0, 2, 1), -1))
        return net.node("ReduceSum", y, net.ints([1]), dims=x.dims, keepdims=0)
    best = net.node("ArgMax", scores, dims=x.dims[:-1], axis=-1, keepdims=0)
    rows = net.unsqueeze(x, 2)
    first = net.node("Gather", net.real(up), best, dims=(*x.dims[:-1], width, inner), axis=0)
    second = net.node("Gather", net.real(down), best, dims=(*x.dims[:-1], inner, width), axis=0)
    y = activation(net, net.node("MatMul", rows, first, dims=(*x.dims[:-1], 1, inner)))
    return net.squeeze(net.node("MatMul", y, second, dims=(*x.dims[:-1], 1, width)), 2)


def convolution(net: Net, x: Tensor, inner: int) -> Tensor:
    """A branch over the sequence: pointwise, depthwise, pointwise, channels in front."""
    width = x.dims[-1]
    assert isinstance(width, int)
    batch, seq = x.dims[:2]
    y = net.transpose(x, 0, 2, 1)

    def kernel(rows: int, columns: int, size: int) -> str:
        return net.real(net.normal(rows, columns, size, scale=(columns * size) ** -0.5))

    y = net.node("Conv", y, kernel(inner, width, 1), net.real(net.bias(inner)), dims=(batch, inner, seq))
    if net.choices.chance(70):
        y = net.node("Conv", y, kernel(inner, 1, 3), dims=y.dims, group=inner, pads=[1, 1])
    y = net.unary(net.choices.pick("Relu", "Tanh", "HardSwish", "Sigmoid"), y)
    if net.choices.chance(30):
        scale, shift, mean = net.gain(inner), net.bias(inner), net.normal(inner, scale=0.1)
        numbers = [net.real(v) for v in (scale, shift, mean, np.abs(net.gain(inner)))]
        y = net.node("BatchNormalization", y, *numbers, dims=y.dims, epsilon=1e-2)
    y = net.node("Conv", y, kernel(width, inner, 1), dims=(batch, width, seq))
    net.roles["ffn"] = inner
    return net.transpose(y, 0, 2, 1)


def mixing(net: Net, x: Tensor) -> Tensor:
    """Mix positions without attention: by the mean, or by a running sum."""
    width = x.dims[-1]
    assert isinstance(width, int)
    y = net.linear(x, width)
    if net.choices.chance(50):
        return net.node("CumSum", net.scaled(y, 0.2), net.ints(1), dims=x.dims)
    axes = net.ints([1])
    dims = (x.dims[0], 1, width)
    if net.opset >= 18:
        mean = net.node("ReduceMean", y, axes, dims=dims, keepdims=1)
    else:
        mean = net.node("ReduceMean", y, dims=dims, axes=[1], keepdims=1)
    return net.add(y, mean)


# --------------------------------------------------------------------------------------- strange things


def oddity(net: Net, x: Tensor) -> Tensor:
    """Something that a resized stream may not survive."""
    width = x.dims[-1]
    assert isinstance(width, int)
    how = net.choices.pick("shift", "halves", "last", "total", "mean", "ramp", "softmax", "outer", "by width")
    if how == "shift":
        return net.add(x, net.real(0.7))
    if how == "halves" and width % 2 == 0:
        low, high = net.split(x, -1, [width // 2, width // 2])
        return net.node("Concat", high, low, dims=x.dims, axis=-1)
    if how == "last":
        last = net.node("Gather", x, net.ints([width - 1]), dims=(*x.dims[:-1], 1), axis=x.rank - 1)
        return _fed_back(net, x, last)
    if how == "total":
        return _fed_back(net, x, net.scaled(_total(net, x), 0.2))
    if how == "mean":
        return _fed_back(net, x, _mean(net, x))
    if how == "ramp":
        wide = net.node("Gather", net.node("Shape", x, dims=(x.rank,)), net.ints(x.rank - 1), dims=())
        numbers = net.node("Range", net.ints(0), wide, net.ints(1), dims=(width,))
        return net.add(x, net.scaled(net.unary("Cast", numbers, to=FLOAT), 0.1))
    if how == "softmax":
        return net.add(x, net.node("Softmax", x, dims=x.dims, axis=-1))
    if how == "outer" and x.rank == 3:
        square = net.node("MatMul", x, net.transpose(x, 0, 2, 1), dims=(*x.dims[:2], x.dims[1]))
        return _fed_back(net, x, net.scaled(_mean(net, square), 0.1))
    wide = net.node("Gather", net.node("Shape", x, dims=(x.rank,)), net.ints(x.rank - 1), dims=())
    root = net.unary("Sqrt", net.unary("Cast", wide, to=FLOAT))
    return net.node("Div", x, root, dims=x.dims)


def _fed_back(net: Net, x: Tensor, number: Tensor) -> Tensor:
    """x plus one number for all units, weighed for each: a norm that follows does not take it away."""
    width = x.dims[-1]
    assert isinstance(width, int)
    return net.add(x, net.node("Mul", number, net.real(net.normal(width)), dims=x.dims))
