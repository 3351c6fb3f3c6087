"""Operators in front of every layer, the first one too, belong to the layer behind them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import growc

WIDTH = 8


class Layer(nn.Module):
    """A convolution over all places but the first, put together with that one again; then two branches."""

    def __init__(self) -> None:
        super().__init__()
        self.near = nn.Conv1d(WIDTH, WIDTH, 3, padding=1, groups=WIDTH)
        self.mix, self.norm = nn.Linear(6, 6), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        first, rest = x[:, :1], x[:, 1:]
        x = torch.cat([first, rest + self.near(rest.transpose(1, 2)).transpose(1, 2)], 1)
        x = x + functional.gelu(self.mix(self.norm(x).transpose(1, 2))).transpose(1, 2)
        return x + self.down(functional.gelu(self.up(x)))


class Net(nn.Module):
    """Layers on a stream that starts with a learned place. `behind`: what follows the last one."""

    def __init__(self, layers: int, behind: str) -> None:
        super().__init__()
        self.behind = behind
        self.first, self.into = nn.Parameter(torch.randn(1, 1, WIDTH)), nn.Linear(4, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.head = nn.Linear(WIDTH, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.cat([self.first.expand(len(x), -1, -1), self.into(x)], 1)
        for layer in self.layers:
            x = layer(x)
        if self.behind == "joined":
            x = torch.cat([x[:, :1], x.mean(1, keepdim=True)], 1)
        return self.head(x)


@pytest.mark.parametrize("behind", ["head", "joined"])
def test_operators_in_front_of_a_layer_are_copied_with_it(behind):
    torch.manual_seed(0)
    net, x = Net(2, behind).eval(), torch.randn(2, 5, 4)
    made = growc.apply(net, "arrange layers as 0, 1, 0, 1", x, check=False)
    wanted = Net(4, behind).eval()
    state = net.state_dict()
    for k in range(4):
        own = {name: state[f"layers.{k % 2}.{name}"] for name in net.layers[0].state_dict()}
        wanted.layers[k].load_state_dict(own)
    rest = {name: tensor for name, tensor in state.items() if not name.startswith("layers.")}
    assert not wanted.load_state_dict(rest, strict=False).unexpected_keys
    with torch.no_grad():
        torch.testing.assert_close(made(x), wanted(x))
