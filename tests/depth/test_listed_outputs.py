"""Lists of what stands between layers, which a model gives out: they have what the result's layers have."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc

WIDTH = 8


class Net(nn.Module):
    """`kept`: what is given out beside the stream: what layers take, what they make, or all of it."""

    def __init__(self, layers: int, kept: str) -> None:
        super().__init__()
        self.kept = kept
        self.into = nn.Linear(5, WIDTH)
        self.up = nn.ModuleList([nn.Linear(WIDTH, 12) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(12, WIDTH) for _ in range(layers)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        x, found = self.into(x), []
        for up, down in zip(self.up, self.down, strict=True):
            if self.kept in ("taken", "all"):
                found.append(x[:, -4:].detach())
            x = x + down(torch.relu(up(x)))
            if self.kept == "made":
                found.append(x)
        if self.kept == "all":
            found.append(x[:, -4:].detach())
        return self.norm(x), found, x.sum()


def rebuilt(net: Net, layers: list[int]) -> Net:
    made = Net(len(layers), net.kept).eval()
    for k, layer in enumerate(layers):
        for name in ("up", "down"):
            getattr(made, name)[k].load_state_dict(getattr(net, name)[layer].state_dict())
    made.into.load_state_dict(net.into.state_dict())
    return made


INPUT = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(3))


@pytest.mark.parametrize("kept", ["taken", "made", "all"])
@pytest.mark.parametrize("layers", [[0], [1, 2], [0, 1, 1, 2], [2, 0]])
def test_what_layers_take_or_make_goes_with_them(kept, layers):
    torch.manual_seed(0)
    net = Net(3, kept).eval()
    recipe = f"arrange layers as {', '.join(map(str, layers))}"
    made, wanted = growc.apply(net, recipe, example_inputs=(INPUT,), check=False), rebuilt(net, layers)
    torch.testing.assert_close(made(INPUT), wanted(INPUT))


@pytest.mark.parametrize("kept", ["taken", "made"])
def test_new_layers_that_add_nothing_list_the_stream_again(kept):
    torch.manual_seed(0)
    net = Net(2, kept).eval()
    recipe = "stack layers to 4 by each with zero outputs\nexpect exact"
    made = growc.apply(net, recipe, example_inputs=(INPUT,))
    (out, listed, _), (before, kept_before, _) = made(INPUT), net(INPUT)
    torch.testing.assert_close(out, before)
    assert len(listed) == 4
    order = [0, 1, 1] if kept == "taken" else [0, 0, 1, 1]
    torch.testing.assert_close(listed[: len(order)], [kept_before[k] for k in order])
