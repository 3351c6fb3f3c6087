"""The frozen data of benchmarks/savings: held out by file, checked by digest, batches by seed and step."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from graphs import ROOT

sys.path.append(str(ROOT))

from benchmarks.savings import data


def test_each_file_is_in_one_part():
    texts = data.frozen("stdlib.xz").split(data.SEPARATOR)
    names = [name.decode() for name in texts[:-1:2]]
    held = [name for name in names if data.held_out(name)]
    assert len(set(names)) == len(names)
    assert 0.05 < len(held) / len(names) < 0.15
    parts = [data.corpus(validation) for validation in (True, False)]
    assert [int((part == 0).sum()) for part in parts] == [len(held), len(names) - len(held)]
    assert sum(len(part) for part in parts) == sum(len(text) + 1 for text in texts[1::2])


def test_data_with_another_digest_is_refused(tmp_path, monkeypatch):
    (tmp_path / "digits.xz").write_bytes(b"other")
    monkeypatch.setattr(data, "FOLDER", tmp_path)
    data.frozen.cache_clear()
    with pytest.raises(data.WrongDataError, match=r"digits\.xz has digest"):
        data.frozen("digits.xz")


@pytest.mark.parametrize("task", [data.Bytes(4, 16), data.Digits(4)], ids=["bytes", "digits"])
def test_a_batch_depends_on_its_seed_and_step_alone(task):
    first, other = task.training(1, 7), task.training(1, 8)
    again, elsewhere = task.training(1, 7), task.training(2, 7)
    assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))
    assert not torch.equal(first[0], other[0])
    assert not torch.equal(first[0], elsewhere[0])


def test_the_labels_of_bytes_are_the_next_bytes():
    for inputs, labels in data.Bytes(4, 16, 8).held_out():
        assert torch.equal(inputs[:, 1:], labels[:, :-1])
        assert inputs.shape == (4, 16)


def test_digits_are_those_of_scikit_learn():
    from sklearn.datasets import load_digits

    found = load_digits()
    kept = np.arange(len(found.target)) % 5 == 4
    images, labels = data.digits(validation=True)
    assert np.array_equal(images * 16, found.images[kept])
    assert np.array_equal(labels, found.target[kept])


def test_a_patch_is_a_square_of_the_image():
    patches, _ = next(data.Digits().held_out())
    images, _ = data.digits(validation=True)
    assert np.array_equal(patches[3, 6].numpy(), images[3, 2:4, 4:6].ravel())
