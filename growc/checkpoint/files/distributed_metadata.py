"""The metadata of a distributed checkpoint: a pickle, read without running code in it, and checked.

Every class that the pickle names is replaced by a class of this module that only holds fields. The class is
made anew for each file, so changes that a pickle makes to it do not outlast the reading.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import combinations, pairwise
from math import prod
from pathlib import Path
from typing import Protocol

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    TensorProperties,
    TensorStorageMetadata,
)

from growc.checkpoint.files.pieces import ByteRange, KeyPath, Piece, SplitTensor
from growc.errors.regular_files import companion
from growc.system.limits import require

HOLDERS = {
    "torch.distributed.checkpoint.metadata": (
        "Metadata",
        "TensorStorageMetadata",
        "BytesStorageMetadata",
        "ChunkStorageMetadata",
        "TensorProperties",
        "MetadataIndex",
        "StorageMeta",
    ),
    "torch.distributed.checkpoint.filesystem": ("_StorageInfo",),
}
"""The classes of which metadata consists, by module."""

PLAIN: dict[str, Callable[..., object]] = {
    "torch.Size": lambda sizes: tuple(sizes),
    "torch.serialization._get_layout": lambda name: name,
    "torch.distributed.checkpoint.metadata._MEM_FORMAT_ENCODING": lambda number: number,
    "collections.OrderedDict": lambda *pairs: dict(*pairs),
    "pathlib.PosixPath": lambda *parts: parts,
    "pathlib.WindowsPath": lambda *parts: parts,
    "pathlib._local.PosixPath": lambda *parts: parts,
    "pathlib._local.WindowsPath": lambda *parts: parts,
}
"""Other callables that metadata names, and the functions that replace them."""

MetadataContents = tuple[dict[str, SplitTensor], dict[str, ByteRange], dict[str, KeyPath]]
"""Tensors, other values, and paths, each by key."""


class _Plain(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> object:
        if module == "torch" and isinstance(kind := getattr(torch, name, None), torch.dtype):
            return kind
        if f"{module}.{name}" in PLAIN:
            return partial(_taken, f"{module}.{name}")
        if name in HOLDERS.get(module, ()):
            return type(name, (_Holder,), {})
        raise ValueError(f"it holds code (`{module}.{name}`), and growc runs none")


def _taken(name: str, *arguments: object) -> object:
    return PLAIN[name](*arguments)


class _Holder:
    """An object with arbitrary fields."""

    def __setstate__(self, state: object) -> None:
        self.__dict__.update(state if isinstance(state, dict) else {"fields": state})


class _Index(Protocol):
    fqn: str


class _Info(Protocol):
    relative_path: str
    offset: int
    length: int


class _Chunk(Protocol):
    offsets: Sequence[int]
    sizes: Sequence[int]


class _Tensor(Protocol):
    properties: object
    size: Sequence[int]
    chunks: Sequence[_Chunk]


def read_metadata(place: Path) -> MetadataContents:
    """The contents of a file of metadata. Raises some exception if it is none, or does not fit the files."""
    require("json_bytes", f"`{place}` has", place.stat().st_size)
    with place.open("rb") as file:
        metadata = _Plain(file).load()
    stored = _stretches(place, metadata.storage_data)
    tensors: dict[str, SplitTensor] = {}
    values: dict[str, ByteRange] = {}
    for key, description in metadata.state_dict_metadata.items():
        if not isinstance(key, str):
            raise TypeError(f"`{key}` is no name of an entry")
        if hasattr(description, "chunks"):
            tensors[key] = _cut(key, description, stored)
        else:
            values[key] = stored[key, None]
    recorded_paths: Mapping[str, Sequence[str | int]] = metadata.planner_data or {}
    paths = {key: tuple(recorded_paths.get(key, (key,))) for key in metadata.state_dict_metadata}
    if not all(path and all(isinstance(word, str | int) for word in path) for path in paths.values()):
        raise TypeError("an entry has no path")
    return tensors, values, paths


def _stretches(
    place: Path, storage: Mapping[_Index, _Info]
) -> dict[tuple[str, tuple[int, ...] | None], ByteRange]:
    """The place of each entry in the files, by its key and its offset in its tensor."""
    sizes: dict[str, int] = {}
    stretches: dict[tuple[str, tuple[int, ...] | None], ByteRange] = {}
    for index, info in storage.items():
        file, start, length = str(info.relative_path), int(info.offset), int(info.length)
        if file not in sizes:
            sizes[file] = companion(place, file).stat().st_size
        if start < 0 or length < 0 or start + length > sizes[file]:
            raise ValueError(f"`{index.fqn}` does not lie in `{file}`")
        if getattr(info, "transform_descriptors", None):  # older versions lack the field
            raise ValueError(f"`{index.fqn}` is compressed or encrypted")
        offset = getattr(index, "offset", None)
        stretches[str(index.fqn), None if offset is None else tuple(offset)] = ByteRange(file, start, length)
    return stretches


def _cut(
    key: str, metadata: _Tensor, stored: Mapping[tuple[str, tuple[int, ...] | None], ByteRange]
) -> SplitTensor:
    """A tensor whose pieces hold each of its elements exactly once. Raises TypeError or ValueError
    otherwise.
    """
    properties, shape = metadata.properties, tuple(map(int, metadata.size))
    dtype = next(iter(getattr(properties, "fields", ())), None) or getattr(properties, "dtype", None)
    if not isinstance(dtype, torch.dtype):
        raise TypeError(f"`{key}` has no type of elements")
    places = {tuple(map(int, chunk.offsets)): tuple(map(int, chunk.sizes)) for chunk in metadata.chunks}
    pieces = []
    for offsets, sizes in places.items():
        stretch = stored.get((key, offsets)) or stored[key, None]
        inside = all(
            offset >= 0 and size >= 0 and offset + size <= whole
            for offset, size, whole in zip(offsets, sizes, shape, strict=True)
        )
        if not inside or prod(sizes) * dtype.itemsize > stretch.length:
            raise ValueError(f"a part of `{key}` is no part of it")
        pieces.append(Piece(offsets, sizes, stretch))
    if sum(prod(piece.sizes) for piece in pieces) != prod(shape):
        raise ValueError(f"parts of `{key}` are missing")
    if _overlap(pieces, shape):
        raise ValueError(f"parts of `{key}` overlap")
    return SplitTensor(dtype, shape, tuple(pieces))


def _overlap(pieces: Sequence[Piece], shape: tuple[int, ...]) -> bool:
    """Whether two pieces share an element."""
    full = [piece for piece in pieces if prod(piece.sizes)]
    if all(piece.sizes[1:] == shape[1:] for piece in full) and shape:  # cut by rows, the usual case
        ends = sorted((piece.offsets[0], piece.offsets[0] + piece.sizes[0]) for piece in full)
        return any(end > start for (_, end), (start, _) in pairwise(ends))
    return any(_meet(piece, other) for piece, other in combinations(full, 2))


def _meet(one: Piece, other: Piece) -> bool:
    sides = zip(one.offsets, one.sizes, other.offsets, other.sizes, strict=True)
    return all(a < b + n and b < a + m for a, m, b, n in sides)


def as_torch_has_it(
    cuts: Mapping[str, SplitTensor], values: Mapping[str, ByteRange], paths: Mapping[str, KeyPath]
) -> Metadata:
    """The metadata, already read and checked, as torch's own reader takes it."""
    tensors, storage = {}, {}
    for key, cut in cuts.items():
        chunks = [ChunkStorageMetadata(torch.Size(p.offsets), torch.Size(p.sizes)) for p in cut.pieces]
        tensors[key] = TensorStorageMetadata(TensorProperties(cut.dtype), torch.Size(cut.shape), chunks)
        for piece in cut.pieces:
            storage[MetadataIndex(key, piece.offsets)] = _info(piece.stretch)
    storage |= {MetadataIndex(key): _info(stretch) for key, stretch in values.items()}
    return Metadata(dict(tensors), dict(paths), storage)


def _info(stretch: ByteRange) -> _StorageInfo:
    return _StorageInfo(stretch.file, stretch.offset, stretch.length)
