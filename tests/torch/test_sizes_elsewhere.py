"""Sizes that are one at the sample points and several elsewhere stay what the model computes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc

FIRST = 9
"""The sample points have lengths near it, at which the model below makes one size of several."""


class Upsampled(nn.Module):
    """One place for eight, up to eight places; then two for each. Its table is too short for far lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(torch.randn(4, 6))
        self.up = nn.Linear(6, 16)
        self.down = nn.Linear(8, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        places = torch.sym_min(x.shape[1] // 8, 8)
        wide = self.up(x[:, :places] + self.table[:places])
        return self.down(torch.relu(wide.reshape(x.shape[0], 2 * places, 8)))


@pytest.mark.parametrize("length", [FIRST, 17, 32, 39])
def test_a_length_that_strides_and_bounds_make_is_no_constant(length: int) -> None:
    torch.manual_seed(0)
    model, x = Upsampled(), torch.randn(3, length, 6)
    statement = 'widen axis 1 of "down.weight" to 16 with neighbor copy'
    wide = growc.apply(statement, model, example_inputs=(torch.randn(2, 32, 6),))
    assert wide.plan.certificate.exact
    assert torch.allclose(wide(x), model(x), atol=1e-6)
    assert wide.down.weight.shape == (6, 16)
