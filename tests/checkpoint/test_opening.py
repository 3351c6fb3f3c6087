"""A checkpoint and its class: what does not fit together is refused before anything is planned."""

from __future__ import annotations

import json

import numpy as np
import pytest
from checkpoints import tiny_config
from safetensors.numpy import load_file, save_file

from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.errors.diagnostic import GrowError


def rewrite(path, change):
    state = load_file(path / "model.safetensors")
    change(state)
    save_file(state, path / "model.safetensors", metadata={"format": "pt"})


def refusal(path) -> str:
    with pytest.raises(GrowError) as caught:
        CheckpointOnDisk.open(path)
    return str(caught.value)


def test_a_tensor_is_read_by_any_name_that_it_has(save):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    opened = CheckpointOnDisk.open(path)
    assert "lm_head.weight" not in opened.checkpoint.tensors
    assert np.array_equal(opened.read("lm_head.weight"), opened.read("transformer.wte.weight"))


def test_16_bit_numbers_are_given_to_passes_as_single_precision(save):
    opened = CheckpointOnDisk.open(save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16"))
    assert str(opened.tensor("model.norm.weight").dtype) == "torch.float32"


def test_a_missing_tensor_is_named(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    rewrite(path, lambda state: state.pop("model.norm.weight"))
    assert "there is no `model.norm.weight`" in refusal(path)


def test_a_tensor_of_another_size_than_the_config_says_is_named(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    config = json.loads((path / "config.json").read_text()) | {"intermediate_size": 64}
    (path / "config.json").write_text(json.dumps(config))
    assert "is [48, 32], and the config says [64, 32]" in refusal(path)


@pytest.mark.parametrize("equal", [True, False])
def test_a_tie_that_is_stored_twice_has_to_be_one(save, equal):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))

    def twice(state):
        state["lm_head.weight"] = state["transformer.wte.weight"] + (0 if equal else 1)

    rewrite(path, twice)
    if equal:
        assert CheckpointOnDisk.open(path).read("lm_head.weight").shape == (48, 32)
    else:
        assert "their values differ" in refusal(path)


def test_quantised_weights_are_refused(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    config = json.loads((path / "config.json").read_text())
    (path / "config.json").write_text(json.dumps(config | {"quantization_config": {"quant_method": "gptq"}}))
    assert "are quantised" in refusal(path)
