"""Norms over the last axis, each in several spellings."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from hostile.net import Net

EPS = [1e-5, 1e-3, 0.05, 0.4]


def gain(n: Net, size: int) -> str:
    """A gain, stored as it is, in another type, or as what is added to one."""
    how = n.some("gain", {"stored": 12, "plus one": 2, "half": 1, "positive": 1})
    if how == "plus one":
        return n.op("Add", n.normal(size, scale=0.4), n.number(1.0))
    if how == "half":
        return n.cast(n.tensor(1 + 0.4 * n.rng.standard_normal(size), "f16"), n.kind)
    if how == "positive":
        return n.op("Exp", n.normal(size, scale=0.3))
    return n.normal(size, mean=1.0, scale=0.4)


def _affine(n: Net, y: str, size: int, bias: bool) -> str:
    if n.chance(0.85):
        y = n.op("Mul", y, gain(n, size)) if n.chance(0.7) else n.op("Mul", gain(n, size), y)
    return n.op("Add", y, n.normal(size, scale=0.4)) if bias and n.chance(0.8) else y


def _scaled(n: Net, x: str, square: str, root: str = "") -> str:
    """x / sqrt(square + eps), in one of its spellings."""
    how = root or n.some("root", {"div": 5, "reciprocal": 3, "pow": 2, "outside": 1, "bound": 1})
    if how == "outside":
        return n.op("Div", x, n.op("Add", n.op("Sqrt", square), n.eps()))
    if how == "bound":
        return n.op("Div", x, n.op("Max", n.op("Sqrt", square), n.eps()))
    inside = n.op("Add", square, n.eps()) if n.chance(0.8) else n.op("Add", n.eps(), square)
    if how == "pow":
        return n.op("Mul", x, n.op("Pow", inside, n.number(-0.5)))
    bottom = n.op("Sqrt", inside)
    return n.op("Div", x, bottom) if how == "div" else n.op("Mul", x, n.op("Reciprocal", bottom))


def _square(n: Net, x: str) -> str:
    how = n.some("square", {"pow": 3, "mul": 3, "pow int": 1})
    if how == "mul":
        return n.op("Mul", x, x)
    return n.op("Pow", x, n.number(2.0) if how == "pow" else n.number(2, "i64"))


def layer_norm(n: Net, x: str, size: int) -> str:
    """The operator itself."""
    given = [x, gain(n, size)] + ([n.normal(size, scale=0.4)] if n.chance(0.7) else [])
    return n.op("LayerNormalization", *given, axis=-1, epsilon=n.pick.choice(EPS))


def layer_norm_apart(n: Net, x: str, size: int) -> str:
    """In small operators."""
    centred = n.op("Sub", x, n.reduce("Mean", x, -1))
    return _affine(n, _scaled(n, centred, n.reduce("Mean", _square(n, centred), -1)), size, True)


def moments(n: Net, x: str, size: int) -> str:
    """The variance as the mean of squares without the square of the mean."""
    mean = n.reduce("Mean", x, -1)
    variance = n.op("Sub", n.reduce("Mean", _square(n, x), -1), _square(n, mean))
    return _affine(n, _scaled(n, n.op("Sub", x, mean), variance), size, True)


def unbiased(n: Net, x: str, size: int) -> str:
    """Divided by one less than the size."""
    centred = n.op("Sub", x, n.reduce("Mean", x, -1))
    total = n.reduce("Sum", _square(n, centred), -1)
    below = n.number(size - 1)
    if n.chance(0.4):
        below = n.op("Sub", n.size_of(x, 2), n.number(1.0))
    return _affine(n, _scaled(n, centred, n.op("Div", total, below)), size, True)


def rms(n: Net, x: str, size: int) -> str:
    """The root of the mean square, in small operators."""
    return _affine(n, _scaled(n, x, n.reduce("Mean", _square(n, x), -1)), size, False)


def rms_sum(n: Net, x: str, size: int) -> str:
    """The same with a sum, divided by the size as a constant or as the graph computes it."""
    total = n.op("ReduceSumSquare", x, axes=[-1]) if n.opset < 18 else n.reduce("SumSquare", x, -1)
    below = n.size_of(x, 2) if n.chance(0.4) else n.number(size)
    return _affine(n, _scaled(n, x, n.op("Div", total, below)), size, False)


def rms_wide(n: Net, x: str, size: int) -> str:
    """In another precision, as halves are normed."""
    wide = n.cast(x, "f64" if n.kind == "f32" else "f32")
    square = n.op("Mul", wide, wide)
    mean = n.reduce("Mean", square, -1)
    kind = "f64" if n.kind == "f32" else "f32"
    root = n.op("Sqrt", n.op("Add", mean, n.number(n.pick.choice(EPS), kind)))
    return _affine(n, n.cast(n.op("Div", wide, root), n.kind), size, False)


def rms_op(n: Net, x: str, size: int) -> str:
    """The operator of opset 23, or onnxruntime's."""
    if n.opset >= 23 and n.chance(0.7):
        return n.op("RMSNormalization", x, gain(n, size), axis=-1, epsilon=n.pick.choice(EPS))
    return n.op("SimplifiedLayerNormalization", x, gain(n, size), axis=-1, epsilon=n.pick.choice(EPS))


