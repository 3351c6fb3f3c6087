"""Write a checkpoint of torch.distributed by one process or several, with a file for each.

The tensors are cut into pieces of rows; each piece is made when torch's writer asks for it.
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
from growc.checkpoint.files.process_shares import Tell, quiet, shared_out
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.checkpoint.files.shards import TensorGroup
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.operators.arrays import to_torch
from growc.plans.lazy_rows import Rows, stored
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from torch.distributed.checkpoint.storage import WriteResult

AT_ONCE = 64 << 20
"""Largest size in bytes of a piece with several rows, since a piece is made in memory."""

Written = tuple[list[WriteItem], "list[WriteResult]"]
"""The items that a process wrote, and their places."""


@dataclass
class Contents:
    """The contents of a new checkpoint.

    parts: tensors, each in a part of its own. values: other entries as `torch.save` wrote them, by key.
    paths: the path of each key. copies: tensors of another checkpoint that stay in their pieces. remarks:
    notes for the user.
    """

    parts: list[TensorGroup] = field(default_factory=list)
    values: dict[str, bytes] = field(default_factory=dict)
    paths: dict[str, KeyPath] = field(default_factory=dict)
    copies: list[tuple[Distributed, str]] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    def add(self, path: KeyPath, entry: HeaderEntry, make: Callable[[], Rows], weight: str = "") -> None:
        """Add a tensor whose rows `make` returns. weight: its name among the weights of the result's
        class.
        """
        key, made_of = self._key(path), (weight,) if weight else ()
        self.parts.append(TensorGroup((replace(entry, name=key),), lambda: {key: make()}, made_of=made_of))

    def add_value(self, path: KeyPath, content: bytes) -> None:
        """Add an entry that is no tensor, as `torch.save` wrote it."""
        self.values[self._key(path)] = content

    def copy(self, saved: Distributed, key: str) -> None:
        """Add an entry of another checkpoint, under its own path."""
        self.paths[key] = saved.paths[key]
        if key in saved.tensors:
            self.copies.append((saved, key))
        else:
            self.values[key] = saved.content(key)

    def add_copy(self, path: KeyPath, saved: Distributed, key: str) -> None:
        """Add an entry of another checkpoint under another path."""
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
    """Fill a folder.

    `wrote(key, bytes)` is called for every piece. ranks: the processes that write. remade: makes the contents
    in another process.
    """
    own_job = _Write(folder, lambda: contents, wrote)
    written = ranks.each(own_job if remade is None else _Write(folder, remade), own_job)
    _, metadata = create_default_global_save_plan([SavePlan(items) for items, _ in written])
    metadata.planner_data = dict(contents.paths)
    _writer(folder).finish(metadata, [results for _, results in written])


def _writer(folder: Path) -> FileSystemWriter:
    writer = FileSystemWriter(folder)
    writer.set_up_storage_writer(is_coordinator=True)
    return writer


@dataclass(frozen=True)
class _Write:
    """The job of each process: write its share."""

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
        pieces = [
            (saved, key, piece) for saved, key in contents.copies for piece in saved.tensors[key].pieces
        ]
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
    """A plan of what one process writes. items: the write items, as torch calls them."""

    wrote: Tell
    items: list[WriteItem] = field(default_factory=list)
    pieces: dict[MetadataIndex, tuple[TensorGroup, range]] = field(default_factory=dict)
    values: dict[MetadataIndex, bytes] = field(default_factory=dict)
    copies: dict[MetadataIndex, tuple[Distributed, str, Piece]] = field(default_factory=dict)
    last: tuple[TensorGroup, Rows] | None = None

    def add(self, part: TensorGroup, rows: range) -> None:
        """Add some rows of a tensor."""
        [entry] = part.entries
        for piece_rows in _pieces(rows, entry):
            index = self._add(entry.name, without_data(entry).dtype, entry.shape, _chunk(entry, piece_rows))
            self.pieces[index] = part, piece_rows

    def add_copy(self, saved: Distributed, key: str, piece: Piece) -> None:
        """Add a piece of a tensor of another checkpoint."""
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
        """Add an entry that is no tensor."""
        index = MetadataIndex(key)
        self.items.append(WriteItem(index, WriteItemType.BYTE_IO, BytesIOWriteData(len(value))))
        self.values[index] = value

    def resolve_data(self, write_item: WriteItem) -> Tensor | io.BytesIO:
        """The data of an item, when it is to be written."""
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
        values = to_torch(self.last[1].read(np.arange(rows.start, rows.stop)))
        self.wrote(entry.name, len(rows) * entry.row_bytes)
        return values.reshape(tuple(_chunk(entry, rows).sizes))


def _pieces(rows: range, entry: HeaderEntry) -> Iterator[range]:
    step = max(1, AT_ONCE // max(1, entry.row_bytes))
    if not rows:
        yield rows
    for first in rows[::step]:
        yield range(first, min(first + step, rows.stop))


def _chunk(entry: HeaderEntry, rows: range) -> ChunkStorageMetadata:
    """The place of some rows in a tensor; a scalar is one row."""
    if not entry.shape:
        return ChunkStorageMetadata(Size(()), Size(()))
    rest = entry.shape[1:]
    return ChunkStorageMetadata(Size((rows.start, *(0 for _ in rest))), Size((len(rows), *rest)))


def key_of(path: Iterable[object]) -> str:
    """The key of an entry: the parts of its path, joined by dots."""
    return ".".join(map(str, path))
