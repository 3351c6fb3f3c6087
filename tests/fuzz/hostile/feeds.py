"""Feed-forward parts: activations, gates, choices, experts, and things with a state."""

from __future__ import annotations

import numpy as np

from hostile.linear import linear, product
from hostile.net import Net

SIMPLE = [
    "Relu", "Tanh", "Sigmoid", "Softplus", "LeakyRelu", "Elu", "Abs", "Softsign", "Erf",
    "HardSigmoid", "Selu", "Sin", "Cos", "Atan", "Sign", "Celu", "ThresholdedRelu", "Neg",
    "Identity", "Exp", "Floor", "Round", "Asinh", "Sinh", "Ceil", "HardSwish", "Mish", "Gelu",
    "Not",
]  # fmt: skip
MADE = [
    "silu", "gelu", "gelu tanh", "fast gelu", "square", "cube", "squared relu", "log abs",
    "x log x", "log1p", "reciprocal", "x over", "sqrt abs", "rsqrt", "pow", "pow learned",
    "exp minus", "where", "where zero", "max", "min", "clip", "clip off zero", "mod", "mod off",
    "prelu", "max learned", "prelu learned", "times learned", "shift", "quantised", "half", "whole",
    "bf16", "is positive", "equal zero", "atan2", "mean of two", "fmod", "x over x", "zero power",
    "softmax", "max of axis", "top", "hardmax", "cumsum", "flip", "norm", "sort",
]  # fmt: skip
"""Functions made of several operators, or with other arguments than the values."""


def activation(n: Net, x: str, size: int) -> str:
    """A function of each element, or now and then of the whole axis."""
    how = n.pick.choice(SIMPLE) if n.chance(0.5) else n.pick.choice(MADE)
    if (how in ("HardSwish", "Mish") and n.opset < 18) or (how == "Gelu" and n.opset < 20) or how == "Not":
        how = "Relu"
    n.tag(f"act:{how}")
    if how in SIMPLE:
        return n.op(how, x)
    return _made(n, x, size, how)


def _made(n: Net, x: str, size: int, how: str) -> str:
    one, two = n.number(1.0), n.number(2.0)
    off = n.number(0.3)
    small = {
        "silu": lambda: n.op("Mul", x, n.op("Sigmoid", x)),
        "gelu": lambda: n.op("Mul", n.op("Mul", x, off), n.op("Add", n.op("Erf", n.op("Div", x, two)), one)),
        "gelu tanh": lambda: n.op("Mul", x, n.op("Add", n.op("Tanh", n.op("Mul", x, two)), one)),
        "fast gelu": lambda: n.op("FastGelu", x, domain="com.microsoft"),
        "square": lambda: n.op("Mul", x, x),
        "cube": lambda: n.op("Pow", x, n.number(3.0)),
        "squared relu": lambda: n.op("Pow", n.op("Relu", x), two),
        "log abs": lambda: n.op("Log", n.op("Abs", x)),
        "x log x": lambda: n.op("Mul", x, n.op("Log", n.op("Abs", x))),
        "log1p": lambda: n.op("Log", n.op("Add", n.op("Abs", x), one)),
        "reciprocal": lambda: n.op("Reciprocal", x),
        "x over": lambda: n.op("Div", x, n.op("Add", n.op("Abs", x), one)),
        "x over x": lambda: n.op("Div", n.op("Tanh", x), x),
        "sqrt abs": lambda: n.op("Sqrt", n.op("Abs", x)),
        "rsqrt": lambda: n.op("Div", x, n.op("Sqrt", n.op("Abs", x))),
        "pow": lambda: n.op("Pow", n.op("Abs", x), n.number(n.pick.choice([0.5, -0.5, 1.5, -1.0, 0.0]))),
        "pow learned": lambda: n.op("Pow", n.op("Abs", x), n.tensor(n.rng.uniform(0.5, 2, size))),
        "zero power": lambda: n.op("Pow", two, x),
        "exp minus": lambda: n.op("Exp", n.op("Neg", n.op("Mul", x, x))),
        "where": lambda: n.op("Where", n.op("Greater", x, n.number(0.0)), x, n.op("Mul", x, off)),
        "where zero": lambda: n.op("Where", n.op("Less", x, off), n.normal(size), x),
        "max": lambda: n.op("Max", x, off),
        "min": lambda: n.op("Min", x, n.op("Neg", x)),
        "clip": lambda: n.op("Clip", x, n.number(-0.8), n.number(0.9)),
        "clip off zero": lambda: n.op("Clip", x, off, one),
        "mod": lambda: n.op("Mod", x, one, fmod=1),
        "fmod": lambda: n.op("Mod", x, n.tensor(n.rng.uniform(0.5, 2, size)), fmod=1),
        "mod off": lambda: n.op("Mod", n.op("Add", x, off), two, fmod=1),
        "prelu": lambda: n.op("PRelu", x, n.number(0.2)),
        "prelu learned": lambda: n.op("PRelu", x, n.normal(size, scale=0.4)),
        "max learned": lambda: n.op(n.pick.choice(["Max", "Min"]), x, n.normal(size, scale=0.4)),
        "times learned": lambda: n.op("Tanh", n.op("Mul", x, n.normal(size, scale=0.7))),
        "shift": lambda: n.op("Relu", n.op("Add", x, off)),
        "mean of two": lambda: n.op("Mean", x, n.op("Relu", x)),
        "is positive": lambda: n.cast(n.op("Greater", x, n.normal(size, scale=0.3)), n.kind),
        "equal zero": lambda: n.cast(n.op("Equal", n.op("Relu", x), n.number(0.0)), n.kind),
        "atan2": lambda: n.op("Atan", n.op("Div", x, n.op("Add", n.op("Mul", x, x), one))),
        "softmax": lambda: n.op("Softmax", x, axis=-1),
        "hardmax": lambda: n.op("Hardmax", x, axis=-1),
        "cumsum": lambda: n.op("CumSum", x, n.number(2, "i64")),
        "max of axis": lambda: n.op("Sub", x, n.reduce("Max", x, -1)),
        "norm": lambda: n.op("Sub", x, n.reduce("Mean", x, -1)),
        "flip": lambda: n.op("Slice", x, n.ints(-1), n.ints(-1000), n.ints(2), n.ints(-1)),
        "sort": lambda: n.ops("TopK", x, n.ints(size), axis=-1, outputs=2)[0],
        "top": lambda: top(n, x, size),
        "half": lambda: n.cast(n.cast(x, "f16"), n.kind),
        "bf16": lambda: n.cast(n.cast(x, "bf16"), n.kind),
        "whole": lambda: n.cast(n.cast(n.op("Mul", x, n.number(4.0)), "i32"), n.kind),
        "quantised": lambda: quantised(n, x),
    }
    return small[how]()


