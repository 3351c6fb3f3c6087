"""Lengths that strides make of an open length: they stay open, though nearby lengths come to one of them."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc
from growc.dialects.onnx.shapes import sample_points

HEADS, DEPTH, WIDTH, STRIDE = 4, 2, 8, 8


class Strided(nn.Module):
    """Attention on one vector for each eight steps, as in speech; its length may be inferred."""

    def __init__(self, inferred: bool = True) -> None:
        super().__init__()
        self.inferred = inferred
        self.down = nn.Conv1d(5, WIDTH, 1, stride=STRIDE)
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.head = nn.Linear(WIDTH, 3)

    def heads(self, x: torch.Tensor) -> torch.Tensor:
        length = -1 if self.inferred else x.shape[1]
        return x.view(x.shape[0], length, HEADS, DEPTH).transpose(1, 2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(x.transpose(1, 2)).transpose(1, 2)
        q, k, v = self.heads(self.q(x)), self.heads(self.k(x)), self.heads(self.v(x))
        made = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return self.head(x + self.out(made.transpose(1, 2).flatten(2)))


@pytest.mark.parametrize("inferred", [True, False])
def test_heads_are_cut_at_all_lengths(inferred):
    torch.manual_seed(0)
    module, x = Strided(inferred), torch.randn(2, 12, 5)
    recipe = "widen hidden to 16 with cyclic copy\nwiden heads to 8 with cyclic copy\nexpect exact"
    result = growc.apply(module, recipe, {"x": x}, check=False)
    for rows, length in [(2, 12), (3, 40), (1, 100), (5, 5)]:
        x = torch.randn(rows, length, 5)
        torch.testing.assert_close(result(x), module(x), rtol=1e-4, atol=1e-5)


def test_points_near_each_other_are_left_where_strides_merge_them():
    [length] = {
        value.sizes[1]
        for value in growc.inspect(Strided(), example_inputs={"x": torch.randn(2, 12, 5)}).graph.inputs
        if value.sizes is not None and value.sizes[2:] == ((5, 5),)
    }
    assert length in {points for choice in sample_points.FAR for points in choice}
    assert length[0] // STRIDE != length[1] // STRIDE


def test_points_near_each_other_stay_where_nothing_merges_them():
    module = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 5))
    [sizes] = [v.sizes for v in growc.inspect(module, example_inputs=torch.randn(2, 12, 5)).graph.inputs]
    assert sizes == (*sample_points.SAMPLES[0][:2], (5, 5))
