"""Layers of modules in another order: in both modes what the same layers compute that torch puts there."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations

import growc

WIDTH = 8
ORDER = (1, 0, 1)


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def mixed(self, x):
        return x

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.mixed(self.norm(x)))))


class Scaled(Plain):
    """By a constant that calls make of a number, which is a tensor of the class."""

    def mixed(self, x):
        return x / torch.sqrt(torch.tensor(3.0) * WIDTH)


class Rolled(Plain):
    def mixed(self, x):
        return torch.roll(x, -2, 1)


class Filled(Plain):
    """Written into a new tensor of the type of one of the layer."""

    def mixed(self, x):
        made = x.new_empty(x.shape)
        made[..., :3], made[..., 3:] = x[..., :3], 2 * x[..., 3:]
        return made


class Stack(nn.Module):
    def __init__(self, layer, normed=None) -> None:
        super().__init__()
        self.stem = nn.Conv1d(3, WIDTH, 1)
        if normed is not None:
            normed(self.stem)
        self.layers, self.head = nn.ModuleList(layer() for _ in range(2)), nn.Linear(WIDTH, 4)

    def forward(self, x):
        x = self.stem(x.transpose(1, 2)).transpose(1, 2)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def move(self) -> None:
        self.layers = nn.ModuleList(copy.deepcopy(self.layers[k]) for k in ORDER)


class Kinds(nn.Module):
    """Parts of layers that are listed by kind, and not layer by layer."""

    def __init__(self) -> None:
        super().__init__()
        self.ups = nn.ModuleList(nn.Linear(WIDTH, 12) for _ in range(2))
        self.downs = nn.ModuleList(nn.Linear(12, WIDTH) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(4))

    def forward(self, x):
        for k, (up, down) in enumerate(zip(self.ups, self.downs, strict=True)):
            x = x + self.norms[len(self.ups) + k](down(torch.relu(up(self.norms[k](x)))))
        return x

    def move(self) -> None:
        for name in ("ups", "downs", "norms"):
            own, kinds = getattr(self, name), 2 if name == "norms" else 1
            order = [2 * kind + k for kind in range(kinds) for k in ORDER]
            setattr(self, name, nn.ModuleList(copy.deepcopy(own[k]) for k in order))


class Chain(nn.Module):
    """No stream goes around its layers, and the first reads the input."""

    def __init__(self) -> None:
        super().__init__()
        parts = [part for _ in range(3) for part in (nn.Linear(WIDTH, WIDTH), nn.Tanh())]
        self.parts = nn.Sequential(*parts, nn.Linear(WIDTH, 4))

    def forward(self, x):
        return self.parts(x)

    def move(self) -> None:
        own = list(self.parts)
        moved = [copy.deepcopy(part) for k in ORDER for part in own[2 * k : 2 * k + 2]]
        self.parts = nn.Sequential(*moved, own[-1])


CASES = {
    "a constant of calls": (lambda: Stack(Scaled), 3),
    "a weight by its norm": (lambda: Stack(Plain, parametrizations.weight_norm), 3),
    "what is rolled": (lambda: Stack(Rolled), 3),
    "what is written": (lambda: Stack(Filled), 3),
    "kinds": (Kinds, WIDTH),
    "a chain": (Chain, WIDTH),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_layers_stand_as_by_hand_in_both_modes(case):
    make, width = CASES[case]
    torch.manual_seed(1)
    module, x = make(), torch.randn(2, 6, width)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    result = growc.apply(module, "arrange layers as 1, 0, 1", x)
    module.move()
    assert list(result.state_dict()) == list(module.state_dict())
    for mode in (True, False):
        torch.testing.assert_close(result.train(mode)(x), module.train(mode)(x))
