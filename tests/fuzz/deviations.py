"""Norms by every variance that torch has, in every spelling, and what is left of them when they grow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor, nn

WIDTH, TOKENS = 8, 11
RECIPES = {
    "twice": "widen hidden to 16 with cyclic copy",
    "mean": "widen hidden to 13 with average fill",
    "again": "widen hidden to 12 with average fill\nwiden hidden to 24 with cyclic copy",
}
"""All are exact on a stream that only such norms read."""

CORRECTIONS: Mapping[str, dict[str, object]] = {
    "default": {},
    "biased": {"unbiased": False},
    "unbiased": {"unbiased": True},
    "none": {"correction": 0},
    "two": {"correction": 2},
    "half": {"correction": 0.5},
}

Scale = Callable[[Tensor, dict[str, object]], Tensor]
SCALES: dict[str, Scale] = {
    "std + eps": lambda x, c: x.std(-1, keepdim=True, **c) + 0.3,
    "std, no eps": lambda x, c: x.std(-1, keepdim=True, **c),
    "std, bounded": lambda x, c: x.std(-1, keepdim=True, **c).clamp(min=1.1),
    "std, unsqueezed": lambda x, c: x.std(-1, **c).unsqueeze(-1) + 0.3,
    "std of a list": lambda x, c: torch.std(x, [x.dim() - 1], keepdim=True, **c) + 0.3,
    "std_mean": lambda x, c: torch.std_mean(x, -1, keepdim=True, **c)[0] + 0.3,
    "sqrt(var + eps)": lambda x, c: torch.sqrt(x.var(-1, keepdim=True, **c) + 0.3),
    "var, halves": lambda x, c: (x.var(dim=-1, keepdim=True, **c) + 0.3) ** 0.5,
    "var, bounded": lambda x, c: torch.sqrt(x.var(-1, keepdim=True, **c).clamp(min=1.1)),
    "var_mean": lambda x, c: torch.sqrt(torch.var_mean(x, -1, keepdim=True, **c)[0] + 0.3),
    "var, doubled": lambda x, c: torch.sqrt(2 * x.var(-1, keepdim=True, **c) + 0.3),
}


class Norm(nn.Module):
    """gain · (x − mean) / scale + bias."""

    def __init__(self, scale: Scale, correction: dict[str, object], last: bool) -> None:
        super().__init__()
        self.gain = nn.Parameter(1 + 0.3 * torch.randn(WIDTH))
        self.bias = nn.Parameter(torch.randn(WIDTH))
        self.scale, self.correction, self.last = scale, correction, last

    def forward(self, x: Tensor) -> Tensor:
        off, scale = x - x.mean(-1, keepdim=True), self.scale(x, self.correction)
        return (off / scale * self.gain if self.last else self.gain * off / scale) + self.bias


class Stream(nn.Module):
    """A residual block between two such norms."""

    def __init__(self, scale: Scale, correction: dict[str, object], last: bool = False) -> None:
        super().__init__()
        self.table = nn.Embedding(TOKENS, WIDTH)
        self.first, self.second = (Norm(scale, correction, last) for _ in range(2))
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        x = x + self.down(torch.relu(self.up(self.first(x))))
        logits: Tensor = self.head(self.second(x))
        return logits


@dataclass(frozen=True)
class Deviation:
    """One norm in one spelling, and one recipe."""

    name: str
    module: nn.Module
    recipe: str
    tokens: Tensor


def deviations() -> Iterator[Deviation]:
    """Every spelling with every correction; the order of the gain and the recipe take turns."""
    tokens = torch.arange(6).reshape(2, 3)
    for number, (scale, correction) in enumerate(product(SCALES, CORRECTIONS)):
        torch.manual_seed(number)
        module = Stream(SCALES[scale], CORRECTIONS[correction], bool(number % 2)).eval()
        for key in list(RECIPES)[number % 3 :][:2]:
            yield Deviation(f"{scale}, {correction}, {key}", module, RECIPES[key], tokens)
