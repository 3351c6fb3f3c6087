"""Rates, decays and eps with which a grown model trains as its source would have, step by step."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import torch
from test_submodels import drawn, loss
from torch import nn

import growc
from growc.training.hold import Held, Method

DOUBLED = (
    "widen hidden to 2 * hidden with cyclic copy\nwiden heads to 2 * heads with neighbor copy\n"
    "widen ffn to 3 * ffn with cyclic copy"
)
NUMBERS: dict[Method, dict[str, float]] = {
    "sgd": {"lr": 0.05, "weight_decay": 0.1},
    "adamw": {"lr": 3e-3, "weight_decay": 0.1, "eps": 1e-3},
}


WITHIN = {"gpt2": 1e-9, "bert": 1e-9, "llama": 2e-6}
"""Relative: everything is float64, but LLaMA's norms compute in float32 whatever they are given."""


def optimizer(method: Method, groups: Any, **numbers: float) -> torch.optim.Optimizer:
    if method == "sgd":
        return torch.optim.SGD(groups, momentum=0.9, **numbers)
    return torch.optim.AdamW(groups, **numbers)


def losses(module: nn.Module, name: str, method: Method, groups: Any, steps: int) -> list[float]:
    """The loss in front of each of some steps."""
    made = optimizer(method, groups, **NUMBERS[method])
    found = []
    for _ in range(steps):
        made.zero_grad()
        value = loss(module, name)
        value.backward()
        made.step()
        found.append(value.item())
    return found


@cache
def made(name: str, recipe: str) -> tuple[nn.Module, Any]:
    source = drawn(name).double()
    return source, growc.apply(source, recipe, check=False).eval()


def grown(name: str, recipe: str, method: Method) -> tuple[nn.Module, Any, Held]:
    source, result = copy.deepcopy(made(name, recipe))
    held = growc.param_groups(result, result.plan, hold=True, method=method, **NUMBERS[method])
    assert isinstance(held, Held)
    return source, result, held


@pytest.mark.sampled(3)
@pytest.mark.parametrize("method", NUMBERS)
@pytest.mark.parametrize("name", ["gpt2", "bert", "llama"])
def test_fifty_losses_are_those_of_the_source(name: str, method: Method) -> None:
    source, result, held = grown(name, DOUBLED, method)
    assert held.exact
    plain = losses(copy.deepcopy(result), name, method, list(copy.deepcopy(result).parameters()), 3)
    expected = losses(source, name, method, list(source.parameters()), 50)
    assert losses(result, name, method, held, 50) == pytest.approx(expected, rel=WITHIN[name])
    assert abs(expected[0] - expected[-1]) > 0.05, "it learns"
    assert plain[0] == pytest.approx(expected[0], rel=WITHIN[name])


@pytest.mark.parametrize("method", NUMBERS)
def test_the_numbers_of_the_source_train_something_else(method: Method) -> None:
    source, result, _ = grown("llama", DOUBLED, method)
    expected = losses(source, "llama", method, list(source.parameters()), 10)
    found = losses(result, "llama", method, list(result.parameters()), 10)
    assert found != pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize(
    ("recipe", "why"),
    [
        ("widen ffn to 3 * ffn / 2 with uniform copy", "has entries of several factors"),
        ("widen ffn to 2 * ffn with cyclic copy split random", "do not count alike"),
        ("widen ffn to 2 * ffn with zero fill", "has new entries"),
        ("stack layers to 4 by last with zero outputs", "is new, computed"),
        ("widen hidden to 24 with neighbor copy", "the plan is not exact"),
    ],
)
def test_a_training_that_cannot_be_held_is_a_gap(recipe: str, why: str) -> None:
    _, _, held = grown("gpt2", recipe, "adamw")
    assert not held.exact
    assert any(why in gap for gap in held.gaps)


def test_dropout_cannot_be_held() -> None:
    _, result, _ = grown("gpt2", DOUBLED, "adamw")
    held = growc.param_groups(result.train(), result.plan, hold=True, lr=1e-3)
    assert isinstance(held, Held)
    assert "`transformer.h.0.mlp.dropout` draws for every copy by itself" in held.gaps


def test_a_parameter_that_the_plan_does_not_name_cannot_be_held() -> None:
    _, result, _ = grown("gpt2", DOUBLED, "adamw")
    part = result.transformer.h
    held = growc.param_groups(part, result.plan, hold=True, lr=1e-3)
    assert isinstance(held, Held)
    assert "`0.ln_1.weight` is not in the plan" in held.gaps


@pytest.mark.parametrize(
    "options", [{"hold": True}, {"hold": True, "lr": 1e-3, "new": {}}, {"lineage": "plan"}], ids=str
)
def test_conflicting_options_are_a_type_error(options: dict[str, Any]) -> None:
    _, result, _ = grown("gpt2", DOUBLED, "adamw")
    told = result.plan if "lineage" in options or "new" in options else result.lineage
    with pytest.raises(TypeError, match="plan"):
        growc.param_groups(result, told, **{k: v for k, v in options.items() if k != "lineage"})
