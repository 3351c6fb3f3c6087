"""Stages of training: the model of each, its optimizer, and what a step changes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_submodels import IDS, drawn, loss
from torch import nn

from growc.training.stages import TrainingStage, enter, mslt, stackbert


def trained(name: str, steps: int = 3) -> tuple[nn.Module, torch.optim.Optimizer]:
    """A model after some steps of AdamW, with its matrices and its vectors in groups of their own."""
    module = drawn(name)
    parameters = list(module.parameters())
    decayed, others = [p for p in parameters if p.dim() > 1], [p for p in parameters if p.dim() < 2]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1, betas=(0.8, 0.9))
    for _ in range(steps):
        step(module, optimizer, name)
    return module, optimizer


def step(module: Any, optimizer: torch.optim.Optimizer, name: str) -> None:
    optimizer.zero_grad()
    loss(module, name).backward()
    optimizer.step()


def state_of(module: nn.Module, optimizer: torch.optim.Optimizer, name: str) -> dict[str, Any]:
    return optimizer.state[module.get_parameter(name)]


def test_the_stages_of_the_papers() -> None:
    assert stackbert(3, [5, 6, 7]) == [
        TrainingStage(5),
        TrainingStage(6, "stack layers to 6 by whole"),
        TrainingStage(7, "stack layers to 12 by whole"),
    ]
    assert mslt(3, 2, [4, 5, 6]) == [
        TrainingStage(4),
        TrainingStage(5, "stack layers to 5 by top 2", 2),
        TrainingStage(6),
    ]


@pytest.mark.parametrize("name", ["gpt2", "bert"])
def test_a_stage_goes_on_with_the_state_of_the_layers_that_it_copies(name: str) -> None:
    module, optimizer = trained(name)
    layer = {"gpt2": "transformer.h.{}.ln_2.weight", "bert": "bert.encoder.layer.{}.output.LayerNorm.weight"}
    before = state_of(module, optimizer, layer[name].format(1))["exp_avg"]
    staged = enter(stackbert(3, [1, 1])[1], module, optimizer)
    for place in (1, 4):
        after = state_of(staged.module, staged.optimizer, layer[name].format(place))
        assert torch.equal(after["exp_avg"], before)
        assert after["step"] == 3
    assert [group["weight_decay"] for group in staged.optimizer.param_groups] == [0.1, 0.0]
    assert {group["betas"] for group in staged.optimizer.param_groups} == {(0.8, 0.9)}
    assert staged.fresh == ()
    step(staged.module, staged.optimizer, name)


def test_new_layers_may_begin_without_state() -> None:
    module, optimizer = trained("gpt2")
    staged = enter(stackbert(3, [1, 1])[1], module, optimizer, new="zero")
    assert any(name.startswith("transformer.h.3.") for name in staged.fresh)
    assert not any(name.startswith("transformer.h.2.") for name in staged.fresh)


def test_a_stage_of_mslt_trains_its_new_layers_and_what_follows_them() -> None:
    module, optimizer = trained("llama")
    staged = enter(mslt(3, 2, [1, 1, 1])[1], module, optimizer)
    before = {name: value.clone() for name, value in staged.module.state_dict().items()}
    step(staged.module, staged.optimizer, "llama")
    changed = {
        name for name, value in staged.module.state_dict().items() if not torch.equal(value, before[name])
    }
    parts = {name.split(".")[2] if ".layers." in name else name for name in changed}
    assert parts == {"3", "4", "model.norm.weight", "lm_head.weight"}
    last = enter(TrainingStage(1), staged.module, staged.optimizer)
    step(last.module, last.optimizer, "llama")
    assert all(p.grad is not None for p in last.module.parameters())


def test_a_module_of_nobodys_class_goes_through_stages() -> None:
    module = drawn("module")
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9)
    step(module, optimizer, "module")
    staged = enter(TrainingStage(1, "stack layers to 5 by last"), module, optimizer, (IDS,))
    before = loss(staged.module, "module").item()
    for _ in range(5):
        step(staged.module, staged.optimizer, "module")
    assert loss(staged.module, "module").item() < before
