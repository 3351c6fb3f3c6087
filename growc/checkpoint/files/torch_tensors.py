"""Tensors of torch as entries of a file, and files of `torch.save`.

Files are read with `weights_only`, which runs no code, and mapped from disk.
"""

from __future__ import annotations

import pickle
import warnings
from collections.abc import Callable
from functools import partial
from itertools import count
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from growc.checkpoint.files.safetensors_file import DTYPES, WORDS, HeaderEntry, Readable, unreadable
from growc.dialects.torch.operators.arrays import CARRIED, name_of, to_numpy, to_torch
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import first_line

if TYPE_CHECKING:
    import torch


def entry_of(name: str, tensor: torch.Tensor) -> HeaderEntry:
    """A file's entry for a tensor. Raises GrowError (G309) if files have no such elements."""
    kind = name_of(tensor.dtype)
    carried = CARRIED.get(kind)
    try:
        word = WORDS[np.dtype(kind if carried is None else carried[1])]
    except (KeyError, TypeError) as error:
        message = f"`{name}` has elements of type {kind}, which growc cannot hold"
        raise GrowError(Diagnostic("G309", message)) from error
    return HeaderEntry(name, word, tuple(tensor.shape))


def without_data(entry: HeaderEntry) -> torch.Tensor:
    """A tensor of an entry's type and shape on the meta device."""
    import torch

    kind = to_torch(np.empty(0, DTYPES[entry.dtype])).dtype
    return torch.empty(entry.shape, dtype=kind, device="meta")


def on_disk(folder: Path) -> Callable[[tuple[int, ...], torch.dtype], torch.Tensor]:
    """A function that makes empty tensors in files of a folder, so that memory need not hold them."""
    import torch

    numbers = count()

    def empty(shape: tuple[int, ...], kind: torch.dtype) -> torch.Tensor:
        size = prod(shape)
        if not size:
            return torch.empty(shape, dtype=kind)
        file = str(folder / str(next(numbers)))
        return torch.from_file(file, shared=True, size=size, dtype=kind).reshape(shape)

    return empty


def read_pickle(path: Path) -> dict[str, Readable]:
    """The tensors of a `.bin` file. Raises GrowError (G310) if it holds anything but tensors."""
    state = load_pickle(path)
    import torch

    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise unreadable(path, "it holds something else than tensors by name")
    return {n: Readable(entry_of(n, tensor), partial(to_numpy, tensor)) for n, tensor in state.items()}


def load_pickle(path: Path) -> Any:
    """The contents of a file of `torch.save`. Code in it is not run: it raises GrowError (G310)."""
    return plainly_loaded(path, path)


def plainly_loaded(file: Path | BinaryIO, path: Path, what: str = "it") -> object:
    """The contents of an open file of `torch.save`.

    what: names it in errors, as a part of the file at `path`. Raises GrowError (G310) if it cannot be read or
    holds code.
    """
    import torch

    mapped = is_mappable(file) if isinstance(file, Path) and file.exists() else False
    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # torch warns about old files
            return torch.load(file, map_location="cpu", weights_only=True, mmap=mapped)
    except FileNotFoundError as error:
        raise unreadable(path, "there is no such file") from error
    except pickle.UnpicklingError as error:
        raise unreadable(path, f"{what} holds code, or objects of classes, and growc runs none") from error
    except Exception as error:  # a damaged file may lead to any exception
        raise unreadable(path, first_line(error)) from error


def is_mappable(path: Path) -> bool:
    """Whether a file is a zip file; only zip files can be mapped."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
