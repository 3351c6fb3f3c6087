"""Convolutions whose weights are normalised on the way, by a batch norm of one row."""

from __future__ import annotations

from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.nn import functional

import growc

X = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(0))


class Standardised(nn.Conv2d):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.weight.reshape(1, self.out_channels, -1)
        weight = functional.batch_norm(row, None, None, training=True, momentum=0.0, eps=1e-6)
        return functional.conv2d(x, weight.reshape_as(self.weight), self.bias, padding=1)


class Net(nn.Module):
    def __init__(self, convolutions: int) -> None:
        super().__init__()
        sizes = [3, 4, 4][: convolutions + 1]
        self.convolutions = nn.ModuleList(Standardised(i, o, 3) for i, o in pairwise(sizes))
        self.head = nn.Linear(4, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for one in self.convolutions:
            x = torch.relu(one(x))
        return self.head(x.mean((2, 3)))


def seeded(convolutions: int) -> nn.Module:
    torch.manual_seed(0)
    module = Net(convolutions)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.2, 0.3)
    return module.eval()


@pytest.mark.parametrize("fill", ["cyclic copy", "uniform copy", "zero fill"])
def test_outputs_of_a_normalised_weight_grow_by_themselves(fill):
    module = seeded(1)
    grown = growc.apply(module, f"widen channels to 8 with {fill}\nexpect exact", (X,))
    assert grown.state_dict()["convolutions.0.weight"].shape == (8, 3, 3, 3)
    with torch.no_grad():
        torch.testing.assert_close(grown(X), module(X), rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["cyclic copy", "uniform copy", "zero fill"])
def test_shares_of_inputs_are_no_shares_behind_the_norm(fill):
    plan = growc.plan(f"widen channels to 8 with {fill}", seeded(2), example_inputs=(X,))
    assert plan.certificate.gaps
    assert {gap.node.split("/")[0] for gap in plan.certificate.gaps} == {"convolutions.1"}
    grown = growc.apply(seeded(2), f"widen channels to 8 with {fill}", (X,))
    assert grown.state_dict()["convolutions.1.weight"].shape == (8, 8, 3, 3)
    with torch.no_grad():
        assert grown(X).isfinite().all()
        assert (grown(X) - seeded(2)(X)).abs().max() > 1e-2
