"""Blocks of weights that wait to be written: few at any time, in order, and only contents are digested."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import xxhash

from growc.dialects.onnx.files.save import Digested
from growc.plans.background_writes import PIECES, UNSYNCED, ToDisk
from growc.plans.lazy_rows import BLOCK, Rows, end_to_end, stored


def test_few_blocks_wait_however_many_tensors_there_are(tmp_path: Path) -> None:
    contents, wanted = [bytes([k]) * (k + 1) for k in range(40)], b""
    with Digested(tmp_path / "model.data") as file:
        for content in contents:
            file.fill(file.size + -file.size % 16)
            file.write(content)
            assert len(file.written.pending) <= PIECES
            wanted += b"\0" * (-len(wanted) % 16) + content
    assert (tmp_path / "model.data").read_bytes() == wanted
    assert file.digest.digest() == xxhash.xxh3_128(b"".join(contents)).digest()


def test_a_full_disk_is_said_at_the_end_at_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Digested, content: memoryview) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Digested, "_put", full)
    with pytest.raises(OSError, match="No space left"), Digested(tmp_path / "model.data") as file:
        file.write(b"weights")


@pytest.mark.parametrize("call", ["fdatasync", "fsync"])
def test_files_go_to_the_disk_while_more_is_written(monkeypatch: pytest.MonkeyPatch, call: str) -> None:
    """macOS has no fdatasync."""
    synced: list[int] = []
    if call == "fsync":
        monkeypatch.delattr(os, "fdatasync", raising=False)
    monkeypatch.setattr(os, call, synced.append)
    one, other = 7, 8
    with ToDisk() as disk:
        for count in (UNSYNCED - 1, 1, UNSYNCED // 2, UNSYNCED // 2):
            disk.wrote(one, count)
        disk.wrote(other, UNSYNCED - 1)
    assert synced == [one, one]


def test_a_disk_that_fails_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(handle: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", broken, raising=False)
    with pytest.raises(OSError, match="Input/output"), ToDisk() as disk:
        disk.wrote(0, UNSYNCED)


def test_blocks_of_several_tensors_follow_each_other() -> None:
    arrays = {name: np.full((rows, BLOCK // 16), k, np.float32) for k, (name, rows) in enumerate(SIZES)}
    found: dict[str, list[np.ndarray]] = {name: [] for name in arrays}
    for name, block in end_to_end((name, 0, lambda own=array: stored(own)) for name, array in arrays.items()):
        found[name].append(block)
    assert [len(blocks) for blocks in found.values()] == [3, 0, 1, 2]
    for name, blocks in found.items():
        assert blocks == [] or np.array_equal(np.concatenate(blocks), arrays[name])


SIZES = (("a", 9), ("empty", 0), ("b", 1), ("c", 8))
"""Rows of tensors of which four make a block."""


@pytest.mark.parametrize("beside", [0, 1])
def test_a_part_that_takes_memory_beside_blocks_is_made_alone(beside: int) -> None:
    made, given = [], []

    def make(name: str) -> Rows:
        made.append((name, len(given)))
        return stored(np.zeros((8, BLOCK // 16), np.float32))

    parts = [(name, beside if name == "b" else 0, lambda own=name: make(own)) for name in "abc"]
    for name, _ in end_to_end(parts):
        given.append(name)
    assert given == [*"aabbcc"]
    before = dict(made)
    assert (before["b"] == 2 and before["c"] == 4) == bool(beside)
