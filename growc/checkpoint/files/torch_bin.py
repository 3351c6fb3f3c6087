"""Weights in `pytorch_model.bin`: read with `weights_only`, which runs no code, and mapped from disk."""

from __future__ import annotations

import pickle
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from growc.algebra.indexmap import Array
from growc.checkpoint.files.safetensors_file import Entry, unreadable
from growc.checkpoint.files.torch_tensors import entry_of
from growc.dialects.torch.operators.arrays import to_numpy
from growc.errors.regular_files import first_line


@dataclass(frozen=True)
class Pickled:
    """A tensor that torch has mapped from a file."""

    entry: Entry
    tensor: Any

    def read(self) -> Array:
        """The tensor, in an array of its own."""
        return to_numpy(self.tensor).copy()


def read_pickle(path: Path) -> dict[str, Pickled]:
    """The tensors of a `.bin` file. Raises GrowError (G310) where it holds anything but tensors."""
    state = load_pickle(path)
    import torch

    if not isinstance(state, dict) or not all(isinstance(t, torch.Tensor) for t in state.values()):
        raise unreadable(path, "it holds something else than tensors by name")
    return {name: Pickled(entry_of(name, tensor), tensor) for name, tensor in state.items()}


def load_pickle(path: Path) -> Any:
    """What a file of `torch.save` holds. No code in it is run. Raises GrowError (G310) where it has some."""
    import torch

    try:
        with warnings.catch_warnings(action="ignore", category=UserWarning):  # what it thinks of a file's age
            return torch.load(path, map_location="cpu", weights_only=True, mmap=_is_mappable(path))
    except FileNotFoundError as error:
        raise unreadable(path, "there is no such file") from error
    except pickle.UnpicklingError as error:
        raise unreadable(path, "it holds code, or objects of classes, and growc runs none") from error
    except Exception as error:  # whatever a damaged file leads torch to
        raise unreadable(path, first_line(error)) from error


def _is_mappable(path: Path) -> bool:
    """Whether it is a zip file: only those can be mapped."""
    with path.open("rb") as file:
        return file.read(4) == b"PK\x03\x04"
