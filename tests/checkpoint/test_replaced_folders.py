"""A folder that growc wrote is replaced only as long as it holds what growc wrote."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import torch
import transformers
from checkpoints import tiny_config

import growc
from growc.errors.diagnostic import GrowError
from growc.files import inventory

WIDER = "widen ffn to 2 * ffn with cyclic copy"


@pytest.fixture
def grow(save, tmp_path):
    """Grow one checkpoint into one folder, without verification; the folder."""
    path = save("LlamaForCausalLM", tiny_config("Llama"))

    def run(**options: bool) -> Path:
        return growc.apply(WIDER, path, tmp_path / "larger", check=False, **options).written

    run()
    return run


def _trained(folder: Path, ending: str) -> None:
    """Train a little, and save into the folder; only tensors whose names end so change."""
    model = transformers.LlamaForCausalLM.from_pretrained(folder)
    for name, tensor in model.named_parameters():
        tensor.requires_grad_(name.endswith(ending))
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.1)
    model(input_ids=torch.arange(8)[None], labels=torch.arange(8)[None]).loss.backward()
    optimizer.step()
    model.save_pretrained(folder)


def _refused(grow, name: str) -> None:
    with pytest.raises(GrowError) as raised:
        grow()
    [found] = raised.value.diagnostics
    assert found.code == "G501"
    assert f"holds `{name}`, which was written after" in found.message
    assert "--force" in found.help


@pytest.mark.parametrize("whole", [inventory.WHOLE, 1024])
@pytest.mark.parametrize("ending", ["weight", "input_layernorm.weight"])
def test_weights_that_were_trained_are_not_replaced(grow, tmp_path, monkeypatch, ending, whole):
    monkeypatch.setattr(inventory, "WHOLE", whole)
    grow(force=True)
    _trained(tmp_path / "larger", ending)
    _refused(grow, "model.safetensors")
    trained = (tmp_path / "larger/model.safetensors").read_bytes()
    grow(force=True)
    assert (tmp_path / "larger/model.safetensors").read_bytes() != trained


@pytest.mark.parametrize("name", ["optimizer.pt", "runs/events", "zz.txt"])
def test_a_folder_with_a_file_of_the_user_is_not_replaced(grow, tmp_path, name):
    file = tmp_path / "larger" / name
    file.parent.mkdir(exist_ok=True)
    file.write_text("mine")
    _refused(grow, name)
    assert file.read_text() == "mine"


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_in_the_folder_is_not_read(grow, tmp_path):
    os.mkfifo(tmp_path / "larger/pipe")
    _refused(grow, "pipe")


def test_a_link_to_another_folder_is_a_file_of_the_user(grow, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "larger/data").symlink_to(tmp_path / "data")
    _refused(grow, "data")


def test_a_folder_as_growc_wrote_it_is_replaced_and_so_is_one_with_fewer_files(grow, tmp_path):
    folder = tmp_path / "larger"
    written = {path.name: path.read_bytes() for path in folder.iterdir()}
    grow()
    (folder / "README.md").unlink()
    grow()
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == written


def test_the_record_lists_every_file_and_the_next_record_does_not_repeat_it(grow, tmp_path):
    folder = tmp_path / "larger"
    record = json.loads((folder / "growc.json").read_text())
    assert set(record["written"]) == {path.name for path in folder.iterdir()} - {"growc.json"}
    again = growc.apply(WIDER, folder, tmp_path / "largest", check=False).written
    [earlier] = json.loads((again / "growc.json").read_text())["earlier"]
    assert "written" not in earlier


@pytest.mark.parametrize("header", ['{"a": {"data_offsets": [-999, 4]}}', "{", "[]"])
def test_a_broken_header_is_a_change_and_no_error(grow, tmp_path, monkeypatch, header):
    monkeypatch.setattr(inventory, "WHOLE", 16)
    grow(force=True)
    content = len(header).to_bytes(8, "little") + header.encode() + bytes(64)
    (tmp_path / "larger/model.safetensors").write_bytes(content)
    _refused(grow, "model.safetensors")


def test_a_damaged_record_tells_of_no_file(grow, tmp_path):
    place = tmp_path / "larger/growc.json"
    place.write_text(place.read_text()[:-20])
    with pytest.raises(GrowError, match="has a damaged"):
        grow()


def test_a_folder_with_a_record_that_lists_nothing_counts_as_made_by_growc(grow, tmp_path):
    place = tmp_path / "larger/growc.json"
    record = json.loads(place.read_text())
    del record["written"]
    place.write_text("{\n" + json.dumps(record, indent=2)[2:])
    (tmp_path / "larger/notes.txt").write_text("mine")
    grow()
