"""Modules put together freely: norms, attention, feed-forward parts, and streams of all kinds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hostile.torch_norms import norm

ACTS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "silu": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "squared relu": lambda x: F.relu(x) ** 2,
    "softplus": F.softplus,
    "log abs": lambda x: x * torch.log(x.abs()),
    "xlogy": lambda x: torch.xlogy(x, x.abs()),
    "sqrt": lambda x: torch.sqrt(x.abs() + 0.1) - 0.3,
    "reciprocal": lambda x: 1 / (1 + x * x),
    "sinc": torch.sinc,
    "sin over x": lambda x: torch.sin(x) / x,
    "clamp": lambda x: x.clamp(-0.5, 0.7),
    "clamp off": lambda x: x.clamp(min=0.2),
    "where": lambda x: torch.where(x > 0.1, x, -0.2 * x),
    "remainder": lambda x: torch.remainder(x, 1.0),
    "fmod": lambda x: torch.fmod(x + 0.3, 2.0),
    "softmax": lambda x: x.softmax(-1),
    "round": lambda x: torch.round(x * 4) / 4,
    "half": lambda x: x.half().to(x.dtype),
    "bfloat": lambda x: x.bfloat16().to(x.dtype),
    "abs": torch.abs,
    "hardtanh": F.hardtanh,
    "mish": F.mish,
    "glu half": lambda x: x * x.mean(-1, keepdim=True).sigmoid(),
    "nan to num": lambda x: torch.nan_to_num(x / x),
    "sign": lambda x: torch.sign(x) * x.abs().sqrt(),
    "exp": lambda x: torch.exp(-x.abs()),
    "cos": torch.cos,
    "log1p": lambda x: torch.log1p(x.abs()),
    "logit": lambda x: torch.logit(x.sigmoid(), eps=1e-3),
    "erf": torch.erf,
    "cumsum": lambda x: x.cumsum(-1) * 0.3,
    "topk": lambda x: torch.where(x >= x.topk(2, dim=-1).values[..., -1:], x, torch.zeros_like(x)),
    "sorted": lambda x: x.sort(-1).values,
    "expm1": torch.expm1,
    "threshold": lambda x: F.threshold(x, 0.1, 0.3),
    "roll": lambda x: x.roll(1, -1),
    "flip": lambda x: x.flip(-1),
    "amax": lambda x: x - x.amax(-1, keepdim=True),
    "pow": lambda x: x.abs() ** 1.5,
    "pow zero": lambda x: x.abs() ** 0.0 * x,
    "rsqrt": lambda x: x * torch.rsqrt(x * x + 0.3),
    "atan2": lambda x: torch.atan2(x, x.abs() + 1),
    "int": lambda x: (x * 8).int().to(x.dtype) / 8,
}


@dataclass
class Built:
    """A module, how its inputs are drawn, and what is in it."""

    module: nn.Module
    inputs: Callable[[int, float], tuple[Any, ...]]
    features: list[str] = field(default_factory=list)


class Pick:
    """The structure's draws, which note what they chose."""

    def __init__(self, seed: object) -> None:
        self.random = Random(f"module {seed}")
        self.features: list[str] = []

    def some(self, topic: str, options: dict[str, float]) -> str:
        """One of weighted options."""
        choice = self.random.choices(list(options), list(options.values()))[0]
        if f"{topic}:{choice}" not in self.features:
            self.features.append(f"{topic}:{choice}")
        return choice

    def chance(self, probability: float) -> bool:
        """Whether something is done."""
        return self.random.random() < probability


