"""Channels that are shuffled among groups: one size is asked for, and one factor gives it."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import growc

X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))
GROUPS = 2


class Shuffled(nn.Module):
    """A convolution, a shuffle, and one in groups or not."""

    def __init__(self, *, groups: int, whole: bool) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 1, groups=groups)
        self.head, self.whole = nn.Linear(8, 5), whole

    def shuffled(self, x: Tensor) -> Tensor:
        """The first channel of each group, then the second of each, and so on."""
        if self.whole:
            return torch.channel_shuffle(x, GROUPS)
        apart = x.view(x.shape[0], GROUPS, x.shape[1] // GROUPS, *x.shape[2:])
        return apart.transpose(1, 2).reshape(x.shape)

    def forward(self, x: Tensor) -> Tensor:
        """One row for each image."""
        return self.head(self.last(self.shuffled(self.first(x).relu())).mean((2, 3)))


@pytest.mark.parametrize("groups", [1, GROUPS])
@pytest.mark.parametrize("whole", [False, True], ids=["views", "one call"])
@pytest.mark.parametrize("fill", ["neighbor copy", "cyclic copy", "uniform copy"])
def test_channels_become_as_many_as_asked_for(groups: int, whole: bool, fill: str) -> None:
    torch.manual_seed(0)
    module = Shuffled(groups=groups, whole=whole).eval()
    made = growc.apply(
        module, f"widen channels to 2 * channels with {fill}\nexpect exact", example_inputs=(X,)
    )
    assert made.plan.axes["channels"].after == (16,)
    assert made.state_dict()["first.weight"].shape[0] == 16
    with torch.no_grad():
        torch.testing.assert_close(made(X), module(X), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("groups", [1, GROUPS])
def test_half_of_them_is_half(groups: int) -> None:
    module = Shuffled(groups=groups, whole=False).eval()
    made = growc.apply(module, "subclone channels to channels / 2 by magnitude", example_inputs=(X,))
    assert made.state_dict()["first.weight"].shape[0] == 4
    assert made(X).shape == module(X).shape


def test_an_image_becomes_pixels_beside_channels_that_grow() -> None:
    class Folded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.last = nn.Conv2d(3, 4, 1), nn.Conv2d(16, 5, 1)

        def forward(self, x: Tensor) -> Tensor:
            return self.last(nn.functional.pixel_unshuffle(self.first(x).relu(), 2)).mean((2, 3))

    torch.manual_seed(0)
    module = Folded().eval()
    recipe = "widen channels to 2 * channels with neighbor copy\nexpect exact"
    made = growc.apply(module, recipe, example_inputs=(X,))
    assert made.state_dict()["first.weight"].shape[0] == 8
    with torch.no_grad():
        torch.testing.assert_close(made(X), module(X), rtol=1e-5, atol=1e-5)
