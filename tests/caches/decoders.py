"""Tiny decoders that keep keys and values from step to step, in the shapes that exported models have them in.

Every decoder takes token numbers and its pasts, and gives logits and its presents; norms, biases and weights
are random. `decode` feeds each step with what the step before gave.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

Array = NDArray[Any]
VOCAB, HIDDEN, HEADS, DEPTH, INNER, ENCODED = 24, 16, 4, 4, 20, 5
KINDS = ("plain", "grouped", "merged", "packed", "slots", "window", "latent", "cross")
SLOTS = 16
"""Places of a static cache."""

WINDOW = 6
"""How much a cache with a window keeps."""


class Attention(nn.Module):
    """Causal attention of new tokens on all that were seen; the kind says how the cache looks."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.heads = kind, 2 if kind == "grouped" else HEADS
        self.query = nn.Linear(HIDDEN, HEADS * DEPTH)
        if kind == "latent":
            self.down = nn.Linear(HIDDEN, 6)
        self.key = nn.Linear(6 if kind == "latent" else HIDDEN, self.heads * DEPTH)
        self.value = nn.Linear(6 if kind == "latent" else HIDDEN, self.heads * DEPTH)
        self.out = nn.Linear(HEADS * DEPTH, HIDDEN)

    def split(self, x: Tensor) -> Tensor:
        return x.view(x.shape[0], x.shape[1], -1, DEPTH).transpose(1, 2)

    def extend(self, x: Tensor, past: Sequence[Tensor], place: Tensor) -> tuple[Tensor, Tensor, list[Tensor]]:
        """Keys and values of all tokens, (batch, heads, tokens, DEPTH), and the presents."""
        if self.kind == "latent":
            both = torch.cat([past[0], self.down(x)], 1)
            return self.split(self.key(both)), self.split(self.value(both)), [both]
        key, value = self.key(x), self.value(x)
        if self.kind == "merged":
            kept = [torch.cat([p, new], 1) for p, new in zip(past, (key, value), strict=True)]
            return self.split(kept[0]), self.split(kept[1]), kept
        key, value = self.split(key), self.split(value)
        if self.kind == "packed":
            kept = [torch.cat([past[0], torch.stack([key, value])], -2)]
            return kept[0][0], kept[0][1], kept
        if self.kind == "slots":
            kept = [p.index_copy(2, place, new) for p, new in zip(past, (key, value), strict=True)]
            return kept[0], kept[1], kept
        kept = [torch.cat([p, new], 2) for p, new in zip(past, (key, value), strict=True)]
        last = [k[:, :, -WINDOW:] for k in kept] if self.kind == "window" else kept
        return kept[0], kept[1], last

    def forward(self, x: Tensor, past: Sequence[Tensor], place: Tensor) -> tuple[Tensor, list[Tensor]]:
        query = self.split(self.query(x))
        key, value, present = self.extend(x, past, place)
        if self.heads < HEADS:
            key, value = (t.repeat_interleave(HEADS // self.heads, 1) for t in (key, value))
        seen = torch.arange(key.shape[2])
        now = place if self.kind == "slots" else seen[key.shape[2] - x.shape[1] :]
        scores = query @ key.transpose(2, 3) / 2 + torch.where(seen[None] <= now[:, None], 0.0, -1e9)
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2)), present


class Cross(nn.Module):
    """Attention on keys and values that were made of an encoder's output once and for all."""

    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(HIDDEN, HEADS * DEPTH), nn.Linear(HEADS * DEPTH, HIDDEN)

    def forward(self, x: Tensor, key: Tensor, value: Tensor) -> Tensor:
        query = self.query(x).view(x.shape[0], x.shape[1], HEADS, DEPTH).transpose(1, 2)
        scores = query @ key.transpose(2, 3) / 2
        return self.out((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))


