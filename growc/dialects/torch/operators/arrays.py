"""Conversion between torch tensors and numpy arrays, including bfloat16 and float8."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from growc.algebra.indexmap import Array
from growc.algebra.last_place import nudged

if TYPE_CHECKING:
    import torch

CARRIED: dict[str, tuple[Any, Any]] = {
    "bfloat16": (np.uint16, ml_dtypes.bfloat16),
    "float8_e4m3fn": (np.uint8, ml_dtypes.float8_e4m3fn),
    "float8_e5m2": (np.uint8, ml_dtypes.float8_e5m2),
    "float8_e8m0fnu": (np.uint8, ml_dtypes.float8_e8m0fnu),
}
"""Dtypes that torch cannot convert to numpy, each with the integer type that carries it and its ml_dtypes
type.
"""


def to_numpy(tensor: torch.Tensor) -> Array:
    """Return a torch tensor as an array. The memory is shared if possible."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().contiguous()
    carrier, kind = CARRIED.get(name_of(plain.dtype), (None, None))
    if carrier is None:
        return plain.numpy()
    return plain.view(torch.from_numpy(np.empty(0, carrier)).dtype).numpy().view(kind)


def to_torch(array: Array) -> torch.Tensor:
    """Return an array as a torch tensor. The memory is shared if possible."""
    import torch

    for name, (carrier, kind) in CARRIED.items():
        if array.dtype == kind:
            plain = np.ascontiguousarray(array).view(carrier)
            return torch.from_numpy(plain).view(getattr(torch, name)).reshape(array.shape)
    return torch.from_numpy(array)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of floats of 16 bits or fewer as float32, and any other tensor unchanged."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """Return a weight with floats moved by half a unit in the last place: the rounding error of storage."""
    if not tensor.is_floating_point():
        return tensor
    return to_torch(nudged(to_numpy(tensor))).to(tensor.device)


def name_of(kind: torch.dtype) -> str:
    """Return the name of a torch dtype in numpy and ml_dtypes, such as `float32`."""
    return str(kind).removeprefix("torch.")
