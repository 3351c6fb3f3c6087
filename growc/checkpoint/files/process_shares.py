"""Divide the tensors of a checkpoint among processes by bytes.

Each process makes and writes the bytes that follow those of the process before it, in the order of the files.
Pieces that are on disk are recorded with their digests, so that restarted processes find them.
"""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from growc.checkpoint.files.shards import ShardWriter, TensorGroup, TensorPlace
from growc.plans.lazy_rows import BLOCK

Tell = Callable[[str, int], None]
RowRange = tuple[str, int, int]
"""Rows of a tensor: its name, its first row, and the row behind the last."""

OFTEN = 64 << 20
"""Number of written bytes after which the pieces on disk are recorded."""


def quiet(name: str, count: int) -> None:
    """Report nothing about a written tensor and its bytes."""


@dataclass(frozen=True)
class ProcessShare:
    """The rows of a part's tensors that one process makes."""

    part: TensorGroup
    rows: Mapping[str, range]


def shared_out(parts: Sequence[TensorGroup], size: int) -> list[list[ProcessShare]]:
    """The share of each of `size` processes, with equally many bytes.

    A tensor is cut only between rows. Tensors that are made together, or as a whole, are not cut.
    """
    total = sum(entry.nbytes for part in parts for entry in part.entries)
    shares: list[list[ProcessShare]] = [[] for _ in range(size)]
    ends = [-(-total * k // size) for k in range(1, size)]
    position = 0
    for part in parts:
        for rank, rows in _cut(part, position, ends):
            shares[rank].append(ProcessShare(part, rows))
        position += sum(entry.nbytes for entry in part.entries)
    return shares


def _cut(part: TensorGroup, start: int, ends: Sequence[int]) -> Iterator[tuple[int, dict[str, range]]]:
    """The rows of a part that each process makes.

    start: of the part, in bytes. ends: for each process but the last, the end of its share in bytes.
    """
    rank = bisect_right(ends, start)
    if part.whole or len(part.entries) != 1:
        yield rank, {entry.name: range(entry.rows) for entry in part.entries}
        return
    [entry] = part.entries
    row, first = max(1, entry.row_bytes), 0
    while first < entry.rows:
        last = entry.rows if rank == len(ends) else min(entry.rows, -(-(ends[rank] - start) // row))
        if first < last:
            yield rank, {entry.name: range(first, last)}
            first = last
        rank += 1


@dataclass
class WrittenPieces:
    """The pieces that are on disk, as recorded in a folder with a file for each process."""

    folder: Path
    rank: int
    digests: dict[RowRange, str] = field(default_factory=dict)
    new: list[tuple[RowRange, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.iterdir()):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):  # a line may be incomplete
                    *piece, digest = json.loads(line)
                    self.digests[tuple(piece)] = digest

    def has(self, piece: RowRange, place: TensorPlace) -> bool:
        """Whether some rows are in a file as they were written."""
        return piece in self.digests and self.digests[piece] == _digest(place, range(*piece[1:]))

    def write_down(self) -> None:
        """Record the new pieces. They must be on disk."""
        with (self.folder / f"{self.rank}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([*piece, digest]) + "\n" for piece, digest in self.new)
        self.new.clear()


def _digest(place: TensorPlace, rows: range) -> str:
    digest = hashlib.sha256()
    position, remaining = place.bytes_of(rows)
    with place.file.open("rb") as file:
        file.seek(position)
        while remaining and (content := file.read(min(remaining, BLOCK))):
            digest.update(content)
            remaining -= len(content)
    return digest.hexdigest()


@dataclass(frozen=True)
class WriteShare:
    """The job of each process: it writes its share and returns the number of bytes.

    parts: makes the parts of all processes. done: folder in which several processes record the pieces on
    disk. `wrote(name, bytes)` is called for each tensor.
    """

    parts: Callable[[], Iterable[TensorGroup]]
    places: Mapping[str, TensorPlace]
    done: Path | None = None
    wrote: Tell = quiet

    def __call__(self, rank: int, size: int) -> int:
        """Write the share of one of `size` processes, and return its size in bytes."""
        done = None if self.done is None else WrittenPieces(self.done, rank)
        total = 0
        with ShardWriter(self.places) as writer:
            for share in shared_out([*self.parts()], size)[rank]:
                for name, count in self._write(share, writer, done):
                    self.wrote(name, count)
                    total += count
            self._synced(writer, done)
        return total

    def _write(
        self, share: ProcessShare, writer: ShardWriter, done: WrittenPieces | None
    ) -> Iterator[tuple[str, int]]:
        """Write the rows that are not on disk yet; yield the names and bytes of all."""
        pieces = {name: (name, rows.start, rows.stop) for name, rows in share.rows.items()}
        lacking = [n for n, piece in pieces.items() if not (done and done.has(piece, self.places[n]))]
        tensors = share.part.make() if lacking else {}
        for name, rows in share.rows.items():
            if name in lacking:
                digest = hashlib.sha256()
                writer.put(name, tensors[name], rows, digest.update if done else None)
                if done:
                    done.new.append((pieces[name], digest.hexdigest()))
            yield name, self.places[name].bytes_of(rows)[1]
        if done and writer.unsynced >= OFTEN:
            self._synced(writer, done)

    def _synced(self, writer: ShardWriter, done: WrittenPieces | None) -> None:
        if done:  # only this process can wait for its own writes
            writer.sync()
            done.write_down()
