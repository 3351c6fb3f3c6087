"""Queries, keys and values of one packed tensor may come from three functions of a stream."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import growc

TOKENS = torch.arange(6).reshape(2, 3)
FUNCTIONS = {
    "the values": (torch.relu, torch.relu, torch.cos),
    "the queries": (torch.cos, torch.relu, torch.relu),
    "all": (torch.tanh, torch.exp, torch.cos),
}


class Attends(nn.Module):
    def __init__(self, *functions) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table, self.head = nn.Embedding(7, 8), nn.Linear(8, 5)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        nn.init.normal_(self.attention.in_proj_bias)
        self.functions = functions

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        x = x + self.down(torch.relu(self.up(x)))
        query, key, value = (function(x) for function in self.functions)
        return self.head(self.attention(query, key, value, need_weights=False)[0])


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["12 with zero fill", "16 with cyclic copy split random noise 0.3 balanced"])
@pytest.mark.parametrize("functions", FUNCTIONS.values(), ids=FUNCTIONS)
def test_one_packed_tensor_reads_three_activations(functions, fill):
    module = Attends(*functions).eval()
    result = growc.apply(module, f"widen hidden to {fill}", (TOKENS,), check=False)
    assert result.plan.certificate.exact
    torch.testing.assert_close(result(TOKENS), module(TOKENS), rtol=1e-5, atol=1e-5)
