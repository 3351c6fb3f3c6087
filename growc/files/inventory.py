"""The files of a folder that growc wrote, as its record lists them: none was changed or added since.

Needs: a folder. Gives: a digest for each of its files; later, the first file that is not as it was.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import BinaryIO

from growc.errors.json_data import Json

WHOLE = 64 << 20
"""Bytes up to which all of a file is digested; of larger ones, samples. A step of training changes most."""
SAMPLES, SAMPLE = 4096, 64
"""The number of places across a large file that are digested, and the bytes at each."""
LONGEST_HEADER = 100_000_000
"""The most bytes that the header of a .safetensors file may have."""


def inventory(folder: Path, record: str) -> dict[str, Json]:
    """The digest of each file below a folder, by its path there, without that of the record itself."""
    return {name: digest(path) for name, path in _files(folder) if name != record and path.is_file()}


def changed(folder: Path, record: str, listed: Mapping[str, Json]) -> str:
    """The path of the first file that was changed or added; empty if there is none.

    A file that is missing is none: nothing of it can be lost.
    """
    for name, path in _files(folder):
        if name != record and not (path.is_file() and listed.get(name) == digest(path)):
            return name
    return ""


def digest(path: Path) -> str:
    """The digest of a file: of its size, and of its bytes, or samples of them."""
    size = path.stat().st_size
    hasher = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        if size <= WHOLE:
            hashlib.file_digest(file, lambda: hasher)
        else:
            for place in sorted({*range(0, size, max(1, size // SAMPLES)), *_tensors(file, path, size)}):
                file.seek(place)
                hasher.update(file.read(SAMPLE))
    return hasher.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        if not path.is_dir() or path.is_symlink():
            yield path.relative_to(folder).as_posix(), path


def _tensors(file: BinaryIO, path: Path, size: int) -> Iterator[int]:
    """The start of each tensor in a .safetensors file: a tensor may be shorter than samples are apart.

    None where the header is broken; growc writes no such file.
    """
    if path.suffix != ".safetensors":
        return
    length = int.from_bytes(file.read(8), "little")
    with contextlib.suppress(ValueError, KeyError, TypeError, AttributeError, IndexError, RecursionError):
        header = json.loads(file.read(length)) if length <= min(size, LONGEST_HEADER) else {}
        header.pop("__metadata__", None)
        starts = [8 + length + int(entry["data_offsets"][0]) for entry in header.values()]
        yield from (start for start in starts if 0 <= start < size)
