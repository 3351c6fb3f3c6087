"""Modules whose forward leaves something in plain attributes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import growc
from growc.errors.diagnostic import GrowError

WIDER = "widen ffn to 40 with cyclic copy\nexpect exact"


class Remembering(nn.Module):
    """A network behind a step that may read and change the module."""

    def __init__(self, step: Callable[[Any, Tensor], Tensor]) -> None:
        super().__init__()
        self.up, self.down, self.step = nn.Linear(8, 20), nn.Linear(20, 8), step
        self.calls, self.width, self.sizes, self.log = 0, None, {"n": 0}, [1.0]

    def forward(self, x: Tensor) -> Tensor:
        return self.down(torch.relu(self.up(self.step(self, x))))


def counted(module: Any, x: Tensor) -> Tensor:
    module.calls += 1
    return x * 2 if module.calls == 1 else x


def remembered(module: Any, x: Tensor) -> Tensor:
    if module.width is None:
        module.width = x.shape[-1]
        return x * 3
    return x


def numbered(module: Any, x: Tensor) -> Tensor:
    module.sizes["n"] += 1
    return x * module.sizes["n"]


def listed(module: Any, x: Tensor) -> Tensor:
    module.log.append(2.0)
    return x * torch.tensor(module.log[-2])


def only_counted(module: Any, x: Tensor) -> Tensor:
    module.calls += 1
    module.log.append(x.shape[1])
    module.width = 8
    return x * module.width


def module_with(step: Callable[[Any, Tensor], Tensor]) -> Remembering:
    torch.manual_seed(0)
    return Remembering(step).eval()


@pytest.mark.parametrize(
    ("step", "attribute"),
    [(counted, "calls"), (remembered, "width"), (numbered, "sizes"), (listed, "log")],
    ids=["number", "flag", "number in a mapping", "constant from a list"],
)
def test_a_forward_whose_next_call_computes_something_else_is_refused(
    step: Callable[[Any, Tensor], Tensor], attribute: str
) -> None:
    with pytest.raises(GrowError) as refused:
        growc.apply(module_with(step), WIDER, torch.randn(4, 6, 8), check=False)
    [first] = refused.value.diagnostics
    assert first.code == "G317"
    assert f"its forward changes `{attribute}`, and computes something else" in first.notes[0]


def test_a_forward_that_only_notes_its_calls_grows() -> None:
    module = module_with(only_counted)
    result = growc.apply(module, WIDER, torch.randn(4, 6, 8))
    other = torch.randn(3, 9, 8)
    for _ in range(3):
        torch.testing.assert_close(result(other), module(other), rtol=1e-4, atol=1e-5)
