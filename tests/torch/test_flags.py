"""A forward that decides by stored flags is captured as it decides; by what it learns or writes, refused."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc
from growc.errors.diagnostic import GrowError

WIDER = "widen ffn to 2 * ffn with neighbor copy\nexpect exact"


class Flagged(nn.Module):
    """One branch by a flag, one by an element of a buffer."""

    def __init__(self, ready: bool = True) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.register_buffer("ready", torch.tensor(ready))
        self.register_buffer("odds", torch.tensor([0.0, 1.0]))

    def forward(self, x):
        if not self.ready:
            x = 2 * x
        if self.odds[1] > 0:
            x = x + 1
        return x + self.down(torch.tanh(self.up(x)))


class Learned(Flagged):
    def __init__(self) -> None:
        super().__init__()
        self.odds = nn.Parameter(torch.tensor([0.0, 1.0]))


class Counting(Flagged):
    def forward(self, x):
        self.odds[1] -= 0.25
        return super().forward(x)


@pytest.mark.parametrize("ready", [True, False])
def test_the_branch_of_a_flag_is_taken(ready):
    torch.manual_seed(0)
    module, x = Flagged(ready), torch.randn(3, 6)
    result = growc.apply(module, WIDER, {"x": x})
    torch.testing.assert_close(result(x), module(x), rtol=1e-4, atol=1e-5)
    assert result.get_buffer("odds").tolist() == [0.0, 1.0]


class Hashing(Learned):
    def forward(self, x):
        lengths = set(self.odds.long().tolist())
        return super().forward(x) / len(lengths)


@pytest.mark.parametrize("module", [Learned, Hashing])
def test_a_branch_that_a_parameter_decides_is_refused(module):
    with pytest.raises(GrowError, match="cannot be traced by torch") as caught:
        growc.apply(module(), WIDER, {"x": torch.randn(3, 6)})
    assert "asks for values of tensors at test_flags.py" in caught.value.diagnostics[0].notes[-1]


def test_a_branch_that_each_call_moves_on_is_refused():
    module = Counting()
    with pytest.raises(GrowError):
        growc.apply(module, WIDER, {"x": torch.randn(3, 6)})
    assert module.odds.tolist() == [0.0, 1.0]


def test_a_flag_without_a_value_decides_nothing():
    with torch.device("meta"):
        module = Flagged()
    with pytest.raises(GrowError, match="cannot be traced by torch"):
        growc.plan(WIDER, module, example_inputs={"x": torch.randn(3, 6, device="meta")})
