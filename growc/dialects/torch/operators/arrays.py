"""Between torch's tensors and arrays of the same elements, bfloat16 and float8 included."""

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
"""Types that torch does not hand to numpy: as what they are handed over, and what they then are."""


def to_numpy(tensor: torch.Tensor) -> Array:
    """A torch tensor as an array; the memory is shared where it can be."""
    import torch

    plain = tensor.detach().cpu().resolve_conj().contiguous()
    carrier, kind = CARRIED.get(name_of(plain.dtype), (None, None))
    if carrier is None:
        return plain.numpy()
    return plain.view(torch.from_numpy(np.empty(0, carrier)).dtype).numpy().view(kind)


def to_torch(array: Array) -> torch.Tensor:
    """An array as a torch tensor; the memory is shared."""
    import torch

    for name, (carrier, kind) in CARRIED.items():
        if array.dtype == kind:
            plain = np.ascontiguousarray(array).view(carrier)
            return torch.from_numpy(plain).view(getattr(torch, name)).reshape(array.shape)
    return torch.from_numpy(array)


def widened(tensor: torch.Tensor) -> torch.Tensor:
    """Real numbers of 16 bits and fewer as float32; others as they are."""
    return tensor.float() if tensor.is_floating_point() and tensor.itemsize < 4 else tensor


def moved(tensor: torch.Tensor) -> torch.Tensor:
    """A weight whose real numbers are moved by half a unit of their last place: what storing it costs."""
    if not tensor.is_floating_point():
        return tensor
    return to_torch(nudged(to_numpy(tensor))).to(tensor.device)


def name_of(kind: torch.dtype) -> str:
    """`float32`: what numpy and ml_dtypes call a type of torch."""
    return str(kind).removeprefix("torch.")
