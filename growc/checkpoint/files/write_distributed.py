"""Writing a checkpoint of torch.distributed by one process or several: a file for each of them.

The tensors are cut into pieces of rows, each of which is made when torch's writer asks for it.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from torch import Size, Tensor, dtype
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner, create_default_global_save_plan
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata, MetadataIndex, TensorProperties
from torch.distributed.checkpoint.planner import (
    BytesIOWriteData,
    SavePlan,
    TensorWriteData,
    WriteItem,
    WriteItemType,
)

from growc.checkpoint.files.distributed import Distributed
from growc.checkpoint.files.pieces import KeyPath, Piece
from growc.checkpoint.files.safetensors_file import Entry
from growc.checkpoint.files.shards import Part
from growc.checkpoint.files.shares import Tell, quiet, shared_out
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.operators.arrays import to_torch
from growc.plans.rows import Rows, stored
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch.distributed.checkpoint.storage import WriteResult

AT_ONCE = 64 << 20
"""Bytes of the largest piece of a tensor with several rows: it is made in memory."""

Written = tuple[list[WriteItem], "list[WriteResult]"]
"""What a process wrote, and where."""


@dataclass
class Contents:
    """What a checkpoint is to hold: tensors, each in a part of its own, and other values as `torch.save` made
    them, both by their keys; and the path of each key. copies: tensors of another checkpoint that stay in
    their pieces. remarks: what is to be said of them.
    """

    parts: list[Part] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    paths: dict[str, KeyPath] = field(default_factory=dict)
    copies: list[tuple[Distributed, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, path: KeyPath, entry: Entry, make: Callable[[], Rows], weight: str = "") -> None:
        """A tensor; `make` gives its rows. weight: which one of the result's class it is."""
        key, made_of = self._key(path), (weight,) if weight else ()
        self.parts.append(Part((replace(entry, name=key),), lambda: {key: make()}, made_of=made_of))

    def add_value(self, path: KeyPath, content: bytes) -> None:
        """Another entry, as `torch.save` made it."""
        self.values[self._key(path)] = content

    def copy(self, saved: Distributed, key: str) -> None:
        """An entry of another checkpoint, at its own place."""
        self.paths[key] = saved.paths[key]
        if key in saved.tensors:
            self.copies.append((saved, key))
        else:
            self.values[key] = saved.content(key)

    def add_copy(self, path: KeyPath, saved: Distributed, key: str) -> None:
        """An entry of another checkpoint, at another place."""
        if key in saved.tensors:
            self.add(path, saved.entry(key), lambda: stored(saved.array(key)))
        else:
            self.add_value(path, saved.content(key))

    def _key(self, path: KeyPath) -> str:
        key = key_of(path)
        self.paths[key] = path
        return key


def write_distributed(
    folder: Path,
    contents: Contents,
    *,
    wrote: Tell = quiet,
    ranks: Ranks = ALONE,
    remade: Callable[[], Contents] | None = None,
) -> None:
    """Fill a folder. `wrote(key, bytes)` is called for every piece. ranks: who writes; `remade` is how
    another process comes by the contents.
    """
    own = _Write(folder, lambda: contents, wrote)
    found = ranks.each(own if remade is None else _Write(folder, remade), own)
    _, metadata = create_default_global_save_plan([SavePlan(items) for items, _ in found])
    metadata.planner_data = dict(contents.paths)
    _writer(folder).finish(metadata, [results for _, results in found])


def _writer(folder: Path) -> FileSystemWriter:
    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(is_coordinator=True)
    return writer


