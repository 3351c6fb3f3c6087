"""Modules with dictionaries that refuse writes, and regions in which autocast is off."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

import growc
from growc.errors.diagnostic import GrowError

RECIPE = 'widen axis 0 of "up.weight" to 13 with uniform copy'


class Refusing(dict[str, Any]):
    """A dictionary that nobody may write."""

    def refuse(self, *_: Any, **__: Any) -> Any:
        """Any write."""
        raise TypeError("it is frozen")

    __setitem__ = __delitem__ = update = clear = pop = popitem = setdefault = refuse


class Ordered(OrderedDict[str, Any]):
    """As configs of pipelines are: in order, and frozen once they are made."""

    frozen = False

    def __init__(self, **entries: Any) -> None:
        super().__init__(**entries)
        self.frozen = True

    def __setitem__(self, key: str, value: Any) -> None:
        if self.frozen:
            raise TypeError("it is frozen")
        super().__setitem__(key, value)

    def update(self, *_: Any, **__: Any) -> Any:
        """No write."""
        raise TypeError("it is frozen")


class Mlp(nn.Module):
    """Two layers, and an attribute that says which nonlinearity stands between."""

    def __init__(self, held: Any) -> None:
        super().__init__()
        self.up, self.down, self.held = nn.Linear(5, 8), nn.Linear(8, 6), held

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 5) -> (batch, 6)."""
        return self.down(getattr(torch, self.held["act"])(self.up(x)))


class Growing(Mlp):
    """One that keeps something in its dictionary, whoever refuses that."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """As above."""
        dict.__setitem__(self.held, "last", x)
        return super().forward(x)


def grown(module: nn.Module) -> nn.Module:
    """It, wider, if it computes the same."""
    x = torch.randn(3, 5, generator=torch.Generator().manual_seed(0))
    made: nn.Module = growc.apply(module, RECIPE, (x,))
    torch.testing.assert_close(made(x), module(x))
    assert made.get_parameter("up.weight").shape == (13, 5)
    return made


@pytest.mark.parametrize("held", [Refusing(act="relu"), Ordered(act="relu"), OrderedDict(act="relu")])
def test_a_dictionary_that_refuses_writes_is_left_alone(held: Any) -> None:
    before = list(held.items())
    grown(Mlp(held))
    assert list(held.items()) == before


@pytest.mark.parametrize("held", [Refusing(act="relu"), OrderedDict(act="relu")])
def test_entries_that_a_forward_wrote_are_taken_out(held: Any) -> None:
    module = Growing(held)
    growc.api.compile(growc.api.recipe(RECIPE), module, example_inputs=(torch.randn(3, 5),))
    assert list(held.items()) == [("act", "relu")]


class Cast(nn.Module):
    """Regions that cast or do not, one in the other."""

    def __init__(self, *enabled: bool) -> None:
        super().__init__()
        self.up, self.down, self.enabled = nn.Linear(5, 8), nn.Linear(8, 6), enabled

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """(batch, 5) -> (batch, 6)."""
        return self.down(self.within(x, self.enabled))

    def within(self, x: torch.Tensor, enabled: tuple[bool, ...]) -> torch.Tensor:
        """The hidden units, computed in these regions."""
        if not enabled:
            return self.up(x.float()).relu()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled[0]):
            return self.within(x, enabled[1:]) * 1.5


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_regions_without_autocast_are_what_they_hold(depth: int) -> None:
    grown(Cast(*[False] * depth))


@pytest.mark.parametrize("enabled", [(True,), (True, False), (False, True)])
def test_regions_that_cast_are_refused(enabled: tuple[bool, ...]) -> None:
    with pytest.raises(GrowError, match="wrap_with_autocast"):
        growc.api.plan(RECIPE, Cast(*enabled), example_inputs=(torch.randn(3, 5),))


def test_gradients_off_in_a_region_without_autocast() -> None:
    class Both(Cast):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            with torch.autocast("cpu", enabled=False), torch.no_grad():
                scale = x.square().mean(-1, keepdim=True)
            return super().forward(x) * scale

    grown(Both(False))
