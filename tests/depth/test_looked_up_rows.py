"""Rows that each layer takes of what is looked up and projected for all: they go with their layers."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc

VOCAB, WIDTH, DEPTH, COUNT = 12, 8, 4, 3
IDS = torch.randint(0, VOCAB, (2, 5), generator=torch.Generator().manual_seed(2))


class Embedded(nn.Module):
    """Each layer is told of the tokens by a row of its own, as in Gemma 3n and Gemma 4."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.layers = layers
        self.table, self.rows = nn.Embedding(VOCAB, WIDTH), nn.Embedding(VOCAB, layers * DEPTH)
        self.project = nn.Linear(WIDTH, layers * DEPTH, bias=False)
        self.gain = nn.Parameter(torch.randn(DEPTH))
        self.up = nn.ModuleList(nn.Linear(WIDTH, 12) for _ in range(layers))
        self.down = nn.ModuleList(nn.Linear(12, WIDTH) for _ in range(layers))
        self.gate = nn.ModuleList(nn.Linear(WIDTH, DEPTH) for _ in range(layers))
        self.out = nn.ModuleList(nn.Linear(DEPTH, WIDTH) for _ in range(layers))
        self.head = nn.Linear(WIDTH, VOCAB)

    def told(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        made = self.project(x).reshape(*ids.shape, self.layers, DEPTH)
        made = made * torch.rsqrt(made.square().mean(-1, keepdim=True) + 1e-6) * self.gain
        return (made + self.rows(ids).reshape(*ids.shape, self.layers, DEPTH)) * 0.7

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        told = self.told(x, ids)
        for k in range(self.layers):
            x = x + self.down[k](torch.relu(self.up[k](x)))
            x = x + self.out[k](nn.functional.gelu(self.gate[k](x)) * told[:, :, k])
        return self.head(x)


def source(kind: type[Embedded] = Embedded) -> Embedded:
    torch.manual_seed(0)
    return kind(COUNT).eval()


def rebuilt(net: Embedded, layers: list[int]) -> Embedded:
    """The module with these layers, each with its row."""
    made = type(net)(len(layers)).eval()
    state = net.state_dict()
    units = [layer * DEPTH + k for layer in layers for k in range(DEPTH)]
    wanted = {
        name: tensor for name, tensor in state.items() if name.split(".")[0] in ("table", "gain", "head")
    }
    wanted |= {
        "rows.weight": state["rows.weight"][:, units],
        "project.weight": state["project.weight"][units],
    }
    for name, tensor in state.items():
        part, _, rest = name.partition(".")
        if part in ("up", "down", "gate", "out"):
            number, end = rest.split(".")
            wanted |= {f"{part}.{k}.{end}": tensor for k, one in enumerate(layers) if one == int(number)}
    made.load_state_dict(wanted)
    return made


@pytest.mark.parametrize("layers", [[0, 0, 1, 2], [2, 0], [1, 2, 0], [1], [0, 1, 2, 2, 2]])
def test_rows_that_are_looked_up_go_with_their_layers(layers):
    net = source()
    recipe = f"arrange layers as {', '.join(map(str, layers))}"
    made, wanted = growc.apply(net, recipe, {"ids": IDS}, check=False), rebuilt(net, layers)
    for name, tensor in wanted.state_dict().items():
        assert torch.equal(made.state_dict()[name], tensor), name
    torch.testing.assert_close(made(IDS), wanted(IDS))


def test_a_new_layer_has_the_row_of_the_one_that_it_copies_and_adds_nothing():
    net = source()
    made = growc.apply(net, "stack layers to 5 by each with zero outputs\nexpect exact", {"ids": IDS})
    units = [layer * DEPTH + k for layer in (0, 1, 1, 2, 2) for k in range(DEPTH)]
    assert torch.equal(made.state_dict()["rows.weight"], net.rows.weight[:, units])
    torch.testing.assert_close(made(IDS), net(IDS), rtol=1e-4, atol=1e-5)


def test_rows_are_as_long_as_other_axes_become():
    net = source()
    recipe = "stack layers to 4 by last with zero outputs\nwiden hidden to 16 with cyclic copy\nexpect exact"
    made = growc.apply(net, recipe, {"ids": IDS})
    assert made.state_dict()["project.weight"].shape == (4 * DEPTH, 16)
    torch.testing.assert_close(made(IDS), net(IDS), rtol=1e-4, atol=1e-5)


class Weighed(Embedded):
    """Look-alike: what one layer is told depends on what the others are told."""

    def told(self, x: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        return super().told(x, ids).softmax(2)


class Shown(Embedded):
    """Look-alike: something else reads the rows of all layers."""

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        return super().forward(ids) + self.told(x, ids).mean()


@pytest.mark.parametrize("kind", [Weighed, Shown])
def test_rows_that_are_not_their_layers_alone_stay(kind):
    net = source(kind)
    made = growc.apply(net, "stack layers to 4 by last with zero outputs\nexpect exact", {"ids": IDS})
    assert torch.equal(made.state_dict()["rows.weight"], net.rows.weight)
    torch.testing.assert_close(made(IDS), net(IDS), rtol=1e-4, atol=1e-5)