@dataclass(frozen=True)
class _Write:
    """The job of each process."""

    folder: Path
    contents: Callable[[], Contents]
    wrote: Tell = quiet

    def __call__(self, rank: int, size: int) -> Written:
        contents, planner = self.contents(), _Planner(self.wrote)
        empty = [part for part in contents.parts if not part.entries[0].rows]
        for part in empty if rank == 0 else ():
            planner.add(part, range(0))
        for share in shared_out(contents.parts, size)[rank]:
            [rows] = share.rows.values()
            planner.add(share.part, rows)
        pieces = [(saved, key, one) for saved, key in contents.copies for one in saved.tensors[key].pieces]
        for saved, key, piece in pieces[rank::size]:
            planner.add_copy(saved, key, piece)
        for key, value in contents.values.items() if rank == 0 else ():
            planner.add_value(key, value)
        writer = _writer(self.folder)
        plans = writer.prepare_global_plan([SavePlan([])] * size)
        results = writer.write_data(replace(plans[rank], items=planner.items), planner).wait()
        return planner.items, list(results)


@dataclass
class _Planner(DefaultSavePlanner):
    """What one process writes. items: as torch calls them."""

    wrote: Tell
    items: list[WriteItem] = field(default_factory=list)
    pieces: dict[MetadataIndex, tuple[Part, range]] = field(default_factory=dict)
    values: dict[MetadataIndex, bytes] = field(default_factory=dict)
    copies: dict[MetadataIndex, tuple[Distributed, str, Piece]] = field(default_factory=dict)
    last: tuple[Part, Rows] | None = None

    def add(self, part: Part, rows: range) -> None:
        """Some rows of a tensor."""
        [entry] = part.entries
        for some in _pieces(rows, entry):
            index = self._add(entry.name, without_data(entry).dtype, entry.shape, _chunk(entry, some))
            self.pieces[index] = part, some

    def add_copy(self, saved: Distributed, key: str, piece: Piece) -> None:
        """A piece of a tensor of another checkpoint."""
        cut, chunk = saved.tensors[key], ChunkStorageMetadata(Size(piece.offsets), Size(piece.sizes))
        self.copies[self._add(key, cut.dtype, cut.shape, chunk)] = saved, key, piece

    def _add(
        self, key: str, kind: dtype, shape: tuple[int, ...], chunk: ChunkStorageMetadata
    ) -> MetadataIndex:
        index = MetadataIndex(key, chunk.offsets)
        data = TensorWriteData(chunk, TensorProperties(kind), Size(shape))
        self.items.append(WriteItem(index, WriteItemType.SHARD, tensor_data=data))
        return index

    def add_value(self, key: str, value: bytes) -> None:
        """An entry that is no tensor."""
        index = MetadataIndex(key)
        self.items.append(WriteItem(index, WriteItemType.BYTE_IO, BytesIOWriteData(len(value))))
        self.values[index] = value

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """A piece, when it is to be written."""
        index = write_item.index
        if index in self.values:
            return io.BytesIO(self.values[index])
        if index in self.copies:
            saved, key, piece = self.copies[index]
            return saved.piece(key, piece)
        part, rows = self.pieces[index]
        if self.last is None or self.last[0] is not part:
            self.last = part, part.make()[part.entries[0].name]
        [entry] = part.entries
        made = to_torch(self.last[1].read(np.arange(rows.start, rows.stop)))
        self.wrote(entry.name, len(rows) * entry.row_bytes)
        return made.reshape(tuple(_chunk(entry, rows).sizes))


def _pieces(rows: range, entry: Entry) -> Iterator[range]:
    step = max(1, AT_ONCE // max(1, entry.row_bytes))
    if not rows:
        yield rows
    for first in rows[::step]:
        yield range(first, min(first + step, rows.stop))


def _chunk(entry: Entry, rows: range) -> ChunkStorageMetadata:
    """Where some rows stand in a tensor; a number is a row."""
    if not entry.shape:
        return ChunkStorageMetadata(Size(()), Size(()))
    rest = entry.shape[1:]
    return ChunkStorageMetadata(Size((rows.start, *(0 for _ in rest))), Size((len(rows), *rest)))


def key_of(path: Iterable[object]) -> str:
    """What an entry is called: the parts of its path, joined by dots."""
    return ".".join(map(str, path))
