"""Modules whose forward reads the value of a buffer that it writes: the next run reads another value."""

from __future__ import annotations

import copy
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

import growc
from growc.errors.diagnostic import GrowError

WIDER = 'widen axis 0 of "up.weight" to 24 with cyclic copy\nexpect exact'


class Averaged(nn.Module):
    """A norm without momentum: its statistics are means over all steps, by the number of steps."""

    def __init__(self, momentum: float | None) -> None:
        super().__init__()
        self.up, self.norm, self.down = (
            nn.Linear(5, 12),
            nn.BatchNorm1d(12, momentum=momentum),
            nn.Linear(12, 3),
        )
        self.register_buffer("doubled", torch.tensor(True))

    def forward(self, x: Tensor) -> Tensor:
        x = x * 2 if self.doubled else x
        return self.down(torch.relu(self.norm(self.up(x))))


class Counting(Averaged):
    """A step in a view of a buffer decides what later steps compute, in evaluation too."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.register_buffer("steps", torch.zeros(2, dtype=torch.int64))

    def forward(self, x: Tensor) -> Tensor:
        self.steps[1:] += 1
        return super().forward(x if self.steps[1] > 1 else x + 1)


def drawn(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    return module.eval()


def test_a_norm_without_momentum_has_no_graph_for_training() -> None:
    result = growc.apply(drawn(Averaged(None)), WIDER, (torch.randn(8, 5),))
    with pytest.raises(GrowError, match="no graph for training") as refused:
        result.train()
    assert refused.value.diagnostics[0].code == "G320"


def test_a_value_that_stays_decides_beside_statistics_that_change() -> None:
    module = drawn(Averaged(0.1))
    result = growc.apply(module, WIDER, (torch.randn(8, 5),)).train()
    trained = copy.deepcopy(module).train()
    for step in range(3):
        x = torch.randn(16, 5) * (step + 1)
        torch.testing.assert_close(result(x), trained(x), rtol=1e-4, atol=1e-4)
    x = torch.randn(4, 5)
    torch.testing.assert_close(result.eval()(x), trained.eval()(x), rtol=1e-4, atol=1e-4)


def test_a_module_that_reads_what_it_writes_is_refused() -> None:
    with pytest.raises(GrowError) as refused:
        growc.apply(drawn(Counting()), WIDER, (torch.randn(8, 5),))
    assert refused.value.diagnostics[0].code == "G317"


class Noting(Averaged):
    """A count of calls in a buffer, by which results are multiplied."""

    def __init__(self) -> None:
        super().__init__(0.1)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        self.calls += 1
        return super().forward(x) * self.calls


@pytest.mark.parametrize("make", [growc.plan, growc.apply])
def test_a_write_in_evaluation_is_refused_by_plans_too(make: Callable[..., object]) -> None:
    with pytest.raises(GrowError, match="evaluation writes to `calls`") as refused:
        make(WIDER, drawn(Noting()), example_inputs=(torch.randn(8, 5),))
    assert refused.value.diagnostics[0].code == "G308"
