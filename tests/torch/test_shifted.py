"""Gains that a module stores as their distance from one take factors of their sum with it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from lowered import difference
from torch import Tensor, nn
from torch.nn import functional as F

from growc import api
from growc.dialects.onnx.emit import emitted
from growc.passes.compilation import Result
from growc.plans import execute as weights
from growc.plans.plan_to_json import from_json, to_json

DOUBLED = "widen hidden to 2 * hidden with cyclic copy"
DEEPER = "stack layers to layers + 1 by last with zero outputs"


class Norm(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(width) * 0.1)

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-5) * (1.0 + self.weight)


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.before, self.behind = Norm(width), Norm(width)
        self.up, self.down = nn.Linear(width, 12), nn.Linear(12, width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.behind(self.down(F.gelu(self.up(self.before(x)))))


class Tied(nn.Module):
    """Blocks between a table and the head that is tied to it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.table = nn.Embedding(20, 8)
        self.blocks = nn.ModuleList(Block(8) for _ in range(2))
        self.last = Norm(8)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.table(ids)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.last(x), self.table.weight)


IDS = {"ids": torch.arange(10).reshape(2, 5)}


def planned(recipe: str) -> Result:
    return api.compile(api.recipe(recipe), Tied().eval(), example_inputs=IDS)


@pytest.mark.parametrize("recipe", [DOUBLED, DEEPER, "widen ffn to 20 with neighbor copy"])
def test_a_module_with_such_gains_grows_exactly(recipe):
    c = planned(recipe)
    assert c.plan.certificate.exact
    assert difference(Tied().eval(), emitted(c), IDS) <= 1e-5


def test_the_stored_gain_is_the_new_gain_less_one():
    [plan] = (w for w in planned(DOUBLED).plan.weights if w.name == "last.weight")
    gain = Tied().last.weight.detach().numpy()
    made = weights.execute(plan, gain)
    np.testing.assert_allclose(made + 1, np.tile((gain + 1) / 2, 2), rtol=1e-5)


def test_a_plan_read_back_keeps_the_number():
    plan = planned(DOUBLED).plan
    again = from_json(to_json(plan))
    assert [w.shift for w in again.weights] == [w.shift for w in plan.weights]
    assert 1.0 in [w.shift for w in again.weights]


class Twice(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))
        self.down = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.down(x * (1.0 + self.weight) + self.weight)


def test_a_vector_that_is_used_without_the_number_too_has_none():
    c = api.inspect(Twice().eval(), example_inputs=torch.randn(2, 8))
    assert [w.shift for w in c.graph.weights if w.name == "weight"] == [0.0]
