"""Schedules by their values, and rates of single entries by optimizers that have them as their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from growc.training.entry_rates import EntryRates
from growc.training.schedule import Rewarmed, WarmupStableDecay


def test_the_rate_rises_stays_and_falls() -> None:
    schedule = WarmupStableDecay(10, warmup=4, decay=4, lowest=0.2)
    expected = [0.25, 0.5, 0.75, 1, 1, 1, 1, 0.8, 0.6, 0.4, 0.2, 0.2]
    assert [schedule(step) for step in range(12)] == pytest.approx(expected)
    assert [WarmupStableDecay(3)(step) for step in range(5)] == [1.0] * 5


def test_a_decay_branch_leaves_the_run_where_it_falls() -> None:
    run = WarmupStableDecay(100, warmup=10, decay=20)
    branch = run.ending(40, decay=8)
    assert [branch(step) for step in range(33)] == [run(step) for step in range(33)]
    assert [branch(step) for step in range(33, 41)] == pytest.approx([k / 8 for k in range(7, -1, -1)])


@pytest.mark.parametrize("sizes", [(10, 6, 5), (10, -1, 0), (0, 0, 0)])
def test_a_schedule_without_room_is_refused(sizes: tuple[int, int, int]) -> None:
    with pytest.raises(ValueError, match="no room"):
        WarmupStableDecay(*sizes)


def test_new_units_rise_once_more() -> None:
    schedule = WarmupStableDecay(20, warmup=2, decay=10)
    again = Rewarmed(schedule, grown=8, warmup=4)
    assert [again(step) for step in range(8)] == [schedule(step) for step in range(8)]
    expected = [0.25 * 1, 0.5 * 1, 0.75 * 1, 1 * 0.9, 1 * 0.8]
    assert [again(step) for step in range(8, 13)] == pytest.approx(expected)


OPTIMIZERS: dict[str, Callable[[list[nn.Parameter], float], torch.optim.Optimizer]] = {
    "sgd": lambda p, lr: torch.optim.SGD(p, lr, momentum=0.9, weight_decay=0.3),
    "adamw": lambda p, lr: torch.optim.AdamW(p, lr, weight_decay=0.3),
}


def trained(name: str, factor: Callable[[int], float], entries: Tensor | None) -> Tensor:
    """A parameter after steps with given gradients; the factor is of its rate, or of some entries."""
    draws = torch.Generator().manual_seed(1)
    parameter = nn.Parameter(torch.randn(5, 4, generator=draws, dtype=torch.float64))
    optimizer = OPTIMIZERS[name]([parameter], 0.1)
    if entries is not None:
        EntryRates(optimizer, {parameter: entries}, factor)
    for step in range(6):
        parameter.grad = torch.randn(5, 4, generator=draws, dtype=torch.float64)
        if entries is None:
            optimizer.param_groups[0]["lr"] = 0.1 * factor(step)
        optimizer.step()
    return parameter.detach()


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_entries_learn_with_a_rate_of_their_own(name: str) -> None:
    factor = Rewarmed(WarmupStableDecay(6), grown=2, warmup=4)
    chosen = torch.zeros(5, 4, dtype=torch.bool)
    chosen[3:], chosen[:, 1] = True, True
    found = trained(name, factor, chosen)
    slow, whole = trained(name, factor, None), trained(name, lambda step: 1.0, None)
    assert (slow - whole).abs().min() > 1e-3
    assert torch.allclose(found, torch.where(chosen, slow, whole), atol=1e-12)
    assert torch.equal(found[~chosen], whole[~chosen])


def test_rates_of_entries_go_on_and_end() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([parameter], 1.0)
    first = EntryRates(optimizer, {parameter: torch.tensor([False, True])}, lambda step: 1 / (step + 1))
    for _ in range(2):
        parameter.grad = -torch.ones(2)
        optimizer.step()
    assert parameter.tolist() == [2.0, 1.5]
    first.remove()
    again = EntryRates(optimizer, {parameter: torch.tensor([False, True])}, lambda step: 1 / (step + 1))
    again.load_state_dict(first.state_dict())
    optimizer.step()
    assert parameter.tolist() == pytest.approx([3.0, 1.5 + 1 / 3])
    again.remove()
    optimizer.step()
    assert parameter.tolist() == pytest.approx([4.0, 2.5 + 1 / 3])


def test_entries_of_another_shape_are_refused() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    with pytest.raises(ValueError, match="entries"):
        EntryRates(torch.optim.SGD([parameter], 1.0), {parameter: torch.tensor([True])}, lambda step: 1.0)
