"""The written files: the bytes that transformers itself writes, whole and nothing else."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
import transformers
from checkpoints import tiny_config

from growc.checkpoint.files.directory import Checkpoint
from growc.checkpoint.files.key_mapping import ModuleNames
from growc.checkpoint.files.shards import read_size
from growc.checkpoint.files.write import as_they_are, write_checkpoint
from growc.errors.diagnostic import GrowError
from growc.plans.lazy_rows import stored

MODELS = [
    ("LlamaForCausalLM", "Llama"),
    ("GPT2LMHeadModel", "GPT2"),
    ("MixtralForCausalLM", "Mixtral"),
    ("BertForMaskedLM", "Bert"),
]


def skeleton(path, class_name):
    config = transformers.AutoConfig.from_pretrained(path)
    with torch.device("meta"):
        return getattr(transformers, class_name)(config)


def bytes_of(path):
    return {p.name: p.read_bytes() for p in path.iterdir()}


# where tensors are parted to be saved, transformers keeps those in one shard that were one before
CASES = [(*model, size) for model in MODELS for size in ("50GB", "20KB")]
CASES.remove(("MixtralForCausalLM", "Mixtral", "20KB"))


@pytest.mark.parametrize(("class_name", "kind", "size"), CASES)
def test_a_copy_by_way_of_the_class_is_what_transformers_saves(save, tmp_path, class_name, kind, size):
    path = save(class_name, tiny_config(kind), dtype="bfloat16")
    again = getattr(transformers, class_name).from_pretrained(path)
    again.save_pretrained(tmp_path / "again", max_shard_size=size)
    source = Checkpoint.open(path)
    module = skeleton(path, class_name)
    names = ModuleNames(module, {n: t.entry for n, t in source.tensors.items()}, source.read)
    assert names.unused == ()
    parts = names.files(module, names.entries, lambda name: stored(names.read(name)))
    count = module.num_parameters()
    write_checkpoint(
        tmp_path / "copy", source, source.config, parts, shard_size=read_size(size), parameters=count
    )
    assert bytes_of(tmp_path / "copy") == bytes_of(tmp_path / "again")


def test_saving_what_was_saved_gives_the_same_bytes(save, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"), dtype="bfloat16", max_shard_size="20KB")
    before = path
    for name in ("once", "twice"):
        source = Checkpoint.open(before)
        parts = as_they_are([t.entry for t in source.tensors.values()], source.read)
        write_checkpoint(tmp_path / name, source, source.config, parts, shard_size=read_size("30KB"))
        before = tmp_path / name
    assert bytes_of(tmp_path / "once") == bytes_of(tmp_path / "twice")
    assert len(list(before.glob("*.safetensors"))) > 1
    loaded = transformers.LlamaForCausalLM.from_pretrained(before, output_loading_info=True)[1]
    assert not any(loaded.values())


def test_weights_that_a_class_joins_are_read_joined(save):
    path = save("MixtralForCausalLM", tiny_config("Mixtral"))
    source = Checkpoint.open(path)
    model = transformers.MixtralForCausalLM.from_pretrained(path)
    names = ModuleNames(
        skeleton(path, "MixtralForCausalLM"), {n: t.entry for n, t in source.tensors.items()}, source.read
    )
    state = model.state_dict()
    assert set(names.entries) == set(state)
    assert set(names.entries) != set(source.tensors)
    for name, tensor in state.items():
        assert names.entries[name].shape == tensor.shape
        assert np.array_equal(names.read(name), tensor.numpy())


def test_a_file_of_the_bare_model_is_read_under_the_names_of_another_head(save):
    path = save("BertModel", tiny_config("Bert"))
    source = Checkpoint.open(path)
    names = ModuleNames(
        skeleton(path, "BertForMaskedLM"), {n: t.entry for n, t in source.tensors.items()}, source.read
    )
    name = "embeddings.word_embeddings.weight"
    assert np.array_equal(names.read(f"bert.{name}"), source.read(name))
    assert names.unused == ("pooler.dense.bias", "pooler.dense.weight")


def test_other_files_are_carried_and_weights_and_training_states_are_not(save, tmp_path):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    for name in ("tokenizer.json", "README.md", "optimizer.pt", "trainer_state.json", "rng_state.pth"):
        (path / name).write_text(name)
    for name in ("1_Pooling/config.json", "checkpoint-5/config.json", "checkpoint-5/model.safetensors"):
        (path / name).parent.mkdir(exist_ok=True)
        (path / name).write_text("{}")
    source = Checkpoint.open(path)
    parts = as_they_are([t.entry for t in source.tensors.values()], source.read)
    write_checkpoint(tmp_path / "copy", source, source.config | {"extra": 1}, parts)
    assert {
        p.relative_to(tmp_path / "copy").as_posix() for p in (tmp_path / "copy").rglob("*") if p.is_file()
    } == {
        *("config.json", "generation_config.json", "model.safetensors"),
        *("tokenizer.json", "README.md", "1_Pooling/config.json"),
    }
    assert json.loads((tmp_path / "copy/config.json").read_text())["extra"] == 1
    assert {p.name for p in source.left()} >= {"optimizer.pt", "checkpoint-5", "rng_state.pth"}


@pytest.mark.parametrize(("text", "size"), [("5GB", 5 * 10**9), ("300 kb", 300_000), ("12", 12)])
def test_a_shard_size_is_read_as_transformers_reads_it(text, size):
    assert read_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "5 apples", "-1GB", "1.5GB"])
def test_text_that_is_no_size_is_refused(text):
    with pytest.raises(GrowError, match="is no size"):
        read_size(text)
