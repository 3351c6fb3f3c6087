"""Modules that return numbers of their own, or call operators with sizes of their inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import growc
from growc import api
from growc.errors.diagnostic import GrowError


class Returning(nn.Module):
    """A network that returns something beside its result."""

    def __init__(self, other: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.other = nn.Linear(6, 8), nn.Linear(8, 5), other

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        units = self.up(x)
        return self.down(units.relu()), self.other(units)


class Generated(nn.Module):
    """A convolution with a kernel for each row: its groups are a size of the input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.kernel = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 72)
        self.up, self.down = nn.Conv2d(8, 16, 1), nn.Conv2d(16, 5, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        rows = h.shape[0]
        kernels = self.kernel(h.mean((2, 3))).view(rows * 8, 1, 3, 3)
        alone = h.reshape(1, rows * 8, *h.shape[2:])
        h = F.conv2d(alone, kernels, padding=1, groups=rows * 8).view(h.shape)
        return self.down(self.up(h).relu())


NUMBERS: dict[str, Callable[[Tensor], Tensor]] = {
    "number": lambda units: torch.tensor(0.5),
    "width": lambda units: torch.tensor(units.shape[-1]),
    "zero": lambda units: torch.zeros(()),
    "new zeros": lambda units: units.new_zeros(1),
}


@pytest.mark.parametrize("other", NUMBERS.values(), ids=NUMBERS)
def test_a_number_that_forward_returns_stays(other: Callable[[Tensor], Tensor]) -> None:
    torch.manual_seed(0)
    module, inputs = Returning(other).eval(), torch.randn(2, 4, 6)
    grown = growc.apply(module, 'widen axis 0 of "up.weight" to 16 with cyclic copy\nexpect exact', inputs)
    for ours, theirs in zip(grown(inputs), module(inputs), strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_module_with_groups_of_its_rows_grows_elsewhere() -> None:
    torch.manual_seed(0)
    module = Generated().eval()
    recipe = 'widen axis 0 of "up.weight" to 32 with cyclic copy\nexpect exact'
    grown = growc.apply(recipe, module, torch.randn(2, 3, 6, 6))
    other = torch.randn(2, 3, 6, 6)
    torch.testing.assert_close(grown(other), module(other), rtol=1e-4, atol=1e-5)


def test_an_error_inside_is_not_blamed_on_arguments_that_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise TypeError("inside")

    monkeypatch.setattr(api, "grow", fail)
    with pytest.raises(TypeError, match="inside"):
        growc.apply("untie head", nn.Linear(2, 2), torch.randn(3, 2))


@pytest.mark.parametrize("params", [torch.randn(2, 2), (1,), ()])
def test_params_that_are_no_mapping_are_said_to_be_none(params: Any) -> None:
    with pytest.raises(GrowError, match="`params` is no mapping"):
        growc.plan("untie head", nn.Linear(2, 2), params)
