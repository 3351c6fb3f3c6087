"""The bytes that each of several processes reads and writes of a checkpoint, computed in advance."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from growc.errors.diagnostic import wrong

if TYPE_CHECKING:
    from growc.checkpoint.classes.config_only import ConfigOnly
    from growc.checkpoint.classes.new_tensors import GrownWeights
    from growc.checkpoint.classes.on_disk import CheckpointOnDisk
    from growc.checkpoint.files.process_shares import ProcessShare
    from growc.passes.compilation import Result

    Grown = GrownWeights[CheckpointOnDisk] | GrownWeights[ConfigOnly]


BANDWIDTH = "1GB"
"""Default bytes per second that a process moves."""


@dataclass(frozen=True)
class Load:
    """The bytes that one process reads of the source and writes.

    whole: the most that it takes in memory beside blocks of rows.
    """

    read: int
    written: int
    whole: int

    @property
    def moved(self) -> int:
        """Bytes that are read or written."""
        return self.read + self.written


@dataclass(frozen=True)
class Loads:
    """The loads of all processes.

    bandwidth: bytes per second that each of them reads or writes.
    """

    each: Sequence[Load]
    bandwidth: int

    @property
    def largest(self) -> Load:
        """The load of the process that moves the most."""
        return max(self.each, key=lambda one: one.moved)

    @property
    def ratio(self) -> float:
        """The largest load relative to the mean."""
        mean = sum(one.moved for one in self.each) / len(self.each)
        return self.largest.moved / mean if mean else 1.0

    @property
    def seconds(self) -> float:
        """The time in seconds that the largest load takes."""
        return self.largest.moved / self.bandwidth


def loads(c: Result, size: int, bandwidth: str = "") -> Loads:
    """The load of each of `size` processes.

    bandwidth: bytes per second, such as `2GB`; BANDWIDTH by default. Raises GrowError (G200) if only one
    process can write the model.
    """
    if not (c.path.is_dir() or c.path.suffix == ".json"):
        raise wrong(f"`--ranks` is for checkpoint directories, and `{c.path}` is none")
    if size < 1:
        raise wrong(f"`--ranks {size}` is no number of processes", "it is 1 or more")
    from growc.checkpoint.classes.distributed_result import contents_of
    from growc.checkpoint.classes.new_tensors import class_result, parts
    from growc.checkpoint.classes.on_disk import CheckpointOnDisk
    from growc.checkpoint.files.process_shares import shared_out
    from growc.checkpoint.files.shards import read_size

    grown: Grown = class_result(c).grown
    if isinstance(grown.source, CheckpointOnDisk) and grown.source.checkpoint.distributed:
        all_parts = contents_of(grown, c.plan, None, "mapped").parts
    else:
        all_parts = [*parts(grown)]
    per_process = [_load(grown, shares) for shares in shared_out(all_parts, size)]
    return Loads(per_process, read_size(bandwidth or BANDWIDTH, "--bandwidth"))


def _load(grown: Grown, shares: Sequence[ProcessShare]) -> Load:
    read = sum(count for share in shares for count in _read(grown, share))
    return Load(read, sum(map(_written, shares)), max((share.part.whole for share in shares), default=0))


def _written(share: ProcessShare) -> int:
    return sum(len(share.rows[entry.name]) * entry.row_bytes for entry in share.part.entries)


def _read(grown: Grown, share: ProcessShare) -> Iterator[int]:
    """The bytes that are read of each tensor of which a share is made."""
    names = share.part.made_of
    if not names:
        yield _written(share)
    elif share.part.whole:
        row_range = share.part.rows_of
        for name in names:
            yield grown.reads(name, range(*row_range) if row_range else range(grown.entry(name).rows))
    else:
        yield from (grown.reads(name, rows) for name, rows in zip(names, share.rows.values(), strict=True))
