"""Writing the weights of a checkpoint: all headers first, then tensors one at a time, in any order.

Shards, their names and the index are what transformers makes of the same tensors in the same order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType

import numpy as np

from growc.checkpoint.files.directory import INDEX, WEIGHTS
from growc.checkpoint.files.safetensors_file import DTYPES, Entry, make_header
from growc.errors.diagnostic import wrong
from growc.plans.behind import Behind
from growc.plans.rows import Rows

SHARD_SIZE = 50 * 10**9
"""Bytes of the largest file, where nobody says otherwise (as in transformers)."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def read_size(text: str) -> int:
    """`5GB` as bytes. Raises GrowError (G200)."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]B|)", text.strip().upper())
    if found is None or int(found[1]) == 0:
        raise wrong(f"`--shard-size {text}` is no size", "write a number of KB, MB, GB or TB, such as `5GB`")
    return int(found[1]) * _UNITS[found[2]]


def in_shards(entries: Iterable[Entry], limit: int) -> list[list[Entry]]:
    """Tensors in their order, in as few files as that allows; one that is larger than all has its own."""
    shards: list[list[Entry]] = []
    current: list[Entry] = []
    size = 0
    for entry in entries:
        if entry.nbytes > limit:
            shards.append([entry])
            continue
        if size + entry.nbytes > limit:
            shards.append(current)
            current, size = [], 0
        current.append(entry)
        size += entry.nbytes
    return [*shards, current] if current else shards


@dataclass(frozen=True)
class Part:
    """Tensors of a file that are made together, when they are asked for. whole: bytes that this takes, where
    it is not done by blocks.
    """

    entries: tuple[Entry, ...]
    make: Callable[[], Mapping[str, Rows]]
    whole: int = 0


@dataclass
class ShardWriter:
    """The weight files of a folder, being written. As a context manager it closes them.

    parameters: what the index says of them; by default every element of every tensor. name: of the file,
    where there is only one.
    """

    folder: Path
    entries: Sequence[Entry]
    metadata: Mapping[str, str]
    limit: int = SHARD_SIZE
    parameters: int | None = None
    name: str = WEIGHTS
    _places: dict[str, tuple[int, int]] = field(default_factory=dict, init=False)
    _files: list[int] = field(default_factory=list, init=False)
    _missing: dict[str, Entry] = field(default_factory=dict, init=False)
    _behind: Behind = field(default_factory=Behind, init=False)

    def __enter__(self) -> ShardWriter:
        shards = in_shards(self.entries, self.limit) or [[]]
        names = [self.name]
        if len(shards) > 1:
            stem, ending = self.name.rsplit(".", 1)
            names = [f"{stem}-{k:05d}-of-{len(shards):05d}.{ending}" for k in range(1, len(shards) + 1)]
            self._write_index(dict(zip(names, shards, strict=True)))
        for name, shard in zip(names, shards, strict=True):
            self._open(self.folder / name, shard)
        self._missing = {e.name: e for e in self.entries}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with self._behind:
                pass
        finally:
            for handle in self._files:
                os.close(handle)
        if kind is None and self._missing:
            raise AssertionError(f"nobody wrote {', '.join(self._missing)}")

    def put(self, name: str, rows: Rows) -> None:
        """Write one tensor to its place, block by block."""
        entry = self._missing.pop(name)
        shape = (rows.count, *rows.rest)
        if shape != (entry.shape or (1,)) or rows.dtype != DTYPES[entry.dtype]:
            raise AssertionError(f"{name} is {rows.dtype}{shape}, and {entry} was promised")
        handle, at = self._places[name]
        for block in rows.blocks():
            content = np.ascontiguousarray(block).reshape(-1).view(np.uint8).data
            self._behind.ask(partial(_write_at, handle, content, at))
            at += len(content)

    def _open(self, path: Path, shard: Sequence[Entry]) -> None:
        header, offsets = make_header(shard, self.metadata)
        handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        self._files.append(handle)
        os.write(handle, header)
        size = len(header) + sum(e.nbytes for e in shard)
        if size:
            _reserve(handle, size)
        self._places |= {name: (handle, at) for name, at in offsets.items()}

    def _write_index(self, files: Mapping[str, Sequence[Entry]]) -> None:
        total = sum(e.nbytes for e in self.entries)
        count = sum(e.elements for e in self.entries) if self.parameters is None else self.parameters
        index = {
            "metadata": {"total_parameters": count, "total_size": total},
            "weight_map": {e.name: name for name, shard in files.items() for e in shard},
        }
        text = json.dumps(index, indent=2, sort_keys=True) + "\n"
        (self.folder / (self.name + INDEX)).write_text(text, encoding="utf-8")


def _reserve(handle: int, size: int) -> None:
    """Give a file its size; where the system can, its room, so that a full disk is noticed now."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.truncate(handle, size)


def _write_at(handle: int, content: memoryview, at: int) -> None:
    os.lseek(handle, at, os.SEEK_SET)
    while content:
        content = content[os.write(handle, content) :]
