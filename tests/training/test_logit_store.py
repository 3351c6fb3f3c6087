"""Logits of a teacher on disk: what is read is what was written, and a stopped run goes on."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from growc.training.inheritance import soft_loss, top_logits
from growc.training.logit_store import LogitStore, StoreSizes


def logits(seed: int, places: int) -> torch.Tensor:
    return torch.randn(places, 30, generator=torch.Generator().manual_seed(seed))


def test_a_store_takes_the_bytes_that_it_says(tmp_path: Path) -> None:
    sizes = StoreSizes(100, 4)
    LogitStore(tmp_path / "s", sizes)
    held = sum((tmp_path / "s" / name).stat().st_size for name in ("values", "indices", "rest"))
    assert held == sizes.bytes == 100 * 4 * 9


def test_a_stopped_store_goes_on(tmp_path: Path) -> None:
    teacher, sizes = logits(0, 12), StoreSizes(12, 5, 2.0)
    LogitStore(tmp_path, sizes).append(top_logits(teacher[:7], 5, 2.0))
    again = LogitStore(tmp_path, sizes)
    assert again.written == 7
    with pytest.raises(IndexError, match="place 7 is not written"):
        again.read(slice(5, 8))
    again.append(top_logits(teacher[7:].reshape(1, 5, 30), 5, 2.0))
    read = LogitStore(tmp_path).read(torch.tensor([11, 0, 7]))
    expected = top_logits(teacher[[11, 0, 7]], 5, 2.0)
    assert torch.equal(read.values, expected.values)
    assert torch.equal(read.indices, expected.indices)
    assert torch.equal(read.rest, expected.rest)
    student = logits(1, 3)
    assert torch.equal(soft_loss(student, read, 2.0), soft_loss(student, expected, 2.0))


def test_logits_or_sizes_that_do_not_fit_a_store_are_refused(tmp_path: Path) -> None:
    store = LogitStore(tmp_path, StoreSizes(4, 3))
    with pytest.raises(ValueError, match="are not for"):
        store.append(top_logits(logits(0, 2), 2))
    with pytest.raises(ValueError, match="do not fit"):
        store.append(top_logits(logits(0, 5), 3))
    with pytest.raises(ValueError, match="is a store of"):
        LogitStore(tmp_path, StoreSizes(5, 3))
    assert LogitStore(tmp_path).written == 0
