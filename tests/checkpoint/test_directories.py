"""Checkpoint directories: what is read of them without loading, and what is refused."""

from __future__ import annotations

import json
import pickle

import numpy as np
import pytest
import torch
from checkpoints import tiny_config
from safetensors.numpy import load_file
from safetensors.torch import save_file

from growc.checkpoint.files.directory import Checkpoint
from growc.errors.diagnostic import GrowError


def refused(path) -> GrowError:
    with pytest.raises(GrowError) as caught:
        Checkpoint.open(path)
    [diagnostic] = caught.value.diagnostics
    assert diagnostic.code == "G310"
    return caught.value


@pytest.mark.parametrize("options", [{}, {"max_shard_size": "20KB"}])
def test_every_tensor_is_read_by_name(save, options):
    path = save("LlamaForCausalLM", tiny_config("Llama"), **options)
    found = Checkpoint.open(path)
    expected = {n: t for file in path.glob("*.safetensors") for n, t in load_file(file).items()}
    assert set(found.tensors) == set(expected)
    assert len(list(path.glob("*.safetensors"))) == (1 if not options else 4)
    for name, tensor in expected.items():
        assert found.tensors[name].entry.shape == tensor.shape
        assert np.array_equal(found.read(name), tensor)


def test_bfloat16_is_read_as_it_is(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16")
    found = Checkpoint.open(path).read("model.norm.weight")
    assert found.dtype.name == "bfloat16"
    assert (found.astype(np.float32) == 1).all()


def test_weights_in_a_pickle_are_read_without_running_it(save):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    state = {n: torch.from_numpy(t) for n, t in load_file(path / "model.safetensors").items()}
    torch.save({n: t.to(torch.bfloat16) for n, t in state.items()}, path / "pytorch_model.bin")
    (path / "model.safetensors").unlink()
    found = Checkpoint.open(path)
    assert set(found.tensors) == set(state)
    name = "transformer.h.0.attn.c_attn.weight"
    assert np.array_equal(found.read(name), state[name].numpy().astype("bfloat16"))


class _Malice:
    def __init__(self, target: str) -> None:
        self.target = target

    def __reduce__(self):
        return open, (self.target, "w")


@pytest.mark.parametrize("protocol", ["zip", "plain", "legacy"])
def test_a_pickle_with_code_in_it_is_refused_and_does_not_run(save, tmp_path, protocol):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    (path / "model.safetensors").unlink()
    loot = {"transformer.wte.weight": _Malice(str(tmp_path / "run"))}
    if protocol == "plain":
        (path / "pytorch_model.bin").write_bytes(pickle.dumps(loot))
    else:
        torch.save(loot, path / "pytorch_model.bin", _use_new_zipfile_serialization=protocol == "zip")
    assert "code" in str(refused(path))
    assert not (tmp_path / "run").exists()


def test_a_shard_that_is_missing_is_named(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    (path / "model-00002-of-00004.safetensors").unlink()
    assert "model-00002-of-00004.safetensors` cannot be read" in str(refused(path))


def test_a_shard_that_lacks_what_the_index_promises_is_refused(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    save_file({"x": torch.zeros(1)}, path / "model-00002-of-00004.safetensors")
    assert "the index says that it holds" in str(refused(path))


@pytest.mark.parametrize("keep", [4, 200, -1])
def test_a_damaged_file_is_refused(save, keep):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    weights = path / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:keep])
    refused(path)


def test_two_sets_of_weights_are_refused(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    save_file({"x": torch.zeros(1)}, path / "model.safetensors")
    assert "one of them is old" in str(refused(path))


def test_an_index_leads_to_no_other_folder(save):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    index = path / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"x": "../secret.safetensors"}}))
    assert "no file of this directory" in str(refused(path))


@pytest.mark.parametrize("content", [None, "[]", "{"])
def test_a_directory_without_a_config_is_no_checkpoint(save, content):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    (path / "config.json").unlink()
    if content is not None:
        (path / "config.json").write_text(content)
    assert "config.json" in str(refused(path))


def test_a_directory_without_weights_is_refused(save):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    (path / "model.safetensors").unlink()
    assert "has no weights" in str(refused(path))
