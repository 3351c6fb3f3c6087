"""Which files a distributed checkpoint has, and how entries lie in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

METADATA = ".metadata"
ENDING = ".distcp"

KeyPath = tuple[str | int, ...]
"""Where an entry stands in the nested dictionaries that were saved."""


def is_distributed(folder: Path) -> bool:
    """Whether a folder is such a checkpoint."""
    return (folder / METADATA).is_file()


@dataclass(frozen=True)
class Stretch:
    """Bytes of a file, which are what `torch.save` wrote."""

    file: str
    offset: int
    length: int


@dataclass(frozen=True)
class Piece:
    """A part of a tensor: from which place on, how large, and where it is."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]
    stretch: Stretch


@dataclass(frozen=True)
class Cut:
    """A tensor that lies in pieces."""

    dtype: torch.dtype
    shape: tuple[int, ...]
    pieces: tuple[Piece, ...]
