"""Checkpoint directories with links in them: caches of downloads, and links that lead away."""

from __future__ import annotations

import json
import os

import pytest
import torch
from checkpoints import tiny_config
from downloads import cached
from safetensors.torch import save_file

import growc
from growc.checkpoint.files.directory import Checkpoint
from growc.errors.diagnostic import GrowError

WIDEN = "widen ffn to 96 with tail copy"


def test_shards_in_a_cache_are_grown_and_compared(save, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"), max_shard_size="20KB")
    (path / "words.txt").write_text("a\nb\n")
    snapshot = cached(tmp_path / "cache", {p.name: p for p in path.iterdir()})
    done = growc.apply(WIDEN, snapshot, tmp_path / "out")
    assert done.verification is not None
    assert done.verification.cases > 0
    assert (tmp_path / "out/words.txt").read_text() == "a\nb\n"
    assert not (tmp_path / "out/words.txt").is_symlink()


@pytest.mark.parametrize("kind", ["safetensors", "bin"])
def test_a_shard_that_is_a_link_to_elsewhere_is_refused(save, tmp_path, kind):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    (path / "model.safetensors").unlink()
    secret = tmp_path / f"secret.{kind}"
    if kind == "bin":
        torch.save({"x": torch.zeros(1)}, secret)
    else:
        save_file({"x": torch.zeros(1)}, secret)
    (path / f"shard.{kind}").symlink_to(secret)
    index = "pytorch_model.bin.index.json" if kind == "bin" else "model.safetensors.index.json"
    (path / index).write_text(json.dumps({"weight_map": {"x": f"shard.{kind}"}}))
    with pytest.raises(GrowError, match="outside of its folder") as caught:
        Checkpoint.open(path)
    assert caught.value.exit_status == 3


def test_links_that_lead_away_and_pipes_are_not_copied(save, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (path / "below").mkdir()
    for place in (path / "key.txt", path / "below/key.txt"):
        place.symlink_to(secret / "key")
    (path / "folder").symlink_to(secret)
    (path / "below/around").symlink_to(path)
    (path / "below/kept.txt").write_text("kept")
    os.mkfifo(path / "pipe")
    done = growc.apply(WIDEN, path, tmp_path / "out", check=False)
    found = {p.relative_to(tmp_path / "out").as_posix() for p in (tmp_path / "out").rglob("*")}
    assert "below/kept.txt" in found
    assert not found & {"key.txt", "below/key.txt", "folder", "folder/key", "below/around", "pipe"}
    [left] = [remark for remark in done.remarks if remark.startswith("not carried over")]
    assert "key.txt" in left
    assert "folder" in left
    assert "pipe" in left


def test_no_file_of_the_source_is_written(save, tmp_path):
    path = save("LlamaForCausalLM", tiny_config("Llama"))
    (path / "below").mkdir()
    (path / "below/words.txt").write_text("a")
    (tmp_path / "link").symlink_to(path)
    for name in ("config.json", "model.safetensors", "below/words.txt", "."):
        for folder in (path, tmp_path / "link"):
            with pytest.raises(GrowError) as caught:
                growc.apply(WIDEN, path, tmp_path / "out", lineage=folder / name, force=True, check=False)
            assert caught.value.exit_status == 2
    for _ in range(2):
        growc.apply(WIDEN, path, tmp_path / "out", lineage=path / "lineage.json", check=False)
    with pytest.raises(GrowError, match="in the folder that OUT is to be"):
        growc.apply(WIDEN, path, tmp_path / "out", lineage=tmp_path / "out/lineage.json", check=False)
