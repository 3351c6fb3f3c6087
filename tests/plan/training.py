"""Small modules in double precision, and how many of their units training tells apart: as measured."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

WIDTH, HEADS, FFN, TOKENS = 8, 4, 6, 11


class Block(nn.Module):
    """A pre-norm block: attention with groups of query heads, and a feed-forward network."""

    def __init__(self, norm: type[nn.Module], keys: int, gated: bool) -> None:
        super().__init__()
        self.keys, size = keys, 4
        self.norm1, self.norm2 = norm(WIDTH), norm(WIDTH)
        self.q = nn.Linear(WIDTH, HEADS * size)
        self.k = nn.Linear(WIDTH, keys * size)
        self.v = nn.Linear(WIDTH, keys * size)
        self.o = nn.Linear(HEADS * size, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, FFN), nn.Linear(FFN, WIDTH)
        self.gate = nn.Linear(WIDTH, FFN) if gated else None

    def forward(self, x: Tensor) -> Tensor:
        n = self.norm1(x)
        batch, length, _ = x.shape
        q, k, v = (one(n).view(batch, length, -1, 4).transpose(1, 2) for one in (self.q, self.k, self.v))
        if self.keys < HEADS:
            k, v = (t.repeat_interleave(HEADS // self.keys, dim=1) for t in (k, v))
        p = torch.softmax(q @ k.transpose(-1, -2) / 2, dim=-1)
        x = x + self.o((p @ v).transpose(1, 2).reshape(batch, length, -1))
        n = self.norm2(x)
        act = self.up(n) * nn.functional.silu(self.gate(n)) if self.gate else nn.functional.gelu(self.up(n))
        return x + self.down(act)


class Transformer(nn.Module):
    """Blocks between an embedding and a head."""

    def __init__(
        self,
        depth: int,
        norm: type[nn.Module] = nn.LayerNorm,
        keys: int = HEADS,
        gated: bool = False,
        tied: bool = False,
    ) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.blocks = nn.ModuleList(Block(norm, keys, gated) for _ in range(depth))
        self.norm = norm(WIDTH)
        self.head = nn.Linear(WIDTH, TOKENS, bias=False)
        if tied:
            self.head.weight = self.table.weight

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for block in self.blocks:
            x = block(x)
        return self.head(self.norm(x))


class Images(nn.Module):
    """Two convolutions and a head behind a mean."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 6, 3), nn.Conv2d(6, 7, 3)
        self.scale, self.head = nn.BatchNorm2d(6), nn.Linear(7, 5)

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.gelu(self.scale(self.first(x)))
        return self.head(nn.functional.gelu(self.second(x)).mean((2, 3)))


class Perceptron(nn.Module):
    """Two layers with any nonlinearity between them."""

    def __init__(self, nonlinear: nn.Module) -> None:
        super().__init__()
        self.up, self.act, self.down = nn.Linear(5, 6), nonlinear, nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(self.act(self.up(x)))


def made(model: str, depth: int = 2) -> tuple[nn.Module, tuple[Tensor, ...]]:
    """A module with drawn weights, and what its forward takes."""
    torch.manual_seed(7)
    tokens = torch.randint(0, TOKENS, (3, 5))
    images = torch.randn(2, 2, 7, 7, dtype=torch.float64)
    rows = torch.randn(9, 5, dtype=torch.float64)
    module, given = {
        "layer": lambda: (Transformer(depth), tokens),
        "tied": lambda: (Transformer(depth, tied=True), tokens),
        "rms": lambda: (Transformer(depth, nn.RMSNorm, gated=True), tokens),
        "grouped": lambda: (Transformer(depth, nn.RMSNorm, keys=2), tokens),
        "images": lambda: (Images(), images),
        "gelu": lambda: (Perceptron(nn.GELU()), rows),
        "sigmoid": lambda: (Perceptron(nn.Sigmoid()), rows),
    }[model]()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module.double(), (given,)


Places = list[list[tuple[str, int, int]]]
"""For each space of an axis: parameters, the axis of them, and how many of its elements a unit has."""


def places(model: str, axis: str, depth: int = 2) -> Places:
    """Where the units of an axis stand, of a model that `made` gives, whatever its sizes."""
    blocks = [f"blocks.{k}." for k in range(depth)]
    if model == "images":
        first = [("first.weight", 0, 1), ("first.bias", 0, 1), ("scale.weight", 0, 1), ("scale.bias", 0, 1)]
        second = [("second.weight", 0, 1), ("second.bias", 0, 1), ("head.weight", 1, 1)]
        return [[*first, ("second.weight", 1, 1)], second]
    if model in ("gelu", "sigmoid"):
        return [[("up.weight", 0, 1), ("up.bias", 0, 1), ("down.weight", 1, 1)]]
    if axis == "ffn":
        makers = ("up", "gate") if model == "rms" else ("up",)
        rows = [(f"{m}.{kind}", 0, 1) for m in makers for kind in ("weight", "bias")]
        return [[(b + n, a, s) for n, a, s in [*rows, ("down.weight", 1, 1)]] for b in blocks]
    if axis == "heads":
        rows = [(f"{m}.{kind}", 0, 4) for m in "qkv" for kind in ("weight", "bias")]
        rows = [m for m in rows if model != "grouped" or m[0].startswith("q")]
        return [[(b + n, a, s) for n, a, s in [*rows, ("o.weight", 1, 4)]] for b in blocks]
    if axis == "kv_heads":
        rows = [(f"{m}.{kind}", 0, 4) for m in "kv" for kind in ("weight", "bias")]
        return [[(b + n, a, s) for n, a, s in rows] for b in blocks]
    norms = [f"{b}norm{k}" for b in blocks for k in (1, 2)] + ["norm"]
    parts = [(f"{n}.weight", 0, 1) for n in norms]
    parts += [] if model in ("rms", "grouped") else [(f"{n}.bias", 0, 1) for n in norms]
    readers = ("q", "k", "v", "up", "gate") if model == "rms" else ("q", "k", "v", "up")
    parts += [(f"{b}{n}.weight", 1, 1) for b in blocks for n in readers]
    parts += [(f"{b}{n}.{kind}", 0, 1) for b in blocks for n in ("o", "down") for kind in ("weight", "bias")]
    return [[*parts, ("table.weight", 1, 1), ("head.weight", 1, 1)]]


def units(module: nn.Module, space: list[tuple[str, int, int]], gradients: bool = False) -> Tensor:
    """All that belongs to each unit of a space, shape (units, numbers)."""
    parameters = dict(module.named_parameters(remove_duplicate=False))
    rows = []
    for name, axis, size in space:
        value = parameters[name].grad if gradients else parameters[name].detach()
        assert value is not None
        moved = value.movedim(axis, 0)
        rows.append(moved.reshape(len(moved) // size, -1))
    return torch.cat(rows, dim=1)


def train(module: nn.Module, inputs: tuple[Any, ...], steps: int = 3) -> None:
    """Some steps of AdamW towards drawn targets."""
    module.train()
    target = torch.randn(module(*inputs).shape, generator=torch.Generator().manual_seed(3)).double()
    optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        (module(*inputs) - target).square().mean().backward()
        optimizer.step()


def different(rows: Tensor) -> int:
    """How many rows there are, if those that are equal but for rounding count once."""
    apart = (rows[:, None] - rows[None]).abs().amax(-1) > 1e-7
    return len({tuple(row) for row in apart.tolist()})
