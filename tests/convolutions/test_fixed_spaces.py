"""One space that cannot change does not stand in the way of the others."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from graphs import save
from judging import judge
from torch import Tensor, nn

from growc import api
from growc.errors.diagnostic import GrowError

SUMMED = """
summed (float[N, 3, 6, 6] x) => (float[N, 5] y)
<float[4, 3, 3, 3] a, float[7, 4, 1, 1] b, float[6, 7, 1, 1] c, float[6, 5] head, int64 one = {1}>
{
    a0 = Conv <pads = [1, 1, 1, 1]> (x, a)
    a1 = Relu(a0)
    b0 = Conv(a1, b)
    b1 = CumSum(b0, one)
    c0 = Conv(b1, c)
    c1 = Relu(c0)
    p = GlobalAveragePool(c1)
    f = Flatten(p)
    y = MatMul(f, head)
}
"""
"""The seven channels behind `b` are summed up in their order: none of them may move, and none may come."""
NOTE = "2 of 4 spaces of `channels` (7) stay as they are: CumSum reads this axis as a whole, at `b1`"
DOUBLE = "widen channels to 2 * channels with neighbor copy"
HALF = "subclone channels to channels / 2 by magnitude unscaled"


@pytest.fixture(scope="module")
def summed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The model with random weights."""
    return save(tmp_path_factory.mktemp("summed") / "summed.onnx", SUMMED)


@pytest.mark.parametrize("recipe", [DOUBLE, "reorder channels by magnitude"])
def test_spaces_beside_a_fixed_one_change_exactly(summed: Path, recipe: str, tmp_path: Path) -> None:
    judge(recipe, summed, tmp_path / "out.onnx").assert_exact()
    plan = api.plan(recipe, summed)
    assert NOTE in plan.notes
    after = (8, 7, 12) if recipe == DOUBLE else (4, 7, 6)
    assert plan.axes["channels"].after == after


def test_size_that_does_not_divide_is_not_asked_of_them(summed: Path) -> None:
    """Seven halved is no whole number, and need not be one."""
    assert api.plan(HALF, summed).axes["channels"].after == (2, 7, 3)


def test_refused_where_an_address_asks_for_it(summed: Path) -> None:
    with pytest.raises(GrowError, match="CumSum reads this axis as a whole"):
        api.plan('widen axis 0 of "b" to 14 with neighbor copy', summed)


class Summed(nn.Module):
    """Channels that are summed up in their order."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv2d(3, 4, 3), nn.Conv2d(4, 7, 1)

    def forward(self, x: Tensor) -> Tensor:
        """One number for each image."""
        return self.last(self.first(x).relu()).cumsum(1).square().sum((1, 2, 3))


class Body(nn.Module):
    """A model that is one part."""

    def __init__(self) -> None:
        super().__init__()
        self.body = Summed()

    def forward(self, x: Tensor) -> Tensor:
        """One number for each image."""
        return self.body(x)


def test_refused_where_a_scope_asks_for_it() -> None:
    inputs = (torch.randn(2, 3, 6, 6),)
    assert api.plan(DOUBLE, Body(), example_inputs=inputs).axes["channels"].after == (8, 7)
    with pytest.raises(GrowError, match="CumSum reads this axis as a whole"):
        api.plan(f'in "body" {{ {DOUBLE} }}', Body(), example_inputs=inputs)


def test_expected_size_is_not_reached(summed: Path, tmp_path: Path) -> None:
    with pytest.raises(GrowError, match="channels"):
        api.apply(f"{DOUBLE}\nexpect channels == 8", summed, tmp_path / "out.onnx")


def test_refused_where_none_can_change(tmp_path: Path) -> None:
    text = SUMMED.replace("a1 = Relu(a0)", "a1 = CumSum(a0, one)").replace("Relu(c0)", "CumSum(c0, one)")
    with pytest.raises(GrowError, match="`channels` cannot change its size"):
        api.plan(DOUBLE, save(tmp_path / "all.onnx", text))
