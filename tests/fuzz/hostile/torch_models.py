"""Whole modules: a start, layers, what stands between them, an end."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from hostile.torch_norms import norm
from hostile.torch_parts import Attention, Built, Feed, Library, Mixer, Pick

VOCAB = 9


class Layer(nn.Module):
    """Branches around a stream."""

    def __init__(self, p: Pick, d: int, cross: bool) -> None:
        super().__init__()
        self.form = p.some("layer", {"pre": 8, "post": 3, "sandwich": 2, "parallel": 2, "bare": 1})
        kinds = {"attention feed": 6, "feed": 3, "library feed": 2, "mixer feed": 3, "attention": 1}
        parts = p.some("parts", kinds)
        kinds_of_part = {"attention": Attention, "library": Library, "mixer": Mixer, "feed": Feed}
        self.branches = nn.ModuleList(kinds_of_part[part](p, d) for part in parts.split())
        self.cross = Attention(p, d) if cross else None
        self.norms = nn.ModuleList(norm(p, d) for _ in self.branches)
        self.others = nn.ModuleList(norm(p, d) for _ in self.branches) if self.form == "sandwich" else None
        self.back = p.some("back", {"add": 8, "scale": 2, "number": 1, "gate": 1, "drop": 2})
        if self.back == "scale":
            self.scales = nn.ParameterList(0.7 + 0.3 * torch.randn(d) for _ in self.branches)
        if self.back == "gate":
            self.gates = nn.ModuleList(nn.Linear(d, d) for _ in self.branches)
        self.drop = nn.Dropout(0.1)

    def forward(self, x: Tensor, memory: Tensor | None = None) -> Tensor:
        if self.form == "parallel":
            y = self.norms[0](x)
            return x + sum(branch(y) for branch in self.branches)
        for i, branch in enumerate(self.branches):
            y = branch(self.norms[i](x) if self.form in ("pre", "sandwich") else x)
            if self.others is not None:
                y = self.others[i](y)
            if self.back == "scale":
                y = y * self.scales[i]
            elif self.back == "number":
                y = y * 0.6
            elif self.back == "gate":
                y = y * torch.sigmoid(self.gates[i](x))
            elif self.back == "drop":
                y = self.drop(y)
            x = x + y
            if self.form == "post":
                x = self.norms[i](x)
        if self.cross is not None:
            x = x + self.cross(x, memory)
        return x


BETWEEN: dict[str, Any] = {
    "nothing": lambda x: x,
    "half": lambda x: x.half().to(x.dtype),
    "bfloat": lambda x: x.bfloat16().to(x.dtype),
    "clamp": lambda x: x.clamp(-2, 2.5),
    "relu": F.relu,
    "number": lambda x: x * 0.8,
    "round": lambda x: torch.round(x * 8) / 8,
    "abs": torch.abs,
    "quantise": lambda x: torch.fake_quantize_per_tensor_affine(x.float(), 0.05, 0, -128, 127).to(x.dtype),
    "int": lambda x: (x * 8).int().to(x.dtype) / 8,
    "contiguous": lambda x: x.transpose(1, 2).contiguous().transpose(1, 2),
    "view": lambda x: x.reshape(-1, x.shape[-1]).view(x.shape),
    "unbind": lambda x: torch.stack(x.unbind(0)),
    "where": lambda x: torch.where(x < -1, torch.full_like(x, -1), x),
    "double": lambda x: x.double().to(x.dtype),
}


class Model(nn.Module):
    """A stream from tokens or numbers, through layers, to scores or a state."""

    def __init__(self, p: Pick) -> None:
        super().__init__()
        self.d = d = p.random.choice([4, 6, 8, 12])
        self.start = p.some("start", {"tokens": 5, "floats": 5, "normed": 1, "patches": 1})
        if self.start in ("tokens", "normed"):
            self.table = nn.Embedding(VOCAB, d)
        elif self.start == "patches":
            self.stem: nn.Module = nn.Conv1d(3, d, 3, padding=1)
        else:
            self.stem = nn.Linear(3, d)
        self.placed = p.some("places", {"none": 3, "learned": 2, "angles": 1})
        self.places = nn.Parameter(torch.randn(8, d)) if self.placed == "learned" else None
        self.first = norm(p, d) if p.chance(0.15) else nn.Identity()
        count = p.random.choice([1, 2, 2, 3])
        cross = p.chance(0.08)
        self.memory = nn.Linear(d, d) if cross else None
        state = p.random.getstate()
        layers = []
        for _ in range(count):
            p.random.setstate(state)
            layers.append(Layer(p, d, cross))
        self.layers = nn.ModuleList([layers[0]] * count if p.chance(0.05) else layers)
        kinds = dict.fromkeys(BETWEEN, 0.5) | {"nothing": 16.0}
        self.between = BETWEEN[p.some("stream", kinds)]
        self.given = p.chance(0.1)
        self.last = norm(p, d) if p.chance(0.7) else nn.Identity()
        ends = {
            "head": 4,
            "stream": 1,
            "pooled": 2,
            "tied": 4,
            "cosines": 1,
            "look-up": 1,
            "max": 1,
            "softmax": 1,
        }
        self.end = p.some("end", ends)
        if self.end in ("tied", "cosines") and not hasattr(self, "table"):
            self.end = "head"
        self.head = nn.Linear(d, VOCAB if self.end == "tied" else 5, bias=p.chance(0.5))
        if self.end == "tied":
            self.head.weight = self.table.weight
        if self.end == "look-up":
            self.codes = nn.Parameter(torch.randn(6, d))
        with torch.no_grad():
            for name, parameter in self.named_parameters():
                if name.endswith("weight") and parameter.ndim == 2 and "table" not in name:
                    parameter.mul_(1.6)

    def forward(self, x: Tensor) -> Any:
        if self.start in ("tokens", "normed"):
            x = self.table(x)
            x = F.normalize(x, dim=-1) if self.start == "normed" else x
        elif self.start == "patches":
            x = self.stem(x.transpose(1, 2)).transpose(1, 2)
        else:
            x = self.stem(x)
        if self.places is not None:
            x = x + self.places[: x.shape[1]]
        elif self.placed == "angles":
            x = x + torch.arange(x.shape[1], device=x.device).to(x.dtype)[:, None].sin()
        x = self.first(x)
        memory = None if self.memory is None else self.memory(x)
        states = []
        for layer in self.layers:
            x = self.between(layer(x, memory))
            states.append(x)
        y = self._ended(self.last(x))
        return (y, *states) if self.given else y

    def _ended(self, x: Tensor) -> Tensor:
        if self.end == "stream":
            return x
        if self.end == "cosines":
            return F.normalize(x, dim=-1) @ F.normalize(self.table.weight, dim=-1).t()
        if self.end == "look-up":
            x = (x @ self.codes.t()).softmax(-1) @ self.codes
        elif self.end == "pooled":
            x = x.mean(1)
        elif self.end == "max":
            return x.amax(-1)
        elif self.end == "softmax":
            x = x.softmax(-1)
        return self.head(x)


def model(p: Pick) -> Built:
    """A module with a way to draw its inputs."""
    module = Model(p).eval()
    kind = torch.float64 if p.chance(0.15) else torch.float32
    module = module.to(kind)
    tokens = module.start in ("tokens", "normed")

    def inputs(seed: int, scale: float) -> tuple[Any, ...]:
        draw = torch.Generator().manual_seed(seed * 3 + int(scale * 10))
        if tokens:
            return (torch.randint(0, VOCAB, (2, 5), generator=draw),)
        return (scale * torch.randn((2, 5, 3), generator=draw, dtype=kind),)

    return Built(module, inputs, p.features)
