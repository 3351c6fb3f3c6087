"""A branch that ends in zeros adds nothing: a class may compute something else there, and nowhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from growc.dialects.transformers.log.entry import same_logs
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.zero_branches import pruned
from growc.plans.execute import stays_zero
from growc.plans.plan import ONE, AxisStep, Layout, LeafStep, WeightPlan

Run = Callable[["Branch", Tensor], Tensor]
ZEROS = frozenset({"last.weight", "last.bias"})


class Branch(nn.Module):
    """A stream, and something beside it."""

    def __init__(self, run: Run):
        super().__init__()
        self.run = run
        self.first, self.last = nn.Linear(4, 4, device="meta"), nn.Linear(4, 4, device="meta")
        self.kernel = nn.Conv1d(4, 4, 1, device="meta")

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, self.first(x)) * 2.0


def same(one: Run, other: Run, zeros: frozenset[str]) -> bool:
    given = {"x": torch.zeros(2, 3, 4)}
    logs = (pruned(operator_log(Branch(run), given), zeros) for run in (one, other))
    return same_logs(*logs)


def plain(m: Branch, x: Tensor) -> Tensor:
    return x + m.last(x.relu() * 0.5)


INSIDE: dict[str, Run] = {
    "another number": lambda m, x: x + m.last(x.relu() * 0.25),
    "another operator": lambda m, x: x + m.last(x.sigmoid() * 0.5),
    "moved places": lambda m, x: x + m.last(x.roll(1, 1).relu() * 0.5).roll(-1, 1),
    "something behind it that keeps zeros": lambda m, x: x + 0.1 * m.last(x).permute(1, 0, 2).transpose(0, 1),
    "the other way round": lambda m, x: m.last(x) + x,
    "two of them": lambda m, x: x + (m.last(x.cos()) + m.last(x.sin())),
}


@pytest.mark.parametrize("kind", INSIDE)
def test_branches_that_end_in_zeros_may_differ(kind):
    assert not same(plain, INSIDE[kind], frozenset())
    assert same(plain, INSIDE[kind], ZEROS)


OUTSIDE: dict[str, Run] = {
    "the stream": lambda m, x: x * 1.5 + m.last(x.relu() * 0.5),
    "something that makes more of zeros": lambda m, x: x + m.last(x.relu() * 0.5).cos(),
    "a number beside it": lambda m, x: x + (m.last(x.relu() * 0.5) + 1.0),
    "a number that is infinite": lambda m, x: x + m.last(x.relu() * 0.5) * float("inf"),
    "a factor in the place of a summand": lambda m, x: x * m.last(x.relu() * 0.5),
    "a sum that is larger than the stream": lambda m, x: x[:, :1] + m.last(x.relu() * 0.5),
    "a branch that is taken away": lambda m, x: m.last(x.relu() * 0.5) - x,
    "another branch": lambda m, x: x + m.kernel(x.relu().mT).mT,
}


@pytest.mark.parametrize("kind", OUTSIDE)
def test_values_read_elsewhere_than_through_zeros_may_not_differ(kind):
    assert not same(plain, OUTSIDE[kind], ZEROS)


@pytest.mark.parametrize("zeros", [{"last.weight"}, {"last.bias"}, {"kernel.weight"}])
def test_a_bias_has_to_be_zero_too(zeros):
    assert not same(plain, INSIDE["another number"], frozenset(zeros))


def test_a_convolution_of_zeros_is_zero():
    one, other = (lambda m, x, f=f: x + m.kernel(f(x).mT).mT for f in (torch.sin, torch.cos))
    assert not same(one, other, frozenset({"kernel.weight"}))
    assert same(one, other, frozenset({"kernel.weight", "kernel.bias"}))


def test_a_tensor_of_zeros_is_one_as_long_as_no_step_fills_it_otherwise():
    def plan(filler: int, **more) -> WeightPlan:
        leaf = LeafStep(2, np.array([0, 1, -1]), np.ones(3), np.array([0, 0, filler]))
        step = AxisStep(0, Layout("leaf", (), leaf), "makes")
        return WeightPlan("w", "w", "FLOAT", (2,), (3,), (step,), zero=True, **more)

    assert stays_zero(plan(0))
    assert not stays_zero(plan(ONE))
    assert not stays_zero(plan(0, shift=1.0))
    assert not stays_zero(plan(0, literal=(1.0, 2.0, 3.0)))
    assert not stays_zero(WeightPlan("w", "w", "FLOAT", (2,), (2,), ()))