def l2(n: Net, x: str, size: int) -> str:
    """By the length."""
    how = n.some("l2", {"lp": 1, "l2": 2, "bound": 2, "sum": 2})
    if how == "lp":
        normed = n.op("LpNormalization", x, axis=-1, p=2)
    elif how == "sum":
        normed = _scaled(n, x, n.reduce("Sum", _square(n, x), -1))
    else:
        length = n.reduce("L2", x, -1)
        if how == "bound":
            length = n.op("Clip", length, n.eps()) if n.chance(0.5) else n.op("Max", length, n.eps())
        else:
            length = n.op("Add", length, n.eps())
        normed = n.op("Div", x, length)
    if n.chance(0.5):
        normed = n.op("Mul", normed, n.number(np.sqrt(size)))
    return _affine(n, normed, size, False)


def l1(n: Net, x: str, size: int) -> str:
    """By the sum of the amounts, or the largest of them."""
    how = n.some("l1", {"l1": 2, "abs": 2, "max": 1})
    if how == "l1":
        length = n.reduce("L1", x, -1)
    else:
        length = n.reduce("Sum" if how == "abs" else "Max", n.op("Abs", x), -1)
    return _affine(n, n.op("Div", x, n.op("Add", length, n.eps())), size, False)


def centre(n: Net, x: str, size: int) -> str:
    """Without its mean and nothing else."""
    return _affine(n, n.op("Sub", x, n.reduce("Mean", x, -1)), size, True)


def group(n: Net, x: str, size: int) -> str:
    """Groups of channels, each with a norm of its own."""
    groups = 2
    parts = n.reshape(x, 0, 0, groups, size // groups)
    centred = n.op("Sub", parts, n.reduce("Mean", parts, -1)) if n.chance(0.5) else parts
    normed = _scaled(n, centred, n.reduce("Mean", _square(n, centred), -1))
    return _affine(n, n.reshape(normed, 0, 0, size), size, True)


def batch(n: Net, x: str, size: int) -> str:
    """Statistics that are stored."""
    mean, scale = n.normal(size, scale=0.3), n.normal(size, mean=1.0, scale=0.3)
    variance = n.tensor(n.rng.uniform(0.5, 2.0, size))
    turned = n.transpose(x, 0, 2, 1)
    normed = n.op(
        "BatchNormalization", turned, scale, n.normal(size, scale=0.3), mean, variance,
        epsilon=n.pick.choice(EPS),
    )  # fmt: skip
    return n.transpose(normed, 0, 2, 1)


def instance(n: Net, x: str, size: int) -> str:
    """Over time, for each channel; or over both with a group norm."""
    turned = n.transpose(x, 0, 2, 1)
    if n.opset >= 21 and n.chance(0.5):
        normed = n.op(
            "GroupNormalization", turned, n.normal(size, mean=1.0, scale=0.3), n.normal(size, scale=0.3),
            num_groups=2, epsilon=n.pick.choice(EPS),
        )  # fmt: skip
    else:
        normed = n.op(
            "InstanceNormalization", turned, n.normal(size, mean=1.0, scale=0.3), n.normal(size, scale=0.3),
            epsilon=n.pick.choice(EPS),
        )  # fmt: skip
    return n.transpose(normed, 0, 2, 1)


def dyt(n: Net, x: str, size: int) -> str:
    """A tanh in the place of a norm."""
    return _affine(n, n.op("Tanh", n.op("Mul", x, n.number(0.4))), size, True)


def adaptive(n: Net, x: str, size: int) -> str:
    """A norm whose gain comes from the values themselves, averaged over time."""
    from hostile.linear import linear

    pooled = n.reduce("Mean", x, 1)
    scale = linear(n, pooled, size, size)
    normed = _scaled(n, x, n.reduce("Mean", n.op("Mul", x, x), -1), "div")
    return n.op("Mul", normed, n.op("Add", scale, n.number(1.0)))


NORMS: dict[str, tuple[Callable[[Net, str, int], str], float]] = {
    "layer": (layer_norm, 16),
    "layer apart": (layer_norm_apart, 12),
    "moments": (moments, 3),
    "unbiased": (unbiased, 5),
    "rms": (rms, 16),
    "rms sum": (rms_sum, 6),
    "rms wide": (rms_wide, 5),
    "rms op": (rms_op, 6),
    "l2": (l2, 7),
    "l1": (l1, 3),
    "centre": (centre, 3),
    "group": (group, 4),
    "batch": (batch, 5),
    "instance": (instance, 3),
    "tanh": (dyt, 3),
    "adaptive": (adaptive, 2),
}


def norm(n: Net, x: str, size: int) -> str:
    """One of all norms."""
    which = n.some("norm", {name: weight for name, (_, weight) in NORMS.items()})
    if which == "layer" and n.opset < 17:
        which = "layer apart"
    return NORMS[which][0](n, x, size)
