"""A grown module is called as its source is, and gives what its source gives, whatever stands in what."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import growc

WIDTH = 8
X, Y = torch.randn(3, WIDTH), torch.randn(3, WIDTH)


class Named(nn.Module):
    """Two inputs that could be taken for one another, and one that is left out between them."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x, hint=None, y=None, *, scale=1.0):
        return self.down(torch.relu(self.up(x))) - y * scale


class Nested(Named):
    def forward(self, batch, *more):
        made = super().forward(batch["x"], y=batch["rest"][0])
        return {"made": [made, 3], "sum": made + sum(more)}


class Layers(nn.Module):
    """It gives what each layer makes, in `kind`."""

    def __init__(self, kind) -> None:
        super().__init__()
        self.layers, self.kind = nn.ModuleList(Named() for _ in range(2)), kind

    def forward(self, x):
        found = []
        for layer in self.layers:
            made = torch.relu(layer.up(x))
            x = x + layer.down(made)
            found.append((made, 2 * made))
        return x, self.kind(found)


WIDER = 'widen axis 0 of "up.weight" to 18 with uniform copy'


def test_arguments_stand_in_any_order():
    torch.manual_seed(0)
    module = Named()
    result = growc.apply(module, WIDER, {"y": Y, "x": X})
    for one in (module(X, None, Y), module(X, y=Y)):
        torch.testing.assert_close(result(X, None, Y), one)
        torch.testing.assert_close(result(y=Y, x=X), one)
    for wrong in (lambda: result(X, Y, Y), lambda: result(X, y=Y, scale=2.0), lambda: result(X)):
        with pytest.raises(TypeError):
            wrong()


def test_an_argument_that_is_no_tensor_keeps_its_value():
    module = Named()
    result = growc.apply(module, WIDER, {"x": X, "y": Y, "scale": 2.0})
    torch.testing.assert_close(result(X, y=Y, scale=2.0), module(X, y=Y, scale=2.0))
    torch.testing.assert_close(result(X, y=Y), module(X, y=Y, scale=2.0))
    with pytest.raises(TypeError, match=r"with 2\.0 for `scale`"):
        result(X, y=Y, scale=1.0)


def test_tensors_stand_in_lists_and_mappings():
    module, batch = Nested(), {"x": X, "rest": [Y]}
    result = growc.apply(module, WIDER, (batch, X, Y))
    expected, found = module(batch, X, Y), result(batch, X, Y)
    torch.testing.assert_close(found["made"][0], expected["made"][0])
    assert found["made"][1] == 3
    torch.testing.assert_close(found["sum"], expected["sum"])
    for rows in (1, 5):
        batch = {"x": torch.randn(rows, WIDTH), "rest": [torch.randn(rows, WIDTH)]}
        more = torch.randn(rows, WIDTH)
        torch.testing.assert_close(result(batch, more, more)["sum"], module(batch, more, more)["sum"])
    with pytest.raises(TypeError, match="another structure"):
        result({"x": X}, X, Y)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "kind", [tuple, lambda found: {"by kind": list(map(list, zip(*found, strict=True)))}]
)
@pytest.mark.parametrize("order", [(1, 0, 1), (1, 1), (0,), (0, 1, 1, 0)])
def test_lists_of_what_layers_give_are_of_the_layers_that_there_are(kind, order):
    torch.manual_seed(1)
    module = Layers(kind)
    result = growc.apply(module, f"arrange layers as {', '.join(map(str, order))}", X)
    module.layers = nn.ModuleList(copy.deepcopy(module.layers[k]) for k in order)
    torch.testing.assert_close(result(X), module(X))
    torch.testing.assert_close(result.train()(X), module(X))


def test_a_name_for_what_each_layer_gives_cannot_come_twice():
    module = Layers(lambda found: {f"layer {k}": one for k, one in enumerate(found)})
    with pytest.raises(growc.GrowError, match="a name for what each layer gives"):
        growc.apply(module, "arrange layers as 1, 0, 1", X)
