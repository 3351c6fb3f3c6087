"""Weights compensate for numbers that a class recomputes from its config: its outputs are as planned."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tiny_configs
import torch
from torch import nn

from growc.dialects.torch.capture.example_inputs import real_inputs
from growc.dialects.transformers.classes import class_of
from growc.dialects.transformers.log.compensation import Compensation, compensate
from growc.dialects.transformers.log.linear_system import solution
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.scale_rules import Balance

Change = Callable[[Any], None]


def loaded(config: dict[str, Any]) -> nn.Module:
    """The class with drawn weights; gains and biases too."""
    torch.manual_seed(0)
    kind: Any = class_of(config)
    module: nn.Module = kind(kind.config_class.from_dict(config)).eval()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.2 * torch.randn(parameter.shape)
    return module


def settled(config: dict[str, Any], planned: Change) -> tuple[Compensation, float, float]:
    """How far the class is from the same class with other numbers in it, before and after compensation."""
    plan, rebuilt = loaded(config), loaded(config)
    planned(plan)
    inputs = real_inputs(rebuilt)
    found = compensate(operator_log(plan, inputs), operator_log(rebuilt, inputs))
    before = distance(plan, rebuilt, inputs)
    state = rebuilt.state_dict(keep_vars=True)
    with torch.no_grad():
        for name, factor in found.factors.items():
            state[name].copy_(torch.from_numpy(factor.of(state[name].numpy())))
    return found, before, distance(plan, rebuilt, inputs)


def distance(one: nn.Module, other: nn.Module, inputs: dict[str, Any]) -> float:
    with torch.no_grad():
        a, b = (module(**inputs).logits for module in (one, other))
    return float((a - b).norm() / a.norm())


def embedding_of_the_source(module: Any) -> None:
    module.model.embed_tokens.embed_scale = torch.tensor(4.0)


def logits_of_the_source(module: Any) -> None:
    module.model_dim = module.config.d_model = 8


def narrower_heads(module: Any) -> None:
    for layer in module.model.layers:
        layer.self_attn.scaling = 0.5


def eps_of_two_norms(module: Any) -> None:
    for layer in module.model.layers:
        layer.self_attn.q_norm.variance_epsilon = 1e-2


def eps_behind_a_product(module: Any) -> None:
    for layer in module.model.layers:
        layer.mlp.ffn_sub_norm.variance_epsilon = 1e-1


def other_frequencies(module: Any) -> None:
    module.model.rotary_emb.inv_freq = module.model.rotary_emb.inv_freq**1.1


def multipliers(module: Any) -> None:
    module.model.embedding_multiplier = 5.0
    module.logits_scaling = 3.0


BITNET = tiny_configs.LLAMA | {
    "architectures": ["BitNetForCausalLM"],
    "model_type": "bitnet",
    "hidden_act": "relu2",
}

EXACT: dict[str, tuple[dict[str, Any], Change]] = {
    "the scale of tied embeddings": (tiny_configs.GEMMA2, embedding_of_the_source),
    "the scale of attention": (tiny_configs.LLAMA, narrower_heads),
    "an eps that norms share": (tiny_configs.QWEN3, eps_of_two_norms),
    "an eps behind a product": (BITNET, eps_behind_a_product),
    "multipliers": (tiny_configs.GRANITE, multipliers),
    "the scale of tied logits": (tiny_configs.T5, logits_of_the_source),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", EXACT)
def test_a_factor_is_made_up_for_in_weights(name):
    found, before, after = settled(*EXACT[name])
    assert not found.gaps
    assert before > 1e-3
    assert after < 5e-6


def test_equal_numbers_change_no_weight():
    found, before, _ = settled(tiny_configs.LLAMA, lambda module: None)
    assert found == Compensation()
    assert before == 0


def test_a_difference_that_is_no_factor_is_a_gap_with_its_cause():
    found, _, _ = settled(tiny_configs.LLAMA, other_frequencies)
    [gap] = found.gaps
    assert "`constant` to [4] has" in gap
    assert not found.factors


def test_equations_that_only_together_say_something_are_solved():
    equations = [Balance({"a": 1.0, "b": 2.0, "c": 1.0}, 4.0), Balance({"a": 1.0, "b": 1.0, "c": 1.0}, 3.0)]
    assert solution(equations, ["a", "b", "c"]) == {"a": 2.0, "b": 1.0}


def test_equations_that_only_together_contradict_are_seen():
    equations = [Balance({"a": 1.0, "b": 1.0}, 1.0), Balance({"a": 2.0, "b": 2.0}, 3.0)]
    assert solution(equations, ["a", "b"]) is None


def test_only_the_query_takes_the_scale_of_attention():
    found, _, _ = settled(tiny_configs.LLAMA, narrower_heads)
    assert {name.split(".")[-2] for name in found.factors} == {"q_proj"}
    assert {round(factor.times, 4) for factor in found.factors.values()} == {round(0.5 * 8**0.5, 4)}
