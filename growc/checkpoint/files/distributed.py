"""Checkpoints of torch.distributed (`.metadata` and `.distcp` files), read as their metadata says.

Tensors are stored in pieces, one from each process of a training. Beside them are other entries: the state of
an optimizer, steps, schedules. No code in such files is run.
"""

from __future__ import annotations

import io
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc.checkpoint.files.pieces import METADATA, ByteRange, KeyPath, Piece, SplitTensor
from growc.checkpoint.files.safetensors_file import HeaderEntry, Readable, unreadable
from growc.checkpoint.files.torch_tensors import entry_of, plainly_loaded
from growc.dialects.torch.operators.arrays import to_numpy
from growc.errors.regular_files import parsing_foreign_file

if TYPE_CHECKING:
    import torch

    from growc.algebra.indexmap import Array


@dataclass(frozen=True)
class Distributed:
    """One distributed checkpoint: tensors and other values by their keys, and the path of each key."""

    folder: Path
    tensors: Mapping[str, SplitTensor]
    values: Mapping[str, ByteRange]
    paths: Mapping[str, KeyPath]

    @staticmethod
    def open(folder: Path) -> Distributed:
        """Open a folder. Raises GrowError (G310) if it is unreadable, names files elsewhere, or holds
        code.
        """
        from growc.checkpoint.files.distributed_metadata import read_metadata

        with parsing_foreign_file(folder / METADATA, "the metadata of a distributed checkpoint"):
            return Distributed(folder, *read_metadata(folder / METADATA))

    def prefix_of(self, names: Collection[str]) -> KeyPath:
        """The path under which the tensors of these names are stored. Raises GrowError (G310) unless there is
        just one.
        """
        place, name_set = self.folder / METADATA, set(names)
        counts = Counter(self.paths[key][:-1] for key in self.tensors if self.paths[key][-1] in name_set)
        best = [prefix for prefix, count in counts.items() if count == max(counts.values())]
        if len(best) == 1:
            return best[0]
        if best:
            both = " and ".join(f"`{'.'.join(map(str, prefix))}`" for prefix in sorted(best, key=str)[:2])
            raise unreadable(place, f"it has the model's weights twice, as {both}")
        first = next(iter(names), "")
        near = next((key for key in self.tensors if key.endswith(first)), "")
        hint = f", but `{near}`: save what `torch.distributed.checkpoint.state_dict` gives" if near else ""
        raise unreadable(place, f"it has no `{first}` of the class{hint}")

    def below(self, prefix: KeyPath) -> dict[str, Readable]:
        """The tensors directly under a path, by the last part of their own paths, not yet read."""
        keys = {str(self.paths[key][-1]): key for key in self.tensors if self.paths[key][:-1] == prefix}
        return {name: Readable(self.entry(key, name), partial(self.array, key)) for name, key in keys.items()}

    def entry(self, key: str, name: str = "") -> HeaderEntry:
        """A tensor's name, element type and shape. Raises GrowError (G309) if growc cannot hold its
        elements.
        """
        import torch

        cut = self.tensors[key]
        return entry_of(name or key, torch.empty(cut.shape, dtype=cut.dtype, device="meta"))

    def array(self, key: str) -> Array:
        """A tensor joined from its pieces. Raises GrowError (G310) if it cannot be read."""
        return to_numpy(self.tensor(key))

    def tensor(self, key: str) -> torch.Tensor:
        """A tensor joined from its pieces, as a torch tensor. Raises GrowError (G310) if it cannot be
        read.
        """
        import torch

        cut = self.tensors[key]
        joined = torch.empty(cut.shape, dtype=cut.dtype)
        for piece in cut.pieces:
            ends = zip(piece.offsets, piece.sizes, strict=True)
            joined[tuple(slice(start, start + size) for start, size in ends)] = self.piece(key, piece)
        return joined

    def piece(self, key: str, piece: Piece) -> torch.Tensor:
        """One piece of a tensor. Raises GrowError (G310) if it differs from what the metadata says."""
        import torch

        cut, loaded = self.tensors[key], self._loaded(key, piece.stretch)
        if isinstance(loaded, torch.Tensor) and (loaded.dtype, loaded.shape) == (cut.dtype, piece.sizes):
            return loaded
        raise unreadable(self.folder / piece.stretch.file, f"`{key}` is not what the metadata says")

    def content(self, key: str) -> bytes:
        """The bytes of an entry that is no tensor, as `torch.save` wrote them."""
        return self._bytes(self.values[key])

    def value(self, key: str) -> object:
        """An entry that is no tensor, as a Python value. Raises GrowError (G310) if it holds code."""
        return self._loaded(key, self.values[key])

    def _bytes(self, stretch: ByteRange) -> bytes:
        with (self.folder / stretch.file).open("rb") as file:
            file.seek(stretch.offset)
            return file.read(stretch.length)

    def _loaded(self, key: str, stretch: ByteRange) -> object:
        return plainly_loaded(io.BytesIO(self._bytes(stretch)), self.folder / stretch.file, f"`{key}`")