class Attention(nn.Module):
    """Heads written by hand, or torch's function."""

    def __init__(self, p: Pick, d: int) -> None:
        super().__init__()
        self.how = p.some("attention", {"sdpa": 3, "hand": 4, "einsum": 2, "gqa": 2, "one": 2, "packed": 3})
        self.h = 1 if self.how == "one" else 2
        self.e = p.random.choice([2, 3, 4])
        self.kv = 1 if self.how == "gqa" else self.h
        inner, kv = self.h * self.e, self.kv * self.e
        bias = p.chance(0.6)
        if self.how == "packed":
            self.qkv = nn.Linear(d, 3 * inner, bias=bias)
        else:
            self.q, self.k, self.v = (nn.Linear(d, s, bias=bias) for s in (inner, kv, kv))
        self.o = nn.Linear(inner, d, bias=p.chance(0.6))
        self.causal = p.chance(0.3)
        self.scaled = p.some("scale", {"size": 3, "number": 2, "learned": 1, "normed": 2})
        if self.scaled == "learned":
            self.temperature = nn.Parameter(torch.rand(self.h, 1, 1) + 0.5)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        y = x if y is None else y
        b, s, _ = x.shape
        if self.how == "packed":
            q, k, v = (t.view(b, s, self.h, self.e).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        else:
            q = self.q(x).view(b, s, self.h, self.e).transpose(1, 2)
            k, v = (f(y).view(b, y.shape[1], self.kv, self.e).transpose(1, 2) for f in (self.k, self.v))
        if self.kv != self.h:
            k, v = (t.repeat_interleave(self.h // self.kv, 1) for t in (k, v))
        if self.scaled == "normed":
            q, k = F.normalize(q, dim=-1), F.normalize(k, dim=-1)
        if self.how == "sdpa":
            c = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        elif self.how == "einsum":
            c = torch.einsum("bhst,bhte->bhse", (torch.einsum("bhse,bhte->bhst", q, k) / 2).softmax(-1), v)
        else:
            scores = q @ k.transpose(-1, -2)
            scores = scores * (self.temperature if self.scaled == "learned" else 0.6)
            if self.scaled == "size":
                scores = scores / q.size(-1) ** 0.5
            if self.causal:
                mask = torch.ones(s, s, dtype=torch.bool, device=x.device).tril()
                scores = scores.masked_fill(~mask, float("-inf"))
            c = scores.softmax(-1) @ v
        return self.o(c.transpose(1, 2).reshape(b, s, -1))


class Library(nn.Module):
    """nn.MultiheadAttention, on one state or on several."""

    def __init__(self, p: Pick, d: int) -> None:
        super().__init__()
        self.states = p.some("library", {"one": 3, "kv": 1, "three": 1})
        self.inner = nn.MultiheadAttention(d, 2, bias=p.chance(0.6), batch_first=True)
        self.before = nn.Linear(d, d)
        self.after = norm(p, d)

    def forward(self, x: Tensor, y: Tensor | None = None) -> Tensor:
        key = x if y is None else y
        value = key
        if self.states == "three":
            key, value = self.after(key), self.before(value)
        elif self.states == "kv":
            key = value = self.after(key)
        return self.inner(x, key, value, need_weights=False)[0]


class Feed(nn.Module):
    """Feed-forward parts: plain, gated, packed, mixed by experts."""

    def __init__(self, p: Pick, d: int) -> None:
        super().__init__()
        self.how = p.some(
            "feed", {"plain": 6, "gated": 4, "packed": 2, "experts": 2, "low rank": 1, "normed": 1}
        )
        self.width = f = p.random.choice([6, 8, 10])
        self.act = ACTS[p.some("act", dict.fromkeys(ACTS, 1.0) | {"relu": 4, "gelu": 4, "silu": 4})]
        self.up = nn.Linear(d, 2 * f if self.how == "packed" else f, bias=p.chance(0.7))
        self.down = nn.Linear(f, d, bias=p.chance(0.7))
        self.inner = nn.Identity()
        if self.how == "gated":
            self.gate = nn.Linear(d, f, bias=p.chance(0.3))
        if self.how == "normed":
            self.inner = norm(p, f)
        if self.how == "experts":
            self.router = nn.Linear(d, 3)
            self.first = nn.Parameter(torch.randn(3, d, f) * 0.5)
            self.second = nn.Parameter(torch.randn(3, f, d) * 0.5)
            self.top = p.chance(0.5)
        if self.how == "low rank":
            self.a, self.b = nn.Linear(d, 2, bias=False), nn.Linear(2, f, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        if self.how == "experts":
            scores = self.router(x)
            if self.top:
                kept = scores.topk(2, -1)
                scores = torch.full_like(scores, -1e4).scatter(-1, kept.indices, kept.values)
            h = self.act(torch.einsum("bsd,edf->bsef", x, self.first))
            return torch.einsum("bsef,efd,bse->bsd", h, self.second, scores.softmax(-1))
        h = self.up(x)
        if self.how == "packed":
            a, b = h.chunk(2, -1)
            return self.down(a * self.act(b))
        if self.how == "low rank":
            h = h + self.b(self.a(x))
        h = self.act(h)
        return self.down(self.inner(h * self.gate(x) if self.how == "gated" else h))


class Mixer(nn.Module):
    """A mixer of steps without scores: recurrences, convolutions, means."""

    def __init__(self, p: Pick, d: int) -> None:
        super().__init__()
        self.how = p.some("mixer", {"gru": 2, "lstm": 2, "conv": 2, "mean": 1, "depthwise": 2, "cumsum": 1})
        if self.how in ("gru", "lstm"):
            kind = nn.GRU if self.how == "gru" else nn.LSTM
            both = p.chance(0.3)
            self.inner: nn.Module = kind(d, 5, batch_first=True, bidirectional=both)
            self.out = nn.Linear(10 if both else 5, d)
        else:
            self.inner = nn.Conv1d(d, d, 3, padding=1, groups=d if self.how == "depthwise" else 1)
            self.out = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        if self.how in ("gru", "lstm"):
            return self.out(self.inner(x)[0])
        if self.how in ("conv", "depthwise"):
            return self.out(self.inner(x.transpose(1, 2)).transpose(1, 2))
        return self.out(x.mean(1, keepdim=True).expand_as(x) if self.how == "mean" else x.cumsum(1) * 0.3)


def build(seed: int) -> Built:
    """The module of a seed."""
    from hostile.torch_models import model

    torch.manual_seed(seed)
    return model(Pick(seed))
