"""Tokens of which there are none stand in front of a sequence, and are as wide as it."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc

WIDTH = 8
IDS = torch.tensor([[3, 7, 1], [5, 0, 2]])


class Prefixed(nn.Module):
    """One token for the class, and registers."""

    def __init__(self, registers: int) -> None:
        super().__init__()
        self.token = nn.Parameter(torch.randn(1, 1, WIDTH))
        self.registers = nn.Parameter(torch.randn(1, registers, WIDTH))
        self.embedding, self.head = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, 5)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, ids):
        rows = ids.shape[0]
        before = self.token.expand(rows, -1, -1), self.registers.expand(rows, -1, -1)
        x = torch.cat([*before, self.embedding(ids)], 1)
        return self.head(x + self.down(self.up(x).relu()))


def test_the_width_of_no_tokens_grows_with_that_of_the_others():
    torch.manual_seed(0)
    source = Prefixed(0).eval()
    grown = growc.apply(source, "widen hidden to 16 with cyclic copy\nexpect exact", IDS)
    assert grown.state_dict()["registers"].shape == (1, 0, 16)
    with torch.no_grad():
        assert torch.allclose(source(IDS), grown(IDS), atol=1e-5)


class Collected(nn.Module):
    """A model that collects each block's input, from nothing on; each block reads a mean of all so far."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(9, WIDTH), nn.Linear(WIDTH, 5)
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.ups = nn.ModuleList(nn.Linear(WIDTH, 12) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(12, WIDTH) for _ in range(2))

    def forward(self, ids):
        x = self.embedding(ids)
        states = x.new_zeros(*x.shape[:-1], 0, x.shape[-1])
        for norm, up, down in zip(self.norms, self.ups, self.downs, strict=True):
            states = torch.cat([states, x.unsqueeze(-2)], -2)
            x = x + down(up(norm(states).mean(-2)).relu())
        return self.head(x)


@pytest.mark.parametrize("fill", ["cyclic copy", "average fill"])
def test_a_list_that_begins_with_nothing_grows_with_what_comes_to_it(fill):
    torch.manual_seed(0)
    source = Collected().eval()
    grown = growc.apply(source, f"widen hidden to 16 with {fill}\nexpect exact", IDS)
    with torch.no_grad():
        assert torch.allclose(source(IDS), grown(IDS), atol=1e-5)
