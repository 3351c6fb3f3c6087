"""The data of the benchmark, frozen in files whose digests are checked: bytes of source code, and digits.

    python -m benchmarks.savings.data        # writes both files anew, and prints their digests

`stdlib.xz` holds the modules of Python 3.11.7's standard library (without tests, tables of encodings and
generated topics), `digits.xz` the 1797 images of scikit-learn's digits. NOTICE.md names their licences.
Batches depend on a seed and a step alone, so that every row reads the same ones in the same order.
"""

from __future__ import annotations

import hashlib
import lzma
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

FOLDER = Path(__file__).parent
DIGESTS = {
    "stdlib.xz": "23d73601fc591758b3559cd4a0d96a5b19cd1f792001347a6a18985282bb0ac3",
    "digits.xz": "30c53cccb2da43ae9edcee986f1e42f05cad8a7a931032078a71289468829dfe",
}
SKIPPED = {"site-packages", "test", "tests", "idle_test", "__pycache__", "encodings", "pydoc_data", "lib2to3"}
SEPARATOR = b"\0"
"""Stands behind each name and each text; neither has one."""


class WrongDataError(Exception):
    """A file of data is not the one that the committed runs were made with."""


@cache
def frozen(name: str) -> bytes:
    """The bytes of one file. Raises WrongDataError where its digest is another one."""
    packed = (FOLDER / name).read_bytes()
    if (digest := hashlib.sha256(packed).hexdigest()) != DIGESTS[name]:
        raise WrongDataError(f"{name} has digest {digest}, and committed runs were made with {DIGESTS[name]}")
    return lzma.decompress(packed)


def held_out(name: str) -> bool:
    """Whether a file is held out: one in ten, by its name alone."""
    return hashlib.sha256(name.encode()).digest()[0] % 10 == 0


@cache
def corpus(validation: bool) -> np.ndarray:
    """The files of one part, end to end, a zero byte after each: uint8 [N]."""
    parts = frozen("stdlib.xz").split(SEPARATOR)
    names, texts = parts[:-1:2], parts[1::2]
    own = [
        text + SEPARATOR for n, text in zip(names, texts, strict=True) if held_out(n.decode()) == validation
    ]
    return np.frombuffer(b"".join(own), dtype=np.uint8)


@cache
def digits(validation: bool) -> tuple[np.ndarray, np.ndarray]:
    """Images from 0 to 1, float32 [N, 8, 8], and which digit each is, int64 [N]; each fifth is held out."""
    rows = np.frombuffer(frozen("digits.xz"), dtype=np.uint8).reshape(-1, 65)
    rows = rows[(np.arange(len(rows)) % 5 == 4) == validation]
    return (rows[:, :64].reshape(-1, 8, 8) / 16).astype(np.float32), rows[:, 64].astype(np.int64)


Batch = tuple[Tensor, Tensor]
"""Inputs, and the labels that stand where the logits do."""


@dataclass(frozen=True)
class Bytes:
    """Windows of source code, `length` bytes each; the labels are the next bytes."""

    batch: int = 16
    length: int = 128
    windows: int = 1024
    input: str = field(default="ids", repr=False)

    def training(self, seed: int, step: int) -> Batch:
        """The batch of a step, from anywhere in the training files."""
        data = corpus(validation=False)
        starts = np.random.default_rng([seed, step]).integers(0, len(data) - self.length, self.batch)
        return self._windows(data, starts)

    def held_out(self, part: int = 1) -> Iterator[Batch]:
        """Windows evenly spread over the held-out files: the same on every call, one in `part` of them."""
        data = corpus(validation=True)
        starts = np.linspace(0, len(data) - self.length - 1, max(self.windows // part, 1)).astype(np.int64)
        for first in range(0, len(starts), self.batch):
            yield self._windows(data, starts[first : first + self.batch])

    def _windows(self, data: np.ndarray, starts: np.ndarray) -> Batch:
        windows = torch.from_numpy(data[starts[:, None] + np.arange(self.length + 1)].astype(np.int64))
        return windows[:, :-1], windows[:, 1:]


@dataclass(frozen=True)
class Digits:
    """Images of digits, in 16 patches of 2 × 2, moved by a pixel at most; the labels are the digits."""

    batch: int = 64
    input: str = field(default="patches", repr=False)

    def training(self, seed: int, step: int) -> Batch:
        """The batch of a step."""
        images, labels = digits(validation=False)
        random = np.random.default_rng([seed, step])
        rows = random.integers(0, len(labels), self.batch)
        moved = np.roll(images[rows], tuple(random.integers(-1, 2, 2).tolist()), (1, 2))
        return _patches(moved), torch.from_numpy(labels[rows])

    def held_out(self, part: int = 1) -> Iterator[Batch]:
        """The held-out images as they are, one in `part` of them."""
        images, labels = digits(validation=True)
        yield _patches(images[::part]), torch.from_numpy(labels[::part])


def _patches(images: np.ndarray) -> Tensor:
    """[N, 8, 8] to [N, 16, 4]."""
    parts = images.reshape(-1, 4, 2, 4, 2).transpose(0, 1, 3, 2, 4)
    return torch.from_numpy(np.ascontiguousarray(parts).reshape(-1, 16, 4))


def main() -> None:
    """Write both files from this Python's standard library and scikit-learn's digits."""
    import os

    from sklearn.datasets import load_digits

    root = Path(os.__file__).parent
    parts = []
    for path in sorted(root.rglob("*.py")):
        name = path.relative_to(root)
        if not SKIPPED & set(name.parts):
            parts += [name.as_posix().encode(), path.read_bytes()]
    digits = load_digits()
    rows = np.concatenate([digits.data, digits.target[:, None]], 1).astype(np.uint8)
    for name, data in (("stdlib.xz", SEPARATOR.join(parts) + SEPARATOR), ("digits.xz", rows.tobytes())):
        packed = lzma.compress(data, preset=9 | lzma.PRESET_EXTREME)
        (FOLDER / name).write_bytes(packed)
        print(name, len(data), len(packed), hashlib.sha256(packed).hexdigest())


if __name__ == "__main__":
    main()
