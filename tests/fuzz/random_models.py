"""Whole models put together at random: stems, residual streams, heads. Numbers coincide by chance."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from choices import Choices
from random_attention import LONGEST, Heads, attention
from random_builder import FLOAT, INT64, Dim, Net, Tensor
from random_images import image_model, patches
from random_layers import activation, convolution, experts, feed_forward, mixing, norm, oddity

SIZES = (8, 6, 4, 12)
"""Widths, heads, lengths and vocabularies come from the same few numbers."""


@dataclass(frozen=True)
class Style:
    """The style that all blocks of one model have in common."""

    place: str  # of the norms: pre, post, branch, sandwich, parallel, none
    norm: str
    eps: float
    inner: int
    heads: Heads
    mixer: str
    feed: str
    scaled: bool


def random_model(c: Choices) -> Net:
    """Any model."""
    kind = c.pick("text", "text", "text", "text", "text", "two streams", "image")
    net = Net(c, c.pick(17, 17, 18, 20, 23, 14), c.pick(0, 4, 12), c.chance(12))
    if kind == "image":
        image_model(net)
    elif kind == "two streams":
        _two_streams(net)
    else:
        _one_stream(net)
    if c.chance(40):
        net.merge()
    return net


def _style(net: Net, width: int) -> Style:
    c = net.choices
    kv, group = c.pick(2, 3, 1), c.pick(1, 1, 2, 3)
    heads = Heads(kv, group, c.pick(4, 2, 3, 6))
    return Style(
        c.pick("pre", "pre", "pre", "post", "branch", "sandwich", "parallel", "none"),
        c.pick("rms", "layer", "layer", "rms", "layer", "rms", "l2", "decoy"),
        c.pick(1e-2, 1e-5),
        c.pick(12, 8, 16, width),
        heads,
        c.pick("attention", "attention", "attention", "mixing", "convolution", "nothing"),
        c.pick("plain", "plain", "plain", "experts", "convolution", "nothing"),
        c.chance(15),
    )


def _block(net: Net, x: Tensor, style: Style, other: Tensor | None = None) -> Tensor:
    """One residual block; with `other`, it also looks at another stream."""
    branches: list[Callable[[Tensor], Tensor]] = []
    if style.mixer == "attention":
        branches.append(lambda t: attention(net, t, t, style.heads))
    elif style.mixer == "convolution":
        branches.append(lambda t: convolution(net, t, style.inner))
    elif style.mixer == "mixing":
        branches.append(lambda t: mixing(net, t))
    if other is not None:
        branches.append(lambda t: attention(net, t, other, style.heads))
    if style.feed == "experts":
        branches.append(lambda t: experts(net, t, style.inner))
    elif style.feed == "convolution":
        branches.append(lambda t: convolution(net, t, style.inner))
    elif style.feed == "plain" or not branches:
        branches.append(lambda t: feed_forward(net, t, style.inner))

    def normed(t: Tensor) -> Tensor:
        return norm(net, t, style.norm, style.eps)

    if style.place == "parallel":
        seen = normed(x)
        parts = [_layer_scaled(net, f(seen), style) for f in branches]
        for part in parts:
            x = net.add(x, part)
        return x
    for branch in branches:
        y = branch(normed(x) if style.place in ("pre", "sandwich") else x)
        y = normed(y) if style.place in ("branch", "sandwich") else y
        x = net.detour(net.add(x, net.detour(_layer_scaled(net, y, style))))
        x = normed(x) if style.place == "post" else x
    return x


def _layer_scaled(net: Net, x: Tensor, style: Style) -> Tensor:
    return net.multiply(x, net.real(0.5 * net.gain(int(x.dims[-1])))) if style.scaled else x


# ----------------------------------------------------------------------------------------------- stems


def _dims(net: Net, symbol: str) -> tuple[Dim, Dim]:
    """Batch and length: symbols, or numbers that are sizes of something else too."""
    c = net.choices
    first = next((dims[0] for _, dims in net.inputs.values()), None)
    batch: Dim = first or (c.pick(2, 1, 4) if c.chance(20) else "batch")
    length: Dim = c.pick(*SIZES) if c.chance(30) else symbol
    return batch, length


def _stem(net: Net, width: int, symbol: str = "seq") -> tuple[Tensor, np.ndarray | None]:
    """The start of a stream, and its table of tokens if it has one."""
    c = net.choices
    kind = c.pick("tokens", "tokens", "tokens", "tokens", "features", "patches")
    if kind == "patches" and not net.inputs:
        return _positioned(net, patches(net, width), width), None
    batch, length = _dims(net, symbol)
    name = "ids" if symbol == "seq" else f"{symbol}_in"
    if kind == "features":
        net.inputs[name] = (FLOAT, (batch, length, 5))
        x = net.linear(Tensor(name, (batch, length, 5)), width)
        return _positioned(net, x, width), None
    vocab, inner = c.pick(10, *SIZES), width
    if c.chance(8):
        inner = c.pick(4, width)
    net.inputs[name], net.limits[name] = (INT64, (batch, length)), vocab
    table = net.normal(vocab, inner, scale=0.7)
    stored = net.operand(table) if c.chance(30) else net.real(table)
    x = net.node("Gather", stored, name, dims=(batch, length, inner))
    net.roles["vocab"] = vocab
    x = net.linear(x, width, False) if inner != width or c.chance(3) else x
    x = net.scaled(x, 2.0) if c.chance(10) else x
    return _positioned(net, x, width), table if inner == width else None


def _positioned(net: Net, x: Tensor, width: int) -> Tensor:
    """With learned positions or sines, a type's row, an embedding norm."""
    c = net.choices
    how, seq = c.pick("none", "learned", "sines", "numbers"), x.dims[1]
    if how != "none":
        table = net.normal(LONGEST, width, scale=0.5)
        if how == "sines":
            angles = np.arange(LONGEST)[:, None] * 10.0 ** (-np.arange(width) / width)
            table = np.concatenate([np.sin(angles[:, ::2]), np.cos(angles[:, 1::2])], axis=1)
        length = net.size(seq) if isinstance(seq, str) else net.ints([seq])
        cut = (net.ints([0]), length, net.ints([0]))
        if how == "numbers":
            numbers = net.node("Slice", net.ints(np.arange(LONGEST)), *cut, dims=(seq,))
            rows = net.node("Gather", net.real(table), numbers, dims=(seq, width))
        else:
            rows = net.node("Slice", net.real(table), *cut, dims=(seq, width))
        net.roles["positions"] = LONGEST
        x = net.add(x, rows)
    if c.chance(10):
        x = net.add(x, net.node("Gather", net.real(net.normal(2, width)), net.ints(0), dims=(width,)))
    if c.chance(12):
        x = norm(net, x, c.pick("layer", "rms"), c.pick(1e-2, 1e-5))
    return net.detour(x)


