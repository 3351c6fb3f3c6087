"""A config.json by itself: plans without weights."""

from __future__ import annotations

import json

import pytest
import transformers
from checkpoints import tiny_config

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.plans.plan_to_json import to_json

RECIPE = """
widen hidden to 2 * hidden with average fill
widen heads to 2 * heads with neighbor copy
widen ffn to 3 * ffn / 2 with uniform copy split random
stack layers to 3 by last with zero outputs
"""
MODELS = [("GPT2", "GPT2LMHeadModel"), ("Llama", "LlamaForCausalLM"), ("Mixtral", "MixtralForCausalLM")]


@pytest.fixture(params=MODELS, ids=lambda pair: pair[0])
def directory(request, tmp_path):
    kind, name = request.param
    module = getattr(transformers, name)(tiny_config(kind)).half()
    module.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def test_the_plan_of_a_config_is_that_of_its_checkpoint(directory):
    whole, outlined = (to_json(growc.plan(RECIPE, path)) for path in (directory, directory / "config.json"))
    assert "planned without weights" in outlined.pop("notes")[-1]
    parting = [key for key in outlined if key != "model" and outlined[key] != whole[key]]
    assert parting == []


def test_rankings_by_weights_need_weights(directory):
    with pytest.raises(GrowError, match="are not known"):
        growc.plan("subclone ffn to ffn / 2 by magnitude", directory / "config.json")


def test_a_config_is_not_applied(directory, tmp_path):
    with pytest.raises(GrowError, match="has no weights"):
        growc.apply(RECIPE, directory / "config.json", tmp_path / "larger")
    assert not (tmp_path / "larger").exists()


def test_a_mixture_of_a_trillion_weights_is_planned(tmp_path, capsys):
    sizes = {"hidden_size": 8192, "moe_intermediate_size": 8192, "num_experts": 2560, "num_hidden_layers": 2}
    config = transformers.Qwen3MoeConfig(**sizes, num_attention_heads=64, num_key_value_heads=8)
    config.architectures = ["Qwen3MoeForCausalLM"]
    config.dtype = "bfloat16"
    path = tmp_path / "config.json"
    path.write_text(json.dumps(config.to_dict()))
    assert main(["plan", "-e", "widen ffn to 2 * ffn with uniform copy", str(path), "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["certificate"]["exact"]
    assert said["parameters"]["before"] > 10**12
    assert said["bytes"] == pytest.approx(2 * said["parameters"]["after"], rel=1e-6)


def test_json_that_names_no_class_is_refused(tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("{}")
    with pytest.raises(GrowError) as refused:
        growc.plan(RECIPE, path)
    assert refused.value.diagnostics[0].code == "G310"
    assert "neither `architectures` nor `model_type`" in str(refused.value)