def quantised(n: Net, x: str) -> str:
    """Rounded to steps, of a zero point that need not be zero."""
    if n.kind != "f32":
        return x
    zero = n.tensor(n.pick.choice([0, 0, 3, 100]), n.pick.choice(["u8", "i8"]))
    step = n.number(n.pick.choice([0.02, 0.05, 0.3]))
    return n.op("DequantizeLinear", n.op("QuantizeLinear", x, step, zero), step, zero)


def top(n: Net, x: str, size: int) -> str:
    """All but the largest units are zero."""
    values, _ = n.ops("TopK", x, n.ints(max(1, size // 2)), axis=-1, outputs=2)
    return n.op("Where", n.op("Less", x, n.reduce("Min", values, -1)), n.number(0.0), x)


def feed(n: Net, x: str, size: int) -> str:
    """A feed-forward part of some kind."""
    kinds = {
        "plain": 14, "gated": 8, "packed": 4, "maxout": 1, "experts": 3, "networks": 2, "deep": 2,
        "own norm": 2, "self gate": 1, "cut": 1, "conv": 1, "bilinear": 1,
    }  # fmt: skip
    how, inner = n.some("feed", kinds), n.pick.choice([6, 8, 10, 12])
    if how in ("experts", "networks"):
        return experts(n, x, size, how)
    if how == "gated":
        gate = activation(n, linear(n, x, size, inner), inner)
        h = n.op("Mul", gate, linear(n, x, size, inner))
    elif how == "bilinear":
        h = n.op(n.pick.choice(["Mul", "Max", "Sub"]), product(n, x, size, inner), product(n, x, size, inner))
    elif how == "packed":
        first, second = n.split(linear(n, x, size, 2 * inner), [inner, inner], 2)
        h = n.op("Mul", first, activation(n, second, inner))
    elif how == "maxout":
        pieces = n.pick.choice([(inner, 2), (2, inner)])
        parts = n.reshape(linear(n, x, size, 2 * inner), 0, 0, *pieces)
        axis = n.pick.choice([2, 3])
        h, inner = n.reduce("Max", parts, axis, keep=0), pieces[3 - axis]
    elif how == "self gate":
        h = linear(n, x, size, inner)
        h = n.op("Mul", h, n.op("Sigmoid", n.reduce("Mean", h, -1)))
    elif how == "cut":
        first, second = n.split(
            activation(n, linear(n, x, size, inner), inner), [inner // 2, inner - inner // 2], 2
        )
        h = n.op("Concat", *((second, first) if n.chance(0.5) else (first, second)), axis=-1)
    else:
        h = activation(n, linear(n, x, size, inner), inner)
    if how == "deep":
        h = activation(n, linear(n, h, inner, inner), inner)
    if how == "own norm":
        from hostile.norms import norm

        h = norm(n, h, inner)
    if how == "conv":
        kernel = n.normal(inner, 1, 3, scale=0.6)
        turned = n.op("Conv", n.transpose(h, 0, 2, 1), kernel, group=inner, pads=[1, 1])
        h = n.transpose(turned, 0, 2, 1)
    return product(n, h, inner, size)


def experts(n: Net, x: str, size: int, how: str) -> str:
    """Experts that scores weigh, all of them run."""
    count, inner = n.pick.choice([2, 3, 4]), n.pick.choice([4, 6])
    scores = linear(n, x, size, count)
    if n.chance(0.4):
        n.tag("routed")
        values, places = n.ops("TopK", scores, n.ints(max(1, count - 1)), axis=-1, outputs=2)
        empty = n.op("Sub", n.op("Mul", scores, n.number(0.0)), n.number(1e4))
        scores = n.op("ScatterElements", empty, places, values, axis=-1)
    shares = n.op("Softmax", scores, axis=-1) if n.chance(0.8) else n.op("Sigmoid", scores)
    if how == "networks":
        total = ""
        for share in n.split(shares, [1] * count, 2):
            act = n.op("Relu", linear(n, x, size, inner))
            term = n.op("Mul", linear(n, act, inner, size), share)
            total = n.op("Add", total, term) if total else term
        return total
    up = n.normal(count, size, inner, scale=0.5)
    down = n.normal(count, inner, size, scale=0.5)
    h = activation(n, n.op("MatMul", n.op("Unsqueeze", x, n.ints(1)), up), inner)
    outputs = n.op("MatMul", h, down)
    weighed = n.op("Mul", outputs, n.op("Unsqueeze", n.transpose(shares, 0, 2, 1), n.ints(3)))
    return n.reduce("Sum", weighed, 1, keep=0)


def mixer(n: Net, x: str, size: int) -> str:
    """A mixer in the place of attention: recurrences, convolutions, running sums."""
    how = n.some(
        "mixer", {"lstm": 2, "gru": 2, "rnn": 1, "conv": 3, "mean": 2, "cumsum": 2, "shift": 2, "max": 1}
    )
    if how in ("lstm", "gru", "rnn"):
        if n.kind != "f32":
            how = "mean"
        else:
            return _recurrent(n, x, size, how)
    if how == "conv":
        groups = n.pick.choice([1, size])
        kernel = n.normal(size, size // groups, 3, scale=0.7 / np.sqrt(size // groups))
        bias = [n.normal(size, scale=0.3)] if n.chance(0.5) else []
        return n.transpose(
            n.op("Conv", n.transpose(x, 0, 2, 1), kernel, *bias, group=groups, pads=[1, 1]), 0, 2, 1
        )
    y = linear(n, x, size, size)
    if how == "cumsum":
        return n.op("CumSum", y, n.number(1, "i64")) if n.kind != "f16" else y
    if how == "shift":
        pads = n.ints(0, 1, 0, 0, -1, 0)
        return n.op("Sub", y, n.op("Pad", y, pads))
    pooled = n.reduce("Mean" if how == "mean" else "Max", y, 1)
    return n.op("Mul", pooled, n.op("Sigmoid", linear(n, x, size, size)))


def _recurrent(n: Net, x: str, size: int, how: str) -> str:
    gates, inner = {"lstm": 4, "gru": 3, "rnn": 1}[how], n.pick.choice([4, 5, 6])
    both = 2 if n.chance(0.3) else 1
    given = [n.normal(both, gates * inner, size, scale=0.4), n.normal(both, gates * inner, inner, scale=0.4)]
    bias = n.normal(both, 2 * gates * inner, scale=0.3) if n.chance(0.7) else ""
    options = {"direction": "bidirectional"} if both == 2 else {}
    if how == "gru" and n.chance(0.5):
        options["linear_before_reset"] = 1
    turned = n.transpose(x, 1, 0, 2)
    states = n.ops(how.upper(), turned, *given, bias, hidden_size=inner, outputs=2, **options)[0]
    if both == 1:
        flat = n.transpose(n.op("Squeeze", states, n.ints(1)), 1, 0, 2)
    else:
        flat = n.reshape(n.transpose(states, 2, 0, 1, 3), 0, 0, 2 * inner)
    return linear(n, flat, both * inner, size)