def _one_stream(net: Net) -> None:
    c = net.choices
    width = c.pick(*SIZES)
    net.roles["hidden"] = width
    style = _style(net, width)
    x, table = _stem(net, width)
    if c.chance(25):
        net.inputs["mask"], net.limits["mask"] = (INT64, x.dims[:2]), 2
    first = x
    for _ in range(c.pick(1, 1, 1, 2)):
        x = _block(net, x, style)
        if c.chance(5):
            x = oddity(net, x)
        if c.chance(5):
            both = net.node("Concat", x, first, dims=(*x.dims[:2], 2 * width), axis=-1)
            x = net.add(x, net.linear(both, width)) if c.chance(50) else net.linear(both, width)
    if "mask" in net.inputs and not any("mask" in n.input for n in net.nodes):
        del net.inputs["mask"]
    _ending(net, x, table, style)


def _two_streams(net: Net) -> None:
    c = net.choices
    width, other = c.pick(*SIZES), c.pick(*SIZES)
    net.roles["hidden"] = width
    style, inner = _style(net, width), _style(net, other)
    source, _ = _stem(net, other, "source")
    source = _block(net, source, inner)
    x, table = _stem(net, width, "seq")
    x = _block(net, x, style, source)
    if c.chance(20):
        net.outputs.append(source)
    _ending(net, x, table, style)


# -------------------------------------------------------------------------------------------- endings


def _ending(net: Net, x: Tensor, table: np.ndarray | None, style: Style) -> None:
    """The last norm and the outputs: logits, a class, the mean, the stream itself."""
    c, width = net.choices, int(x.dims[-1])
    if c.chance(8):
        net.outputs.append(x)
    if style.place != "post" and c.chance(80):
        x = norm(net, x, style.norm, style.eps)
    how = c.pick("head", "head", "tied", "tied", "class", "mean", "transform", "stream")
    if how == "class":
        last = net.node("Gather", x, net.ints(-1), dims=(x.dims[0], width), axis=1)  # it sees all the others
        pooled = net.unary("Tanh", net.linear(last, width)) if c.chance(60) else last
        net.outputs.append(net.linear(pooled, c.pick(5, *SIZES)))
    elif how == "mean":
        dims = (x.dims[0], width)
        if net.opset >= 18:
            mean = net.node("ReduceMean", x, net.ints([1]), dims=dims, keepdims=0)
        else:
            mean = net.node("ReduceMean", x, dims=dims, axes=[1], keepdims=0)
        net.outputs.append(net.linear(mean, c.pick(5, *SIZES)))
    elif how == "stream":
        net.outputs.append(x)
    else:
        if how == "transform":
            x = norm(net, activation(net, net.linear(x, width)), "layer", style.eps)
        net.outputs.append(_logits(net, x, table if how != "head" else None))
    if c.chance(12):
        net.outputs.append(net.linear(x, 3))


def _logits(net: Net, x: Tensor, table: np.ndarray | None) -> Tensor:
    """Scores of tokens; with `table`, by its rows."""
    c, width = net.choices, int(x.dims[-1])
    if table is None:
        return net.linear(x, c.pick(10, *SIZES))
    vocab = len(table)
    own = next((n for n, v in net.weights.items() if v is table or np.array_equal(v, table)), None)
    if own is not None and c.chance(60):
        turned = net.node("Transpose", own, dims=(width, vocab), perm=[1, 0])
    else:
        turned = Tensor(net.real(np.ascontiguousarray(table.T)), (width, vocab))
    logits = net.node("MatMul", x, turned, dims=(*x.dims[:-1], vocab))
    logits = net.scaled(logits, width**-0.5) if c.chance(30) else logits
    return net.add(logits, net.real(net.bias(vocab))) if c.chance(20) else logits
