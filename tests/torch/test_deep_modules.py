"""Modules with more operators behind one another than Python's stack has frames."""

from __future__ import annotations

import sys

import torch
from torch import Tensor, nn

import growc


class Deep(nn.Module):
    """A stem, many additions, and an operator that asks which size they have."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.stem, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.depth = depth

    def forward(self, x: Tensor) -> Tensor:
        """One row for each row."""
        x = self.stem(x)
        for _ in range(self.depth):
            x = x + 0.001
        return self.head(x + torch.zeros_like(x))


def test_chain_longer_than_the_stack_is_planned() -> None:
    module = Deep(sys.getrecursionlimit())
    inputs = (torch.randn(2, 3),)
    plan = growc.plan('widen axis 0 of "stem.weight" to 8 with neighbor copy', module, example_inputs=inputs)
    assert plan.certificate.exact
