"""A seed becomes a graph: a stream, layers of one make or of several, and an end."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import onnx

from hostile.attention import attention
from hostile.feeds import activation, feed, mixer
from hostile.images import images
from hostile.linear import linear
from hostile.net import Net
from hostile.norms import norm
from hostile.streams import Start, between, end, start

Branch = Callable[[str], str]


def graph(seed: int) -> tuple[onnx.ModelProto, Net]:
    """The model of a seed, and what went into it."""
    n = Net(seed)
    if n.chance(0.25):
        n.batch = 2
    if n.chance(0.25):
        n.steps = 5
    family = n.some("family", {"stream": 80, "two streams": 8, "images": 8, "plain": 4})
    if family == "images":
        inputs = images(n)
    elif family == "plain":
        inputs = _plain(n)
    elif family == "two streams":
        inputs = _two(n)
    else:
        inputs = _stream(n)
    return n.model(inputs), n


def _stream(n: Net) -> list[tuple[str, str, list[object]]]:
    size = n.pick.choice([4, 6, 8, 8, 10, 12])
    begun = start(n, size)
    end(n, layers(n, begun.value, size), size, begun)
    return begun.inputs


def layers(n: Net, x: str, size: int, other: str = "") -> str:
    """Layers on a stream: of one make, of two by turns, or of as many as there are."""
    count = n.pick.choice([1, 2, 2, 2, 3])
    makes = n.some("makes", {"one": 12, "two": 2, "many": 1})
    keys = [n.pick.random() for _ in range(count)]
    picked = n.pick
    handed: dict[str, str] | None = {} if n.chance(0.06) else None
    first = x if n.chance(0.06) else ""
    shared = n.chance(0.04)
    given = n.chance(0.08)
    state = 0
    for i in range(count):
        n.pick = Random(keys[{"one": 0, "two": i % 2, "many": i}[makes]])
        n.prefix = f"layer.{i}."
        if shared:
            n.tag("shared weights")
            state = _shared(n, i, state)
        x = layer(n, x, size, other, handed)
        if first:
            n.tag("first state in each layer")
            x = n.op("Add", x, n.op("Mul", first, n.number(0.3)))
        if given:
            n.tag("states given out")
            n.give(x, f"state_{i}")
    n.pick, n.prefix = picked, ""
    return x


def _shared(n: Net, i: int, state: int) -> int:
    """Layers whose weights are equal: drawn from one state, so that files store them twice."""
    import numpy as np

    state = state or int(n.rng.integers(1 << 30))
    n.rng = np.random.default_rng(state)
    return state


def layer(n: Net, x: str, size: int, other: str, handed: dict[str, str] | None) -> str:
    """One layer: branches, where their norms stand, and how they come back to the stream."""
    form = n.some(
        "layer",
        {"pre": 24, "post": 6, "sandwich": 5, "parallel": 4, "bare": 4, "after": 3, "plain": 2, "both": 1},
    )
    parts = n.some("parts", {"attention feed": 14, "feed": 8, "attention": 3, "mixer feed": 4, "gate": 1})
    branches: list[Branch] = []
    if "attention" in parts:
        branches.append(lambda y: attention(n, y, size, "", handed))
        if other:
            branches.append(lambda y: attention(n, y, size, other))
    if "mixer" in parts:
        branches.append(lambda y: mixer(n, y, size))
    if "feed" in parts:
        branches.append(lambda y: feed(n, y, size))
    if parts == "gate":
        branches.append(lambda y: n.op("Mul", activation(n, linear(n, y, size, size), size), y))
    if form == "parallel":
        y = norm(n, x, size)
        terms = [branch(y) for branch in branches]
        for term in terms:
            x = n.op("Add", x, term)
        return between(n, x, size)
    for branch in branches:
        x = between(n, _around(n, x, size, branch, form), size)
    return x


def _around(n: Net, x: str, size: int, branch: Branch, form: str) -> str:
    """A branch with its norms and its way back."""
    y = branch(norm(n, x, size) if form in ("pre", "sandwich", "both") else x)
    if form in ("sandwich", "after"):
        y = norm(n, y, size)
    if form == "plain":
        return activation(n, y, size)
    joined = back(n, x, y, size)
    return norm(n, joined, size) if form in ("post", "both") else joined


def back(n: Net, x: str, y: str, size: int) -> str:
    """A branch comes back to the stream."""
    how = n.some(
        "back",
        {
            "add": 24,
            "scale": 4,
            "number": 2,
            "gate": 2,
            "highway": 1,
            "half": 1,
            "sub": 1,
            "act": 1,
            "sum": 1,
        },
    )
    if how == "scale":
        y = n.op("Mul", y, n.normal(size, mean=0.7, scale=0.3))
    elif how == "number":
        y = n.op("Mul", y, n.tensor(n.rng.uniform(0.3, 1, n.pick.choice([(), (1,)]))))
    elif how == "gate":
        y = n.op("Mul", y, n.op("Sigmoid", linear(n, x, size, size)))
    elif how == "highway":
        t = n.op("Sigmoid", linear(n, x, size, size))
        keep = n.op("Sub", n.number(1.0), t)
        return n.op("Add", n.op("Mul", x, keep), n.op("Mul", y, t))
    elif how == "half":
        return n.op("Mul", n.op("Add", x, y), n.number(0.7))
    elif how == "sub":
        return n.op("Sub", x, y)
    elif how == "act":
        y = n.op("Tanh", y)
    elif how == "sum" and n.kind == "f32":
        return n.op("Sum", x, y)
    return n.op("Add", x, y) if n.chance(0.7) else n.op("Add", y, x)


def _two(n: Net) -> list[tuple[str, str, list[object]]]:
    """An encoder whose stream a decoder reads, or two towers that meet in a product."""
    sizes = n.pick.choices([4, 6, 8], k=2)
    first = start(n, sizes[0])
    inputs = [(f"{name}", kind, shape) for name, kind, shape in first.inputs]
    encoded = layers(n, first.value, sizes[0])
    width = n.pick.choice([3, 4])
    n.prefix = "second."
    inputs.append(("q", n.kind, [n.batch, n.steps, width]))
    value = linear(n, "q", width, sizes[1], scale=0.8)
    how = n.some("meeting", {"cross": 3, "towers": 1, "joined": 1, "added": 1})
    second = Start(value)
    if how == "cross":
        memory = encoded if sizes[0] == sizes[1] else linear(n, encoded, sizes[0], sizes[1])
        end(n, layers(n, value, sizes[1], memory), sizes[1], second)
        return inputs
    decoded = layers(n, value, sizes[1])
    if how == "towers":
        a, b = linear(n, encoded, sizes[0], 5), linear(n, decoded, sizes[1], 5)
        n.give(n.op("MatMul", a, n.transpose(b, 0, 2, 1)), "y")
    elif how == "joined":
        end(n, n.op("Concat", encoded, decoded, axis=-1), sum(sizes), second)
    else:
        mapped = encoded if sizes[0] == sizes[1] else linear(n, encoded, sizes[0], sizes[1])
        end(n, n.op(n.pick.choice(["Add", "Mul"]), mapped, decoded), sizes[1], second)
    return inputs


def _plain(n: Net) -> list[tuple[str, str, list[object]]]:
    """Products one behind the other, without a stream."""
    width = n.pick.choice([3, 4])
    size = n.pick.choice([6, 8])
    x = linear(n, "x", width, size)
    key = n.pick.random()
    picked = n.pick
    for i in range(3):
        n.pick, n.prefix = Random(key), f"layer.{i}."
        if n.chance(0.4):
            x = norm(n, x, size)
        x = activation(n, linear(n, x, size, size), size)
    n.pick, n.prefix = picked, ""
    end(n, x, size, Start(x))
    return [("x", n.kind, [n.batch, n.steps, width])]
