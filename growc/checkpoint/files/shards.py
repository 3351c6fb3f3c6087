"""Writing the weights of a checkpoint: all headers first, then tensors, in any order.

Shards, their names and the index are what transformers makes of the same tensors in the same order.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Self

from growc.checkpoint.files.directory import INDEX, WEIGHTS
from growc.checkpoint.files.safetensors_file import DTYPES, Entry, make_header
from growc.errors.diagnostic import wrong
from growc.plans.behind import Behind
from growc.plans.rows import Rows, content

SHARD_SIZE = 50 * 10**9
"""Bytes of the largest file, where nobody says otherwise (as in transformers)."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def read_size(text: str, option: str = "--shard-size") -> int:
    """`5GB` as bytes. Raises GrowError (G200)."""
    found = re.fullmatch(r"(\d+)\s*([KMGT]B|)", text.strip().upper())
    if found is None or int(found[1]) == 0:
        raise wrong(f"`{option} {text}` is no size", "write a number of KB, MB, GB or TB, such as `5GB`")
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
    it is not done by blocks. made_of: the tensors of a class that they are made of (themselves, where there
    are none), and which rows of these, if not all. positions: where each of them stands in the files.
    """

    entries: tuple[Entry, ...]
    make: Callable[[], Mapping[str, Rows]]
    whole: int = 0
    made_of: tuple[str, ...] = ()
    rows_of: tuple[int, int] | None = None
    positions: tuple[int, ...] = ()


@dataclass(frozen=True)
class Place:
    """Where a tensor stands: in which file, and from which byte on."""

    file: Path
    start: int
    entry: Entry

    def bytes_of(self, rows: range) -> tuple[int, int]:
        """The first byte of some rows, and how many there are. A number is a row."""
        row = self.entry.row_bytes
        return self.start + rows.start * row, len(rows) * row


def laid_out(
    folder: Path,
    entries: Sequence[Entry],
    metadata: Mapping[str, str],
    limit: int = SHARD_SIZE,
    *,
    parameters: int | None = None,
    name: str = WEIGHTS,
) -> dict[str, Place]:
    """The weight files of a folder, with their headers and with room for tensors; and the index. Files that
    are there already with the same headers and room keep what is in them.

    parameters: what the index says of them; by default every element of every tensor. name: of the file,
    where there is only one.
    """
    shards = in_shards(entries, limit) or [[]]
    names = [name]
    if len(shards) > 1:
        stem, ending = name.rsplit(".", 1)
        names = [f"{stem}-{k:05d}-of-{len(shards):05d}.{ending}" for k in range(1, len(shards) + 1)]
        index = _index(dict(zip(names, shards, strict=True)), parameters)
        (folder / (name + INDEX)).write_text(index, encoding="utf-8")
    places: dict[str, Place] = {}
    for own, shard in zip(names, shards, strict=True):
        header, offsets = make_header(shard, metadata)
        _make(folder / own, header, len(header) + sum(e.nbytes for e in shard))
        places |= {entry.name: Place(folder / own, offsets[entry.name], entry) for entry in shard}
    return places


def _index(files: Mapping[str, Sequence[Entry]], parameters: int | None) -> str:
    entries = [entry for shard in files.values() for entry in shard]
    count = sum(e.elements for e in entries) if parameters is None else parameters
    index = {
        "metadata": {"total_parameters": count, "total_size": sum(e.nbytes for e in entries)},
        "weight_map": {e.name: name for name, shard in files.items() for e in shard},
    }
    return json.dumps(index, indent=2, sort_keys=True) + "\n"


class ShardWriter:
    """Puts tensors into their places, in any order. As a context manager it closes the files.

    unsynced: how many bytes may not be on the disk yet.
    """

    def __init__(self, places: Mapping[str, Place]) -> None:
        self.places, self.unsynced = places, 0
        self._files: dict[Path, int] = {}
        self._behind = Behind()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        try:
            with self._behind:
                pass
        finally:
            for handle in self._files.values():
                os.close(handle)

    def sync(self) -> None:
        """Wait until all of it is on the disk."""
        self._behind.wait()
        for handle in self._files.values():
            os.fsync(handle)
        self.unsynced = 0

    def put(
        self,
        name: str,
        tensor: Rows,
        rows: range | None = None,
        seen: Callable[[memoryview], object] | None = None,
    ) -> None:
        """Write a tensor, or some rows of it, block by block, each of which is `seen`, too."""
        place = self.places[name]
        entry, shape = place.entry, (tensor.count, *tensor.rest)
        if shape != (entry.shape or (1,)) or tensor.dtype != DTYPES[entry.dtype]:
            raise AssertionError(f"{name} is {tensor.dtype}{shape}, and {entry} was promised")
        if place.file not in self._files:
            self._files[place.file] = os.open(place.file, os.O_WRONLY)
        at = place.start
        if rows is not None:
            first = rows.start
            at = place.bytes_of(rows)[0]
            tensor = tensor.at(len(rows), lambda own: own + first)
        for block in tensor.blocks():
            written = content(block)
            self._behind.ask(partial(_write_at, self._files[place.file], written, at))
            if seen:
                seen(written)
            at += len(written)
            self.unsynced += len(written)


def _make(path: Path, header: bytes, size: int) -> None:
    """A file of this size that begins so, and is zero behind it if it was not there."""
    if path.is_file() and path.stat().st_size == size:
        with path.open("rb") as file:
            if file.read(len(header)) == header:
                return
    path.unlink(missing_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
    try:
        os.write(handle, header)
        if size:
            _reserve(handle, size)
    finally:
        os.close(handle)


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
