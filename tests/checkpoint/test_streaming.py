"""Checkpoints that are too large to be loaded run with the same outputs as loaded ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from checkpoints import tiny_config

from growc.checkpoint.check import run as running
from growc.checkpoint.files.directory import config_of
from growc.dialects.torch.capture.example_inputs import real_inputs
from growc.dialects.transformers.classes import build

KINDS = {
    "GPT2": "GPT2LMHeadModel",
    "Llama": "LlamaForCausalLM",
    "Mixtral": "MixtralForCausalLM",
    "Bert": "BertForMaskedLM",
}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("number", ["float32", "bfloat16"])
def test_a_streamed_checkpoint_computes_what_a_loaded_one_does(kind, number, save, monkeypatch):
    path = save(KINDS[kind], tiny_config(kind), dtype=number)
    whole = running.load(path)
    given = real_inputs(build(config_of(path)))
    monkeypatch.setattr(running, "WHOLE", 0)
    streamed = running.load(path)
    assert whole.whole
    assert not streamed.whole
    assert all(p.is_meta for p in streamed.module.parameters())
    expected, found = whole.run(given), streamed.run(given)
    assert expected.keys() == found.keys()
    for name, output in expected.items():
        np.testing.assert_allclose(found[name], output, rtol=2e-5, atol=2e-5)


def test_a_streamed_checkpoint_runs_in_wider_numbers(save, monkeypatch):
    path = save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16")
    given = real_inputs(build(config_of(path)))
    expected = running.load(path, torch.float64).run(given)
    monkeypatch.setattr(running, "WHOLE", 0)
    found = running.load(path, torch.float64).run(given)
    assert found["logits"].dtype == np.float64
    np.testing.assert_allclose(found["logits"], expected["logits"], rtol=1e-9, atol=1e-12)


def test_weights_after_one_more_rounding_are_the_same_ones_streamed_and_loaded(save, monkeypatch):
    path = save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16")
    given = real_inputs(build(config_of(path)))
    plain = running.load(path, torch.float32).run(given)["logits"]
    expected = running.load(path, torch.float32, moves=True).run(given)["logits"]
    monkeypatch.setattr(running, "WHOLE", 0)
    found = running.load(path, torch.float32, moves=True).run(given)["logits"]
    np.testing.assert_allclose(found, expected, rtol=2e-5, atol=2e-5)
    assert 1e-4 < np.abs(expected - plain).max() / np.abs(plain).max() < 2e-2
