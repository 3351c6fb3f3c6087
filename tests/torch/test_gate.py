"""Configs with the right shapes and another operator log are refused, whatever it is that they change."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import tiny_configs
from truths import target_of

from growc.dialects.torch.capture.example_inputs import example_inputs
from growc.dialects.transformers.classes import build
from growc.dialects.transformers.config.check_program import check, difference
from growc.dialects.transformers.config.near_misses import Unsolved
from growc.dialects.transformers.config.refusal import PlannedSizes, refusal
from growc.dialects.transformers.config.search import solve
from growc.dialects.transformers.config.shapes import shapes_of
from growc.dialects.transformers.config.trials import Target
from growc.errors.diagnostic import GrowError

ROPE = {"rope_type": "default", "rope_theta": 10000.0}
WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "half as many heads, twice as wide": (
        "LLAMA",
        {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    ),
    "more query heads in the place of key heads": (
        "PHI3",
        {"num_attention_heads": 8, "num_key_value_heads": 4, "hidden_size": 32},
    ),
    "heads that no shape shows": ("GPT2", {"n_head": 8}),
    "heads of a post-norm encoder": ("BERT", {"num_attention_heads": 2}),
    "heads of an image model": ("VIT", {"num_attention_heads": 8}),
    "heads of one tower": ("CLIP", {"vision_config": {"num_attention_heads": 2}}),
    "eps of RMS norms": ("LLAMA", {"rms_norm_eps": 1e-5}),
    "eps of layer norms": ("GPT2", {"layer_norm_epsilon": 1e-6}),
    "another activation": ("LLAMA", {"hidden_act": "gelu"}),
    "another spelling of an activation": ("GPT2", {"activation_function": "gelu"}),
    "activation of a post-norm encoder": ("BERT", {"hidden_act": "relu"}),
    "rotary base": ("LLAMA", {"rope_parameters": {"rope_type": "default", "rope_theta": 5000.0}}),
    "rotary scaling": (
        "LLAMA",
        {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
    ),
    "rotary part": ("NEOX", {"rope_parameters": ROPE | {"partial_rotary_factor": 0.5}}),
    "parallel residual": ("NEOX", {"use_parallel_residual": False}),
    "attention that is scaled by its layer": ("GPT2", {"scale_attn_by_inverse_layer_idx": True}),
    "attention that is not scaled": ("GPT2", {"scale_attn_weights": False}),
    "attention's own scale": ("GEMMA2", {"query_pre_attn_scalar": 16}),
    "soft cap of attention": ("GEMMA2", {"attn_logit_softcapping": 20.0}),
    "soft cap of logits": ("GEMMA2", {"final_logit_softcapping": 10.0}),
    "window": ("GEMMA2", {"sliding_window": 8}),
    "windows in other layers": ("GEMMA2", {"layer_types": ["full_attention", "sliding_attention"]}),
    "no windows": ("GEMMA2", {"layer_types": ["full_attention", "full_attention"]}),
    "multiplier of embeddings": ("GRANITE", {"embedding_multiplier": 2.0}),
    "multiplier of residuals": ("GRANITE", {"residual_multiplier": 0.25}),
    "multiplier of attention": ("GRANITE", {"attention_multiplier": 0.1}),
    "scaling of logits": ("GRANITE", {"logits_scaling": 4.0}),
    "reach of relative positions": ("T5", {"relative_attention_max_distance": 32}),
    "head that is not tied": ("GPT2", {"tie_word_embeddings": False}),
    "another activation between two matrices": ("OPT", {"activation_function": "gelu"}),
    "experts for each token": ("MIXTRAL", {"num_experts_per_tok": 1}),
    "layers without rotary positions": ("SMOLLM3", {"no_rope_layers": [0, 1]}),
    "embeddings that are scaled": ("PEGASUS", {"scale_embedding": True}),
    "masks of a decoder": ("BERT", {"is_decoder": True}),
}


@cache
def planned(name: str) -> Target:
    """The target that a config is; its own class has it."""
    config = getattr(tiny_configs, name)
    return target_of(config, example_inputs(build(config)))


def with_changes(config: dict[str, Any], changes: dict[str, Any]) -> dict[str, Any]:
    made = config | changes
    return made | {key: config[key] | value for key, value in changes.items() if key.endswith("_config")}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kind", WRONG)
def test_a_config_with_the_right_shapes_that_computes_something_else_is_refused(kind):
    name, changes = WRONG[kind]
    module = build(with_changes(getattr(tiny_configs, name), changes), constants=True)
    assert shapes_of(module) == planned(name).shapes
    with pytest.raises(GrowError) as refused:
        check(module, planned(name))
    assert refused.value.diagnostics[0].code == "G319"


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", sorted({name for name, _ in WRONG.values()}))
def test_the_config_itself_is_not_refused(name):
    assert difference(build(getattr(tiny_configs, name), constants=True), planned(name)) == ""


def test_a_refusal_of_a_class_gives_the_statements_that_make_the_plan_possible():
    target = planned("GPT2")
    wider = {n: [*s] for n, s in target.shapes.items()}
    for name, shape in wider.items():
        if "attn.c_attn" in name:
            shape[-1] = 144
        if name.endswith("attn.c_proj.weight"):
            shape[0] = 48
    shapes = {name: tuple(shape) for name, shape in wider.items()}
    found = solve(tiny_configs.GPT2, Target(shapes, target.ties, target.log, target.inputs), build)
    assert isinstance(found, Unsolved)
    asked = PlannedSizes(
        frozenset({"widen"}), lambda name, axis: [("hidden", 32)], target.shapes, lambda more: True
    )
    said = refusal("GPT2LMHeadModel", found, asked, {})
    assert said.code == "G318"
    assert said.help == "the class ties these: `widen hidden to 48 with cyclic copy` too"
