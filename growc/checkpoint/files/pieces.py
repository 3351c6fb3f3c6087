"""The files of a distributed checkpoint, and the places of entries in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

METADATA = ".metadata"
ENDING = ".distcp"

KeyPath = tuple[str | int, ...]
"""The path of an entry in the nested dictionaries that were saved."""


def is_distributed(folder: Path) -> bool:
    """Whether a folder holds a distributed checkpoint."""
    return (folder / METADATA).is_file()


@dataclass(frozen=True)
class ByteRange:
    """Bytes of a file that `torch.save` wrote."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Piece:
    """A part of a tensor: its offsets, its sizes, and its place in a file."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    stretch: ByteRange


@dataclass(frozen=True)
class SplitTensor:
    """A tensor that is stored in pieces."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
