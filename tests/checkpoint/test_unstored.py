"""Tensors that a file lacks because the class computes them, and numbers that JSON cannot write."""

from __future__ import annotations

import json

import pytest
import torch
import transformers
from checkpoints import tiny_config

import growc
from growc import api
from growc.checkpoint.classes.on_disk import CheckpointOnDisk

SIZES = {
    "d_model": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 4,
    "encoder_ffn_dim": 48,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 24,
    "vocab_size": 40,
    "pad_token_id": 0,
    "eos_token_id": 2,
    "decoder_start_token_id": 0,
}
INPUTS = {"input_ids": torch.tensor([[5, 9, 11, 2]]), "decoder_input_ids": torch.tensor([[0, 7, 30]])}


def logits(kind, path) -> torch.Tensor:
    module, report = kind.from_pretrained(path, output_loading_info=True)
    assert not any(report.values()), report
    with torch.no_grad():
        return module.eval()(**INPUTS, use_cache=False).logits


@pytest.fixture
def sinusoids(save):
    """A directory without the position embeddings, which are parameters of its class."""
    return save("MarianMTModel", transformers.MarianConfig(**SIZES))


@pytest.mark.soak
def test_parameters_that_the_class_computes_are_constants_of_it(sinusoids, tmp_path):
    done = api.apply("widen ffn to 72 with cyclic copy\nexpect exact", sinusoids, tmp_path / "grown")
    kind = transformers.MarianMTModel
    before, after = logits(kind, sinusoids), logits(kind, tmp_path / "grown")
    assert float((before - after).abs().max() / before.abs().max()) < 1e-5
    assert done.plan.certificate.exact


@pytest.mark.soak
def test_tensors_that_the_class_computes_differently_at_other_sizes_are_a_gap(sinusoids):
    recipe = "widen hidden to 64 with cyclic copy\nwiden heads to 8 with neighbor copy"
    [gap, *_] = growc.plan(recipe, str(sinusoids)).certificate.gaps
    assert "computes from its config" in gap.cause


def test_infinity_in_a_config_is_read_and_kept(save, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama", own_limit=[0.0, float("inf")]))
    written = json.loads((path / "config.json").read_text())["own_limit"]
    assert CheckpointOnDisk.open(path).module.config.own_limit == [0.0, float("inf")]
    api.apply("widen ffn to 96 with cyclic copy", path, tmp_path / "grown", check=False)
    assert json.loads((tmp_path / "grown" / "config.json").read_text())["own_limit"] == written
