"""The papers' formulas on the tiny models, in numpy, from the source's weights alone. Knows nothing of growc.

A model is the list of its weights in the order in which its output needs them. Each is written as its axes:
`+h` makes the stream, `-h` reads it, `.` is neither; a heads, k key/value heads (both in elements), f
feed-forward; `+3a` is three such axes end to end; `/h` is the norm before the tied head, which takes the
shares that the head's table cannot take.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
from numpy.typing import NDArray

Array = NDArray[Any]
Map = NDArray[np.int64]

GPT = (
    ["table . +h", "positions . +h"],
    [
        *("gain +h", "shift +h", "qkv -h +3a", "qkv_bias +3a", "out -a +h", "out_bias +h"),
        *("gain +h", "shift +h", "up -h +f", "up_bias +f", "down -f +h", "down_bias +h"),
    ],
    ["gain /h", "shift /h", "head . +h"],
)
BERT = (
    ["table . +h", "types . +h", "positions . +h", "gain +h", "shift +h"],
    [
        *("q -h +a", "q_bias +a", "k -h +a", "k_bias +a", "v -h +a", "v_bias +a", "out -a +h", "out_bias +h"),
        *(
            "gain +h",
            "shift +h",
            "up -h +f",
            "up_bias +f",
            "down -f +h",
            "down_bias +h",
            "gain +h",
            "shift +h",
        ),
    ],
    ["transform -h +h", "transform_bias +h", "gain /h", "shift /h", "head . +h", "head_bias ."],
)
LLAMA = (
    ["table . +h"],
    [
        *("gain +h", "q -h +a", "k -h +k", "v -h +k", "out -a +h"),
        *("gain +h", "gate -h +f", "up -h +f", "down -f +h"),
    ],
    ["gain /h", "head . +h"],
)


Model = tuple[list[str], list[str], list[str]]
"""The weights below the layers, in a layer, and above the layers."""


@dataclass(frozen=True)
class Weight:
    """One use of a weight: what it is, in which layer (None: in none), its axes, its values."""

    name: str
    layer: int | None
    axes: tuple[str, ...]
    value: Array = field(repr=False)


def uses(path: Path) -> list[Array]:
    """The float tensors of a file in the order in which its output needs them, a node's after its data.

    Single numbers and rotary frequencies are left out. The order of the file's nodes has no part in it.
    """
    graph = onnx.load(path).graph
    stored = {t.name: onnx.numpy_helper.to_array(t) for t in graph.initializer}
    kept = {k: v for k, v in stored.items() if v.dtype == np.float32 and v.ndim and "inv_freq" not in k}
    producer = {output: node for node in graph.node for output in node.output}
    order: list[Array] = []
    pending: list[tuple[str, bool]] = [(output.name, False) for output in graph.output]
    seen: set[str] = set()
    while pending:
        name, ready = pending.pop()
        node = producer.get(name)
        if node is None or (not ready and node.output[0] in seen):
            continue
        if ready:
            order += [kept[i] for i in node.input if i in kept]
            continue
        seen.add(node.output[0])
        pending.append((name, True))
        pending += [(i, False) for i in reversed(node.input)]
    return order


def placed(model: Model, layers: int) -> list[tuple[int | None, str]]:
    """The weights of a model of so many layers, each with its layer."""
    start, layer, end = model
    inside = [(i, text) for i in range(layers) for text in layer]
    return [*((None, text) for text in start), *inside, *((None, text) for text in end)]


def encoder_decoder(layers: int) -> list[tuple[int | None, str]]:
    """T5: e, d, c are the heads of encoder, decoder and cross-attention, E and D the same by number.

    The first layer of each side has the table of relative positions for all of them. The layers of the
    decoder are numbered after those of the encoder.
    """
    feed = ["gain +h", "up -h +f", "down -f +h"]

    def attention(layer: int, side: str) -> list[str]:
        relative = [f"relative . +{side.upper()}"] if layer == 0 else []
        return [
            "gain +h",
            f"q -h +{side}",
            f"k -h +{side}",
            *relative,
            f"v -h +{side}",
            f"out_{side} -{side} +h",
        ]

    encoder: list[tuple[int | None, str]] = [(None, "table . +h")]
    for i in range(layers):
        encoder += [(i, text) for text in (*attention(i, "e"), *feed)]
    encoder.append((None, "gain +h"))
    decoder: list[tuple[int | None, str]] = [(None, "table . +h")]
    for i in range(layers):
        decoder += [(layers + i, text) for text in (*attention(i, "d"), "gain +h", "cross_q -h +c")]
        decoder += encoder if i == 0 else []
        cross = ["cross_k -h +c", "cross_v -h +c", "out_c -c +h"]
        decoder += [(layers + i, text) for text in (*cross, *feed)]
    return [*decoder, (None, "gain /h"), (None, "head +h .")]


def weights(path: Path, places: Sequence[tuple[int | None, str]]) -> list[Weight]:
    """The weights of a file, whose uses are these."""
    values = uses(path)
    assert len(values) == len(places)
    listed = []
    for (number, text), value in zip(places, values, strict=True):
        name, *axes = text.split()
        assert len(axes) == value.ndim, text
        listed.append(Weight(name, number, tuple(axes), value))
    return listed


# ----------------------------------------------------------------------------------------------- the maps


def blocks(units: Sequence[int] | Map, size: int) -> Map:
    """The map of elements that goes with a map of blocks (heads) of `size`."""
    return (np.asarray(units)[:, None] * size + np.arange(size)).reshape(-1)


def tail(d: int, size: int) -> Map:
    """The last units once more, in their order, until there are enough (NAI)."""
    rest: list[int] = []
    while len(rest) < size - d:
        rest = [*range(d)][-(size - d - len(rest)) :] + rest
    return np.array([*range(d), *rest])


def counts(g: Map) -> Array:
    """C of bert2BERT's equation 7, for every new unit."""
    return np.array([(g == i).sum() for i in g])


