"""One `.safetensors` file: its header, its tensors one at a time, and the header of a new file.

The safetensors library checks a file. Each tensor is mapped separately, so that its pages are freed with it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from growc.algebra.indexmap import Array
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.limits import require

DTYPES: dict[str, np.dtype[Any]] = {
    word: np.dtype(kind)
    for word, kind in {
        "U64": np.uint64,
        "I64": np.int64,
        "F64": np.float64,
        "C64": np.complex64,
        "F32": np.float32,
        "U32": np.uint32,
        "I32": np.int32,
        "BF16": ml_dtypes.bfloat16,
        "F16": np.float16,
        "U16": np.uint16,
        "I16": np.int16,
        "F8_E8M0": ml_dtypes.float8_e8m0fnu,
        "F8_E4M3": ml_dtypes.float8_e4m3fn,
        "F8_E5M2": ml_dtypes.float8_e5m2,
        "I8": np.int8,
        "U8": np.uint8,
        "BOOL": np.bool_,
    }.items()
}
"""The element types of the format that numpy can hold, in the order in which files store them."""

NARROW = frozenset(("F16", "BF16"))
"""Types of real numbers with 16 bits."""

WORDS = {kind: word for word, kind in DTYPES.items()}

_RANK = {word: rank for rank, word in enumerate(DTYPES)}


@dataclass(frozen=True)
class HeaderEntry:
    """The description of a tensor in a header."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def elements(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """The size in bytes."""
        return self.elements * DTYPES[self.dtype].itemsize

    @property
    def rows(self) -> int:
        """The number of rows; a scalar is one row."""
        return self.shape[0] if self.shape else 1

    @property
    def row_bytes(self) -> int:
        """The size of a row in bytes."""
        return self.nbytes // max(1, self.rows)


@dataclass(frozen=True)
class Readable:
    """A tensor that is still on disk.

    `read` maps it; changes to the array stay in memory.
    """

    entry: HeaderEntry
    read: Callable[[], Array]


def unreadable(path: Path, reason: str) -> GrowError:
    """The error for a file of a checkpoint that cannot be read."""
    return GrowError(Diagnostic("G310", f"`{path}` cannot be read as a checkpoint: {reason}"))


def read_header(path: Path) -> tuple[dict[str, Readable], dict[str, str]]:
    """The tensors of a file in the order of their places in it, and its metadata.

    Raises GrowError: G310 if it is no such file, G309 if it has elements that growc cannot hold.
    """
    import safetensors

    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length <= path.stat().st_size:
                require("json_bytes", f"the header of `{path}` has", length)
            with safetensors.safe_open(str(path), framework="np", backend="pread"):
                pass  # the library has checked every offset
            header = json.loads(file.read(length))
    except FileNotFoundError as error:
        raise unreadable(path, "there is no such file") from error
    except (safetensors.SafetensorError, ValueError) as error:
        raise unreadable(path, str(error)) from error
    metadata = header.pop("__metadata__", {})
    require("tensors", f"`{path}` has", len(header))
    readables: dict[str, Readable] = {}
    for name, description in sorted(header.items(), key=lambda item: int(item[1]["data_offsets"][0])):
        entry = HeaderEntry(name, description["dtype"], tuple(description["shape"]))
        if entry.dtype not in DTYPES:
            message = f"`{name}` in `{path}` has elements of type {entry.dtype}, which growc cannot hold"
            raise GrowError(Diagnostic("G309", message))
        readables[name] = Readable(
            entry, partial(_read, path, entry, 8 + length + description["data_offsets"][0])
        )
    return readables, metadata


def _read(path: Path, entry: HeaderEntry, offset: int) -> Array:
    """One tensor of a file. Raises GrowError (G310) if the file ends too early."""
    kind = DTYPES[entry.dtype]
    if not entry.nbytes:
        return np.empty(entry.shape, kind)
    try:
        mapped = np.memmap(path, kind, "c", offset, entry.shape)
    except (OSError, ValueError) as error:  # a file that is too short cannot be mapped
        raise unreadable(path, f"`{entry.name}` ends too early") from error
    aligned: Array = np.require(mapped, requirements="A").view(np.ndarray)
    return aligned


def make_header(entries: Iterable[HeaderEntry], metadata: Mapping[str, str]) -> tuple[bytes, dict[str, int]]:
    """The header of a file, as the library would write it, and the offset in bytes of every tensor."""
    header: dict[str, Any] = {"__metadata__": dict(metadata)} if metadata else {}
    start, offsets = 0, {}
    for entry in file_order(entries):
        end = start + entry.nbytes
        header[entry.name] = {"dtype": entry.dtype, "shape": entry.shape, "data_offsets": [start, end]}
        offsets[entry.name], start = start, end
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text, {n: 8 + len(text) + o for n, o in offsets.items()}


def file_order(entries: Iterable[HeaderEntry]) -> Sequence[HeaderEntry]:
    """Entries sorted by element size, large first, so that all are aligned; then by name."""
    return sorted(entries, key=lambda e: (_RANK[e.dtype], e.name.encode()))
