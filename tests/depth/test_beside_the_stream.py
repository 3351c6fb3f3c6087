"""Terms added beside a normed stream, for queries and keys alone, stay in a layer that adds nothing."""

from __future__ import annotations

import torch
from torch import nn

import growc

WIDTH, PLACES = 16, 6


class Layer(nn.Module):
    """An attention and a feed-forward, each with its norm behind the sum."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.o = (nn.Linear(WIDTH, WIDTH) for _ in range(4))
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 24), nn.Linear(24, WIDTH)

    def forward(self, x, places):
        placed = x + places
        scores = self.q(placed) @ self.k(placed).transpose(1, 2) / WIDTH**0.5
        x = self.first(x + self.o(scores.softmax(-1) @ self.v(x)))
        return self.second(x + self.down(torch.relu(self.up(x))))


class Placed(nn.Module):
    """Layers that share what makes their places."""

    def __init__(self, layers: int = 2) -> None:
        super().__init__()
        self.enter, self.places = nn.Linear(4, WIDTH), nn.Linear(2, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.leave = nn.Linear(WIDTH, 3)

    def forward(self, x, corners):
        x = self.enter(x)
        for layer in self.layers:
            x = layer(x, self.places(corners))
        return self.leave(x)


def test_only_what_writes_into_the_stream_is_zero():
    torch.manual_seed(0)
    module = Placed().eval()
    inputs = torch.randn(2, PLACES, 4), torch.randn(2, PLACES, 2)
    recipe = "stack layers to 3 by last with zero outputs"
    zero = {
        weight.name for weight in growc.plan(module, recipe, example_inputs=inputs).weights if weight.zero
    }
    assert zero == {f"layers.2.{part}.{end}" for part in ("o", "down") for end in ("weight", "bias")}
    grown = growc.apply(module, recipe, inputs)
    assert grown.places.weight.shape == (WIDTH, 2)
    normed = module.layers[1].second(module.layers[1].first(states(module, inputs)))
    torch.testing.assert_close(grown(*inputs), module.leave(normed), rtol=1e-4, atol=1e-4)


def states(module: Placed, inputs: tuple[torch.Tensor, ...]) -> torch.Tensor:
    """The stream behind the last layer."""
    x = module.enter(inputs[0])
    for layer in module.layers:
        x = layer(x, module.places(inputs[1]))
    return x
