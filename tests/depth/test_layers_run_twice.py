"""A body of layers that a model runs more than once: what it has one of, it has one of behind a statement."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc

WIDTH = 12


class Layer(nn.Module):
    """A feed-forward network with a norm in front."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 20), nn.Linear(20, WIDTH)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Pair(nn.Module):
    """Two inputs through the same layers, compared."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.one, self.other = nn.Linear(4, WIDTH), nn.Linear(6, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(layers))
        self.last = nn.Linear(2 * WIDTH, 3)

    def body(self, x):
        for layer in self.layers:
            x = layer(x)
        return x

    def forward(self, x, y):
        return self.last(torch.cat([self.body(self.one(x)), self.body(self.other(y))], -1))


@pytest.fixture
def pair():
    torch.manual_seed(0)
    module = Pair(2).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.5)
    return module, (torch.randn(5, 4), torch.randn(5, 6))


def test_new_layers_of_both_runs_have_their_weights_together(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 4 by whole with zero outputs", inputs)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(4).named_parameters()}
    torch.testing.assert_close(grown(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)
    assert not grown.verification.refutes_exact()


def test_the_result_is_what_the_module_of_that_depth_computes(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 3 by last with zero outputs", inputs)
    deeper = Pair(3).eval()
    deeper.load_state_dict(grown.state_dict())
    with torch.no_grad():
        for parameter in deeper.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    grown.load_state_dict(deeper.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)


def test_layers_that_go_are_gone_from_both_runs(pair):
    module, inputs = pair
    grown = growc.apply(module, "arrange layers as 1, 0, 1", inputs, check=False)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(3).named_parameters()}
    deeper = Pair(3).eval()
    deeper.load_state_dict(grown.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)
    assert torch.equal(grown.state_dict()["layers.1.up.weight"], module.layers[0].up.weight)


def test_what_is_zero_in_a_new_layer_is_one_weight_in_both_runs(pair):
    module, inputs = pair
    recipe = "widen ffn to 30 with uniform copy split random\nstack layers to 3 by last with zero outputs"
    grown = growc.apply(module, recipe, inputs)
    assert {name for name, _ in grown.named_parameters()} == {n for n, _ in Pair(3).named_parameters()}
    assert not grown.layers.get_parameter("2.down.weight").any()
    torch.testing.assert_close(grown(*inputs), module(*inputs), rtol=1e-4, atol=1e-4)


def test_drawn_layers_are_drawn_once_for_both_runs(pair):
    module, inputs = pair
    grown = growc.apply(module, "stack layers to 4 by last with random fill seed 3", inputs, check=False)
    deeper = Pair(4).eval()
    deeper.load_state_dict(grown.state_dict())
    torch.testing.assert_close(grown(*inputs), deeper(*inputs), rtol=1e-5, atol=1e-5)
    assert not torch.equal(deeper.layers[2].up.weight, module.layers[1].up.weight)
