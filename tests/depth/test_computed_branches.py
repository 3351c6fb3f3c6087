"""New layers that add nothing where what ends their branches is computed, or no tensor is stored for it."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional

from growc import api

RECIPE = "stack layers to 4 by last with zero outputs\nexpect exact"
WIDTH = 8
X = torch.randn(2, WIDTH, 5, generator=torch.Generator().manual_seed(0))


class Scaled(nn.Module):
    """A weight that is multiplied with a gain on its way."""

    def __init__(self) -> None:
        super().__init__()
        self.weight, self.gain = (nn.Parameter(torch.empty(WIDTH, n, 1)) for n in (WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.conv1d(x, self.weight * self.gain)


class Standardised(nn.Module):
    """A weight that a batch norm of one row normalises."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        row = self.weight.reshape(1, WIDTH, -1)
        normed = functional.batch_norm(row, None, None, training=True, momentum=0.0)
        return functional.conv1d(x, normed.reshape_as(self.weight))


class Unscaled(nn.Module):
    """A norm without gain and bias behind the weight."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH, 1))
        self.norm = nn.GroupNorm(2, WIDTH, affine=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(functional.conv1d(x, self.weight))


class Opened(nn.Module):
    """A gate that numbers of the code open where its weight is zero."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(WIDTH, WIDTH, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(functional.conv1d(x, self.weight) * 0.2 + 0.5, 0.0, 1.0)


class Net(nn.Module):
    """Two layers, each of which normalises the stream and adds to it."""

    def __init__(self, last: type[nn.Module]) -> None:
        super().__init__()
        self.first, self.head = nn.Conv1d(WIDTH, WIDTH, 1), nn.Conv1d(WIDTH, 3, 1)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.GroupNorm(2, WIDTH), nn.Conv1d(WIDTH, WIDTH, 1), nn.ReLU(), last())
            for _ in range(2)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.first(x)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def net(last: type[nn.Module]) -> nn.Module:
    torch.manual_seed(0)
    module = Net(last).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.2, 0.5)
    return module


@pytest.mark.sampled(4)
@pytest.mark.parametrize("last", [Scaled, Standardised, Unscaled, Opened])
def test_new_layers_of_a_module_add_nothing(last):
    source = net(last)
    result = api.grow(source, RECIPE, (X,), check=False, keep_class=False)
    assert len([name for name in result.state_dict() if name.endswith("3.weight")]) == 4
    with torch.no_grad():
        torch.testing.assert_close(result(X), source(X))


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("last", [Scaled, Unscaled, Opened])
def test_new_layers_of_a_file_add_nothing(last, tmp_path):
    source, paths = net(last), (tmp_path / "source.onnx", tmp_path / "grown.onnx")
    plain = {"dynamo": False, "do_constant_folding": False}
    torch.onnx.export(source, (X,), paths[0], input_names=["x"], **plain)
    api.apply(RECIPE, *paths, check=False)
    ours, theirs = (onnxruntime.InferenceSession(path).run(None, {"x": X.numpy()})[0] for path in paths)
    np.testing.assert_allclose(theirs, ours, rtol=1e-5, atol=1e-5)
