"""The tensors of a checkpoint shared out among processes, by bytes: each makes and writes what follows in the
files' order what the one before it writes.

What is on the disk is written down, with its digest: processes that are started anew find it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from growc.checkpoint.files.shards import Part, Place, ShardWriter
from growc.plans.rows import BLOCK

Tell = Callable[[str, int], None]
Piece = tuple[str, int, int]
"""Rows of a tensor: its name, the first one, and the one behind the last."""

OFTEN = 64 << 20
"""After so many bytes it is written down what is on the disk."""


def quiet(name: str, count: int) -> None:
    """Tells nobody of a tensor that was written, and its bytes."""


@dataclass(frozen=True)
class Share:
    """What one process makes of a part: which rows of which tensors."""

    part: Part
    rows: Mapping[str, range]


def shared_out(parts: Sequence[Part], size: int) -> list[list[Share]]:
    """The share of each of `size` processes: as many bytes for each, whatever they are.

    A tensor is cut between rows; tensors that are made together, or as a whole, are not.
    """
    total = sum(entry.nbytes for part in parts for entry in part.entries)
    shares: list[list[Share]] = [[] for _ in range(size)]
    at = 0
    for part in parts:
        ends = [-(-total * k // size) - at for k in range(1, size)]
        for rank, rows in _cut(part, ends):
            shares[rank].append(Share(part, rows))
        at += sum(entry.nbytes for entry in part.entries)
    return shares


def _cut(part: Part, ends: Sequence[int]) -> Iterator[tuple[int, dict[str, range]]]:
    """Which process makes what of a part. ends: for each process but the last, how many bytes behind the
    start of the part it ends.
    """
    if part.whole or len(part.entries) != 1:
        yield sum(end <= 0 for end in ends), {entry.name: range(entry.rows) for entry in part.entries}
        return
    [entry] = part.entries
    row, first = max(1, entry.row_bytes), 0
    for rank, end in enumerate([*ends, entry.nbytes]):
        last = entry.rows if rank == len(ends) else max(0, min(entry.rows, -(-end // row)))
        if first < last:
            yield rank, {entry.name: range(first, last)}
            first = last


@dataclass
class Done:
    """What is on the disk by now, as written down in a folder: a file for each process."""

    folder: Path
    rank: int
    found: dict[Piece, str] = field(default_factory=dict)
    new: list[tuple[Piece, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for path in sorted(self.folder.iterdir()):
            for line in path.read_text(encoding="utf-8").splitlines():
                with suppress(ValueError):  # of a line that was not written to its end
                    *piece, digest = json.loads(line)
                    self.found[tuple(piece)] = digest

    def has(self, piece: Piece, place: Place) -> bool:
        """Whether some rows stand in a file as they were written."""
        return piece in self.found and self.found[piece] == _digest(place, range(*piece[1:]))

    def write_down(self) -> None:
        """What is new. Only what is on the disk may be."""
        with (self.folder / f"{self.rank}.jsonl").open("a", encoding="utf-8") as file:
            file.writelines(json.dumps([*piece, digest]) + "\n" for piece, digest in self.new)
        self.new.clear()


def _digest(place: Place, rows: range) -> str:
    digest = hashlib.sha256()
    at, left = place.bytes_of(rows)
    with place.file.open("rb") as file:
        file.seek(at)
        while left and (content := file.read(min(left, BLOCK))):
            digest.update(content)
            left -= len(content)
    return digest.hexdigest()


@dataclass(frozen=True)
class WriteShare:
    """The job of each process: it writes its share, and gives how many bytes that is.

    parts: what makes the parts of all, wherever it is asked. done: where it is written down what is on the
    disk, of several processes. `wrote(name, bytes)` is called for each tensor.
    """

    parts: Callable[[], Iterable[Part]]
    places: Mapping[str, Place]
    done: Path | None = None
    wrote: Tell = quiet

    def __call__(self, rank: int, size: int) -> int:
        """Write the share of one of `size` processes."""
        done = None if self.done is None else Done(self.done, rank)
        total = 0
        with ShardWriter(self.places) as writer:
            for share in shared_out([*self.parts()], size)[rank]:
                for name, count in self._write(share, writer, done):
                    self.wrote(name, count)
                    total += count
            self._synced(writer, done)
        return total

    def _write(self, share: Share, writer: ShardWriter, done: Done | None) -> Iterator[tuple[str, int]]:
        """Write what is not there yet; gives the names and bytes of all."""
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

    def _synced(self, writer: ShardWriter, done: Done | None) -> None:
        if done:  # no other process can wait for what this one wrote
            writer.sync()
            done.write_down()
