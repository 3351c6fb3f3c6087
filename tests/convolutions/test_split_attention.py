"""Groups of a convolution that are weighed against each other and summed up: their number stays."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import growc

RADIX = 2
X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


class Split(nn.Module):
    """Each group sees its part of the channels; a softmax over the groups weighs what they make."""

    def __init__(self) -> None:
        super().__init__()
        self.stem, self.conv = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 12, 1, groups=RADIX)
        self.squeeze, self.expand = nn.Conv2d(6, 4, 1), nn.Conv2d(4, 12, 1)
        self.head = nn.Linear(6, 5)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each image."""
        x = self.conv(self.stem(x).relu()).relu()
        parts = x.reshape(x.shape[0], RADIX, 6, *x.shape[2:])
        pooled = parts.sum(1).mean((2, 3), keepdim=True)
        scores = self.expand(self.squeeze(pooled).relu()).view(-1, 1, RADIX, 6).transpose(1, 2).softmax(1)
        return self.head((parts * scores.reshape(-1, RADIX, 6, 1, 1)).sum(1).mean((2, 3)))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    torch.manual_seed(0)
    return Split().eval()


@pytest.mark.parametrize(
    "recipe",
    [
        "widen channels to 2 * channels with neighbor copy",
        "widen channels to 3 * channels with cyclic copy",
        "reorder channels by magnitude",
    ],
)
def test_channels_change_inside_of_the_groups(module: nn.Module, recipe: str) -> None:
    made = growc.apply(module, f"{recipe}\nexpect exact", example_inputs=(X,))
    with torch.no_grad():
        torch.testing.assert_close(made(X), module(X), rtol=1e-5, atol=1e-5)


def test_half_of_what_each_group_makes_is_dropped(module: nn.Module) -> None:
    half = "subclone channels to channels / 2 by magnitude"
    sizes = growc.plan(half, module, example_inputs=(X,)).axes["channels"]
    assert {8: 4, 12: 6, 6: 3, 4: 2}.items() >= dict(zip(sizes.before, sizes.after, strict=True)).items()
