"""Tensors of torch as entries of a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from growc.checkpoint.files.safetensors_file import DTYPES, WORDS, Entry
from growc.dialects.torch.operators.arrays import CARRIED, name_of, to_torch
from growc.errors.diagnostic import Diagnostic, GrowError

if TYPE_CHECKING:
    import torch


def entry_of(name: str, tensor: torch.Tensor) -> Entry:
    """What a file says of a tensor. Raises GrowError (G309) where files have no such elements."""
    kind = name_of(tensor.dtype)
    carried = CARRIED.get(kind)
    try:
        word = WORDS[np.dtype(kind if carried is None else carried[1])]
    except (KeyError, TypeError) as error:
        message = f"`{name}` has elements of type {kind}, which growc cannot hold"
        raise GrowError(Diagnostic("G309", message)) from error
    return Entry(name, word, tuple(tensor.shape))


def without_data(entry: Entry) -> torch.Tensor:
    """A tensor of an entry's type and shape on the meta device."""
    import torch

    kind = to_torch(np.empty(0, DTYPES[entry.dtype])).dtype
    return torch.empty(entry.shape, dtype=kind, device="meta")
