"""Between torch's tensors and arrays of the same elements, bfloat16 and float8 included."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from growc.checkpoint.tensorfile import DTYPES, WORDS, Entry
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import Array

if TYPE_CHECKING:
    import torch

_CARRIED: dict[str, tuple[Any, Any]] = {
    "bfloat16": (np.uint16, ml_dtypes.bfloat16),
    "float8_e4m3fn": (np.uint8, ml_dtypes.float8_e4m3fn),
    "float8_e5m2": (np.uint8, ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": (np.uint8, ml_dtypes.float8_e8m0fnu),
}
"""Types that torch does not hand to numpy: as what they are handed over, and what they then are."""


def to_numpy(tensor: torch.Tensor) -> Array:
    """A torch tensor as an array; the memory is shared where it can be."""
    import torch

    plain = tensor.detach().cpu().contiguous()
    carrier, kind = _CARRIED.get(_name(plain.dtype), (None, None))
    if carrier is None:
        return plain.numpy()
    return plain.view(torch.from_numpy(np.empty(0, carrier)).dtype).numpy().view(kind)


def to_torch(array: Array) -> torch.Tensor:
    """An array as a torch tensor; the memory is shared."""
    import torch

    for name, (carrier, kind) in _CARRIED.items():
        if array.dtype == kind:
            plain = np.ascontiguousarray(array).view(carrier)
            return torch.from_numpy(plain).view(getattr(torch, name))
    return torch.from_numpy(array)


def entry_of(name: str, tensor: torch.Tensor) -> Entry:
    """What a file says of a tensor. Raises GrowError (G309) where files have no such elements."""
    kind = _name(tensor.dtype)
    carried = _CARRIED.get(kind)
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


def _name(kind: torch.dtype) -> str:
    return str(kind).removeprefix("torch.")
