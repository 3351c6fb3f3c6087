"""Blocks of weights that wait to be written: few at any time, in order, and only contents are digested."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from growc.dialects.onnx.files.save import BEHIND, Digested


def test_few_blocks_wait_however_many_tensors_there_are(tmp_path: Path) -> None:
    path, contents = tmp_path / "model.data", [bytes([k]) * (k + 1) for k in range(40)]
    with Digested(path) as file:
        for content in contents:
            file.pad(16)
            file.write(content)
            assert len(file.pending) <= BEHIND
    assert (
        path.read_bytes()
        == b"".join(content.ljust(-len(content) % 16 + len(content), b"\0") for content in contents)[
            : file.size
        ]
    )
    assert file.digest.digest() == hashlib.sha256(b"".join(contents)).digest()


def test_a_full_disk_is_said_at_the_end_at_the_latest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(content: memoryview, digested: bool) -> None:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space left"), Digested(tmp_path / "model.data") as file:
        monkeypatch.setattr(file, "_put", full)
        file.write(b"weights")
