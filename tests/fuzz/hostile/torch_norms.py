"""Norms of modules: torch's own, and those that people write."""

from __future__ import annotations

from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

KINDS = {
    "layer": 6, "layer bare": 1, "rms": 3, "rms hand": 4, "layer hand": 3, "std": 2, "unbiased": 2, "l2": 3,
    "l1": 1, "batch": 2, "group": 1, "scale": 1, "tanh": 1, "double": 1, "plus one": 1,
    "norm op": 1, "var mean": 1,
}  # fmt: skip


class Norm(nn.Module):
    """A norm over the last axis in one of its spellings."""

    def __init__(self, how: str, d: int, eps: float) -> None:
        super().__init__()
        self.how, self.eps, self.d = how, eps, d
        self.gain = nn.Parameter(1 + 0.4 * torch.randn(d))
        self.bias = (
            nn.Parameter(0.4 * torch.randn(d))
            if how in ("layer hand", "std", "unbiased", "var mean")
            else None
        )
        self.inner: nn.Module | None = None
        if how == "layer":
            self.inner = nn.LayerNorm(d, eps=eps)
        elif how == "layer bare":
            self.inner = nn.LayerNorm(d, eps=eps, elementwise_affine=False)
        elif how == "rms":
            self.inner = nn.RMSNorm(d, eps=eps)
        elif how == "batch":
            self.inner = nn.BatchNorm1d(d, eps=eps)
            self.inner.running_mean.normal_(0, 0.3)
            self.inner.running_var.uniform_(0.5, 2)
        elif how == "group":
            self.inner = nn.GroupNorm(2, d, eps=eps)

    def forward(self, x: Tensor) -> Tensor:
        if self.how in ("batch", "group"):
            assert self.inner is not None
            return self.inner(x.transpose(1, 2)).transpose(1, 2)
        if self.inner is not None:
            return self.inner(x)
        y = self._normed(x) * (1 + self.gain if self.how == "plus one" else self.gain)
        return y if self.bias is None else y + self.bias

    def _normed(self, x: Tensor) -> Tensor:
        if self.how in ("rms hand", "plus one"):
            return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        if self.how == "double":
            wide = x.double()
            return (wide / (wide.square().mean(-1, keepdim=True) + self.eps).sqrt()).to(x.dtype)
        if self.how == "layer hand":
            centred = x - x.mean(-1, keepdim=True)
            return centred / (centred.pow(2).mean(-1, keepdim=True) + self.eps).sqrt()
        if self.how == "std":
            return (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + self.eps)
        if self.how == "unbiased":
            return (x - x.mean(-1, keepdim=True)) / torch.sqrt(x.var(-1, keepdim=True) + self.eps)
        if self.how == "var mean":
            variance, mean = torch.var_mean(x, -1, correction=0, keepdim=True)
            return (x - mean) / torch.sqrt(variance + self.eps)
        if self.how == "l2":
            return F.normalize(x, dim=-1, eps=self.eps) * self.d**0.5
        if self.how == "l1":
            return x / (x.abs().sum(-1, keepdim=True) + self.eps)
        if self.how == "norm op":
            return x / (x.norm(dim=-1, keepdim=True) * self.d**-0.5 + self.eps)
        return torch.tanh(x) if self.how == "tanh" else x * 0.5


def norm(p: Any, d: int) -> Norm:
    """A norm with random parameters and an eps that shows."""
    module = Norm(p.some("norm", KINDS), d, p.random.choice([1e-5, 1e-3, 0.05, 0.4]))
    with torch.no_grad():
        if module.inner is not None:
            for parameter in module.inner.parameters():
                parameter.add_(0.4 * torch.randn_like(parameter))
    return module
