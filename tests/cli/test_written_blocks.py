"""Blocks of weights that wait to be written: few at any time, in order, and only contents are digested."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from growc.dialects.onnx.files.save import Digested
from growc.plans.behind import PIECES


def test_few_blocks_wait_however_many_tensors_there_are(tmp_path: Path) -> None:
    contents, wanted = [bytes([k]) * (k + 1) for k in range(40)], b""
    with Digested(tmp_path / "model.data") as file:
        for content in contents:
            file.pad(16)
            file.write(content)
            assert max(len(file.written.pending), len(file.digested.pending)) <= PIECES
            wanted += b"\0" * (-len(wanted) % 16) + content
    assert (tmp_path / "model.data").read_bytes() == wanted
    assert file.digest.digest() == hashlib.sha256(b"".join(contents)).digest()


def test_a_full_disk_is_said_at_the_end_at_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(file: Digested, content: memoryview) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Digested, "_put", full)
    with pytest.raises(OSError, match="No space left"), Digested(tmp_path / "model.data") as file:
        file.write(b"weights")
