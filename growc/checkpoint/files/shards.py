"""Write the weights of a checkpoint: first all headers, then tensors in any order.

Shards, their names and the index are those that transformers makes of the same tensors in the same order.
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
from growc.checkpoint.files.safetensors_file import DTYPES, HeaderEntry, make_header
from growc.errors.diagnostic import wrong
from growc.plans.background_writes import BackgroundWrites
from growc.plans.lazy_rows import Rows, content

SHARD_SIZE = 50 * 10**9
"""Default size in bytes of the largest file, as in transformers."""

_UNITS = {"": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}


def read_size(text: str, option: str = "--shard-size") -> int:
    """A size such as `5GB` in bytes. Raises GrowError (G200) if the text is no size."""
    match = re.fullmatch(r"(\d+)\s*([KMGT]B|)", text.strip().upper())
    if match is None or int(match[1]) == 0:
        raise wrong(f"`{option} {text}` is no size", "write a number of KB, MB, GB or TB, such as `5GB`")
    return int(match[1]) * _UNITS[match[2]]


def in_shards(entries: Iterable[HeaderEntry], limit: int) -> list[list[HeaderEntry]]:
    """Tensors in their order, in as few files as possible; a tensor above the limit has a file of its own."""
    shards: list[list[HeaderEntry]] = []
    current: list[HeaderEntry] = []
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
class TensorGroup:
    """Tensors of a file that are made together, on demand.

    whole: memory in bytes that making them takes, if it is not done by blocks. made_of: the tensors of a
    class that they are made of; if empty, themselves. rows_of: the rows of these that are used, if not all.
    positions: the place of each tensor in the files.
    """

    entries: tuple[HeaderEntry, ...]
    make: Callable[[], Mapping[str, Rows]]
    whole: int = 0
    made_of: tuple[str, ...] = ()
    rows_of: tuple[int, int] | None = None
    positions: tuple[int, ...] = ()


@dataclass(frozen=True)
class TensorPlace:
    """The place of a tensor: its file and its first byte."""

    file: Path
    start: int
    entry: HeaderEntry

    def bytes_of(self, rows: range) -> tuple[int, int]:
        """The first byte of some rows, and their size in bytes. A scalar is one row."""
        row = self.entry.row_bytes
        return self.start + rows.start * row, len(rows) * row


def laid_out(
    folder: Path,
    entries: Sequence[HeaderEntry],
    metadata: Mapping[str, str],
    limit: int = SHARD_SIZE,
    *,
    parameters: int | None = None,
    name: str = WEIGHTS,
) -> dict[str, TensorPlace]:
    """Create the weight files of a folder, with headers and room for tensors, and the index.

    Files that exist with the same header and size keep their contents. parameters: the number of parameters
    that the index states; by default the number of all elements. name: the file's name if there is only one.
    """
    shards = in_shards(entries, limit) or [[]]
    names = [name]
    if len(shards) > 1:
        stem, ending = name.rsplit(".", 1)
        names = [f"{stem}-{k:05d}-of-{len(shards):05d}.{ending}" for k in range(1, len(shards) + 1)]
        index = _index(dict(zip(names, shards, strict=True)), parameters)
        (folder / (name + INDEX)).write_text(index, encoding="utf-8")
    places: dict[str, TensorPlace] = {}
    for file_name, shard in zip(names, shards, strict=True):
        header, offsets = make_header(shard, metadata)
        _make(folder / file_name, header, len(header) + sum(e.nbytes for e in shard))
        places |= {entry.name: TensorPlace(folder / file_name, offsets[entry.name], entry) for entry in shard}
    return places


def _index(files: Mapping[str, Sequence[HeaderEntry]], parameters: int | None) -> str:
    entries = [entry for shard in files.values() for entry in shard]
    count = sum(e.elements for e in entries) if parameters is None else parameters
    index = {
        "metadata": {"total_parameters": count, "total_size": sum(e.nbytes for e in entries)},
        "weight_map": {e.name: name for name, shard in files.items() for e in shard},
    }
    return json.dumps(index, indent=2, sort_keys=True) + "\n"


class ShardWriter:
    """A writer that puts tensors into their places, in any order. As a context manager it closes the files.

    unsynced: the number of bytes that may not be on disk yet.
    """

    def __init__(self, places: Mapping[str, TensorPlace]) -> None:
        self.places, self.unsynced = places, 0
        self._files: dict[Path, int] = {}
        self._behind = BackgroundWrites()

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
        """Wait until all written bytes are on disk."""
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
        """Write a tensor, or some of its rows, block by block. Each block is passed to `seen`, too."""
        place = self.places[name]
        entry, shape = place.entry, (tensor.count, *tensor.rest)
        if shape != (entry.shape or (1,)) or tensor.dtype != DTYPES[entry.dtype]:
            raise AssertionError(f"{name} is {tensor.dtype}{shape}, and {entry} was promised")
        if place.file not in self._files:
            self._files[place.file] = os.open(place.file, os.O_WRONLY)
        position = place.start
        if rows is not None:
            first = rows.start
            position = place.bytes_of(rows)[0]
            tensor = tensor.at(len(rows), lambda own: own + first)
        for block in tensor.blocks():
            written = content(block)
            self._behind.ask(partial(_write_at, self._files[place.file], written, position))
            if seen:
                seen(written)
            position += len(written)
            self.unsynced += len(written)


def _make(path: Path, header: bytes, size: int) -> None:
    """Create a file of this size with this header and zeros behind it. A file that fits already stays."""
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
    """Set a file's size. If the system can, reserve its space, so that a full disk is noticed now."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(handle, 0, size)
    else:
        os.truncate(handle, size)


def _write_at(handle: int, content: memoryview, at: int) -> None:
    os.lseek(handle, at, os.SEEK_SET)
    while content:
        content = content[os.write(handle, content) :]