class Decoder(nn.Module):
    """Two blocks between an embedding and a head."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.embedding, self.head = kind, nn.Embedding(VOCAB, HIDDEN), nn.Linear(HIDDEN, VOCAB)
        self.attention = nn.ModuleList(Attention(kind) for _ in range(2))
        self.cross = nn.ModuleList(Cross() for _ in range(2 if kind == "cross" else 0))
        self.up = nn.ModuleList(nn.Linear(HIDDEN, INNER) for _ in range(2))
        self.down = nn.ModuleList(nn.Linear(INNER, HIDDEN) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(HIDDEN, eps=1e-2) for _ in range(7))

    def forward(self, ids: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        place, past = (rest[0], rest[1:]) if self.kind == "slots" else (ids, rest)
        x, width, presents = self.embedding(ids), len(past) // 2, []
        for i, attention in enumerate(self.attention):
            own = list(past[i * width : (i + 1) * width])
            memory = [own.pop(), own.pop()][::-1] if self.kind == "cross" else []
            change, kept = attention(self.norms[3 * i](x), own, place)
            x, presents = x + change, [*presents, *kept, *memory]
            if memory:
                x = x + self.cross[i](self.norms[3 * i + 1](x), *memory)
            x = x + self.down[i](torch.relu(self.up[i](self.norms[3 * i + 2](x))))
        return (self.head(self.norms[6](x)), *presents)


def shapes(kind: str) -> list[list[str | int]]:
    """The shape of every cache of one layer; what grows is `past`, and `ENCODED` places were encoded."""
    heads = 2 if kind == "grouped" else HEADS
    one: dict[str, list[str | int]] = {
        "merged": ["batch", "past", HEADS * DEPTH],
        "packed": [2, "batch", HEADS, "past", DEPTH],
        "slots": ["batch", HEADS, SLOTS, DEPTH],
        "latent": ["batch", "past", 6],
    }
    shape = one.get(kind, ["batch", heads, "past", DEPTH])
    own = [shape] * (1 if kind in ("packed", "latent") else 2)
    return own + ([["batch", HEADS, "encoded", DEPTH]] * 2 if kind == "cross" else [])


def export(kind: str, path: Path, groups: int = HEADS) -> Path:
    """The decoder of a kind: inputs `ids`, (`place`,) `past0`, …; outputs `logits`, `present0`, …

    Key and value heads of so many `groups` in a row have the mean of their weights.
    """
    torch.manual_seed(KINDS.index(kind))
    model = Decoder(kind).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape) * (0.5 if parameter.ndim == 1 else 0.2))
        for attention in model.attention if groups < HEADS else ():
            for parameter in (*attention.key.parameters(), *attention.value.parameters()):
                parts = parameter.view(groups, HEADS // groups, DEPTH, -1)
                parts.copy_(parts.mean(1, keepdim=True).expand_as(parts))
    sizes = {"batch": 2, "past": 3, "encoded": ENCODED}
    every = shapes(kind) * 2
    pasts = [torch.randn([sizes[d] if isinstance(d, str) else d for d in s]) for s in every]
    place = [torch.arange(3, 5)] if kind == "slots" else []
    inputs = ["ids", *["place"] * len(place), *(f"past{i}" for i in range(len(pasts)))]
    outputs = ["logits", *(f"present{i}" for i in range(len(pasts)))]
    named = {f"past{i}": {k: d for k, d in enumerate(s) if isinstance(d, str)} for i, s in enumerate(every)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            (torch.ones(2, 2, dtype=torch.int64), *place, *pasts),
            path,
            input_names=inputs,
            output_names=outputs,
            dynamic_axes=named | {"ids": {0: "batch", 1: "seq"}, "place": {0: "seq"}},
            opset_version=17,
            dynamo=False,
        )
    return path


def decode(
    path: Path, ids: Array, chunks: Sequence[int], pasts: Sequence[Array]
) -> tuple[Array, list[Array]]:
    """Logits of all tokens, and the last presents, of decoding `ids` in steps of so many tokens."""
    session = onnxruntime.InferenceSession(str(path))
    names = [i.name for i in session.get_inputs()]
    logits, at, held = [], 0, list(pasts)
    for count in chunks:
        feeds = {f"past{i}": past for i, past in enumerate(held)} | {"ids": ids[:, at : at + count]}
        if "place" in names:
            feeds["place"] = np.arange(at, at + count)
        outputs = session.run(None, feeds)
        logits.append(outputs[0])
        held, at = outputs[1:], at + count
    return np.concatenate(logits, axis=1), held


def pasts(path: Path) -> list[Array]:
    """Empty pasts for a decoder (a static cache of zeros); keys and values of an encoder are random."""
    arrays = []
    for value in onnx.load(path).graph.input:
        dims = [d.dim_value or d.dim_param for d in value.type.tensor_type.shape.dim]
        if value.name.startswith("past"):
            sizes = [{"batch": 2, "past": 0, "encoded": ENCODED}.get(d, d) for d in dims]
            random = np.random.default_rng(len(arrays)).standard_normal(sizes)
            arrays.append((random if "encoded" in dims else 0 * random).astype(np.float32))
    return arrays