Maps = Callable[[str, int | None], Map | None]
"""The map of an axis (h, a, k, f) in a layer; None where it stays."""


def parts(axis: str) -> int:
    """How many axes stand end to end."""
    return int(axis[1]) if axis[1:2].isdigit() else 1


def out_dimension(w: Array, axis: int, g: Map, times: int = 1) -> Array:
    """Equation 8: columns are copied, of each of `times` parts."""
    return np.concatenate([np.take(p, g, axis) for p in np.split(w, times, axis)], axis)


def in_dimension(w: Array, axis: int, g: Map) -> Array:
    """Equation 7: rows are copied and divided by their counts."""
    shape = [-1 if i == axis else 1 for i in range(w.ndim)]
    return np.take(w, g, axis).astype(np.float64) / counts(g).reshape(shape)


def expanded(weight: Weight, maps: Maps, value: Array | None = None) -> Array:
    """EXPN of bert2BERT's equations 7 to 13 (and NAI's 5 to 10, without its score factor)."""
    w = (weight.value if value is None else value).astype(np.float64)
    for number, axis in enumerate(weight.axes):
        g = None if axis == "." else maps(axis[-1], weight.layer)
        if g is None:
            continue
        w = out_dimension(w, number, g, parts(axis)) if axis[0] == "+" else in_dimension(w, number, g)
    return w


def restored(weight: Weight, old: Weight, maps: Maps) -> Array:
    """The source's weight from a grown one: the first copy of making units, the sum over reading ones."""
    w = weight.value.astype(np.float64)
    for number, axis in enumerate(old.axes):
        g = None if axis == "." else maps(axis[-1], old.layer)
        if g is None:
            continue
        d = g.max() + 1
        pieces = []
        for piece in np.split(w, parts(axis), number):
            front = np.moveaxis(piece, number, 0)
            if axis[0] == "+":
                rows = front[[np.flatnonzero(g == i)[0] for i in range(d)]]
            else:
                rows = np.stack([front[g == i].sum(0) for i in range(d)])
            pieces.append(np.moveaxis(rows, 0, number))
        w = np.concatenate(pieces, number)
    return w


# ---------------------------------------------------------------------------- what was drawn, read off again


def drawn(units: Array, source: Array) -> Map:
    """Which row of `source` each row of `units` is a multiple of."""
    a, b = units.astype(np.float64), source.astype(np.float64)
    a, b = a / np.linalg.norm(a, axis=1, keepdims=True), b / np.linalg.norm(b, axis=1, keepdims=True)
    like = a @ b.T
    sources = like.argmax(1)
    np.testing.assert_allclose(like[np.arange(len(a)), sources], 1, atol=2e-3)
    return sources


def of_layer(found: Sequence[Weight], layer: int | None, name: str) -> Weight:
    """A layer's weight of a name."""
    return next(w for w in found if w.layer == layer and w.name == name)


def in_layer(found: Sequence[Weight], layer: int | None) -> list[Weight]:
    """A layer's weights."""
    return [w for w in found if w.layer == layer]


def reads(weight: Weight) -> str | None:
    """The axis that a weight contracts."""
    return next((axis[-1] for axis in weight.axes if axis[0] == "-"), None)


@dataclass
class Read:
    """Maps that were drawn, read off: the stream's by the table, others by what reads the units."""

    before: list[Weight]
    after: list[Weight]
    head: int
    known: dict[tuple[str, int | None], Map] = field(default_factory=dict)

    def __call__(self, axis: str, layer: int | None) -> Map | None:
        where = None if axis == "h" else layer
        if (axis, where) not in self.known:
            self.known[axis, where] = self.find(axis, where)
        return self.known[axis, where]

    def find(self, axis: str, layer: int | None) -> Map:
        name = {"h": "table", "a": "out", "f": "down"}[axis]
        old, new = of_layer(self.before, layer, name).value, of_layer(self.after, layer, name).value
        if axis == "h":
            return drawn(new.T, old.T)
        stream = self("h", None)
        assert stream is not None
        first = [np.flatnonzero(stream == i)[0] for i in range(old.shape[1])]
        new = new[:, first]
        if axis == "a":
            units = drawn(
                new.reshape(-1, self.head * old.shape[1]), old.reshape(-1, self.head * old.shape[1])
            )
            return blocks(units, self.head)
        return drawn(new, old)


def originals(found: Sequence[Weight], layers: Sequence[int]) -> list[Weight]:
    """The weights of an arrangement without those of layers that stood before."""
    first = {layers.index(layer): layer for layer in sorted(set(layers))}
    kept = [w for w in found if w.layer is None or w.layer in first]
    return [w if w.layer is None else Weight(w.name, first[w.layer], w.axes, w.value) for w in kept]


def constant(maps: Mapping[str, Map]) -> Maps:
    """Maps that are the same in every layer."""
    return lambda axis, layer: maps.get(axis)
