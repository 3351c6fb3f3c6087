"""The models that are trained: a GPT over bytes and a ViT over digits, of the same blocks. Needs torch alone.

LayerNorm stands before each branch, as in GPT-2. The head is a table of its own, so that it can be trained
where the embeddings are not. Every size is a field of its own, so that a result of growc, whatever its
sizes, is a model of these classes with the same names of parameters.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn
from torch.nn import functional

INITIAL_STD = 0.02
"""Standard deviation of the matrices of a new model; those that end a branch have less, as in GPT-2."""


@dataclass(frozen=True)
class Shape:
    """The sizes of a model. `kind` is "gpt" or "vit"; `length` counts the places of a sample."""

    kind: str = "gpt"
    layers: int = 6
    width: int = 64
    heads: int = 4
    head_dim: int = 16
    ffn: int = 256
    length: int = 128
    inputs: int = 256
    outputs: int = 256

    def wider(self, numerator: int, denominator: int) -> Shape:
        """The same depth with the stream, heads and feed-forward units in proportion."""
        sizes = {n: getattr(self, n) * numerator // denominator for n in ("width", "heads", "ffn")}
        return replace(self, **sizes)


class Attention(nn.Module):
    """Several heads, each of its own queries, keys and values; [B, T, width] to the same."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        inner = shape.heads * shape.head_dim
        self.head_dim, self.causal = shape.head_dim, shape.kind == "gpt"
        self.q = nn.Linear(shape.width, inner)
        self.k = nn.Linear(shape.width, inner)
        self.v = nn.Linear(shape.width, inner)
        self.out = nn.Linear(inner, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """The result of all heads, projected back to the stream."""
        q, k, v = (m(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2) for m in (self.q, self.k, self.v))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
        return self.out(attended.transpose(1, 2).flatten(2))


class Block(nn.Module):
    """One layer: attention and a feed-forward network, each behind a LayerNorm; [B, T, width] to the same."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(shape.width)
        self.attention = Attention(shape)
        self.norm_2 = nn.LayerNorm(shape.width)
        self.up = nn.Linear(shape.width, shape.ffn)
        self.down = nn.Linear(shape.ffn, shape.width)

    def forward(self, x: Tensor) -> Tensor:
        """The stream with both branches added."""
        x = x + self.attention(self.norm_1(x))
        return x + self.down(functional.gelu(self.up(self.norm_2(x))))


class Trunk(nn.Module):
    """All but what is made of the stream: an embedding, positions, blocks, the last norm, and a head."""

    def __init__(self, shape: Shape, embedding: nn.Module) -> None:
        super().__init__()
        self.embedding = embedding
        self.positions = nn.Embedding(shape.length, shape.width)
        self.blocks = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.norm = nn.LayerNorm(shape.width)
        self.head = nn.Linear(shape.width, shape.outputs, bias=False)

    def stream(self, given: Tensor) -> Tensor:
        """The normed stream [B, T, width] of what is given [B, T, …]."""
        places = torch.arange(given.shape[1], device=given.device)
        x = self.embedding(given) + self.positions(places)
        for block in self.blocks:
            x = block(x)
        return self.norm(x)


class Gpt(Trunk):
    """Bytes [B, T] to the logits of each next byte [B, T, 256]."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, nn.Embedding(shape.inputs, shape.width))

    def forward(self, ids: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.stream(ids))


class Vit(Trunk):
    """Patches [B, T, inputs] to the logits of classes [B, outputs], from the mean of the stream."""

    def __init__(self, shape: Shape) -> None:
        super().__init__(shape, nn.Linear(shape.inputs, shape.width))

    def forward(self, patches: Tensor) -> Tensor:
        """Logits."""
        return self.head(self.stream(patches).mean(1))


def norms_of(model: nn.Module) -> dict[str, nn.LayerNorm]:
    """The norms of a model by name. Their eps, which growth changes, is no part of `state_dict`."""
    return {name: module for name, module in model.named_modules() if isinstance(module, nn.LayerNorm)}


def model_of(shape: Shape, seed: int) -> Gpt | Vit:
    """A new model; equal seeds draw alike whatever was drawn before."""
    model = Gpt(shape) if shape.kind == "gpt" else Vit(shape)
    draws = torch.Generator().manual_seed(seed)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
        elif "norm" not in name:
            ends = name.endswith(("attention.out.weight", "down.weight"))
            std = INITIAL_STD / (2 * shape.layers) ** 0.5 if ends else INITIAL_STD
            nn.init.normal_(parameter, std=std, generator=draws)
    return model
