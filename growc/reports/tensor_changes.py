"""The changes of each stored tensor between two models, read by chunks however large it is."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

import numpy as np

from growc.algebra.indexmap import Array
from growc.errors.progress import Progress, quiet
from growc.formats.stored_tensors import StoredTensor
from growc.ir.graph import wide

CHUNK = 2**18
"""Number of elements that are compared at once."""

LEAST = 16
"""Fewest elements of a tensor that is recognised by its bytes under another name; shorter ones may be equal
by chance.
"""

ChangeKind = Literal["new", "gone", "renamed", "resized", "retyped", "changed"]


@dataclass(frozen=True)
class TensorChange:
    """The change of one tensor.

    relative: ‖b − a‖/‖a‖ if both have the same sizes; None if it is not finite. was: its name or type in the
    first model, if it differs.
    """

    kind: ChangeKind
    name: str
    before: tuple[int, ...] | None = None
    after: tuple[int, ...] | None = None
    relative: float | None = None
    was: str = ""


def tensor_changes(
    before: Mapping[str, StoredTensor], after: Mapping[str, StoredTensor], progress: Progress = quiet
) -> Iterator[TensorChange]:
    """The changes of all tensors that are not equal in every byte, in the order of the first model."""
    renamed = dict(_renamed(before, after))
    for number, (name, old) in enumerate(before.items()):
        progress("comparing tensors", number, len(before))
        if name in after:
            yield from _change(old, after[name])
        elif name in renamed:
            yield TensorChange("renamed", renamed[name], old.shape, old.shape, was=name)
        else:
            yield TensorChange("gone", name, before=old.shape)
    new_names = set(renamed.values())
    for name, new in after.items():
        if name not in before and name not in new_names:
            yield TensorChange("new", name, after=new.shape)


def _change(old: StoredTensor, new: StoredTensor) -> Iterator[TensorChange]:
    if old.shape != new.shape:
        yield TensorChange("resized", new.name, old.shape, new.shape)
        return
    equal, relative = compared(old.read(), new.read())
    if old.dtype != new.dtype:
        yield TensorChange("retyped", new.name, old.shape, new.shape, relative, f"{old.dtype} to {new.dtype}")
    elif not equal:
        yield TensorChange("changed", new.name, old.shape, new.shape, relative)


def compared(a: Array, b: Array) -> tuple[bool, float | None]:
    """Whether two arrays of one shape have equal bytes, and ‖b − a‖/‖a‖; None if that is not finite."""
    if "O" in a.dtype.kind + b.dtype.kind:  # texts
        return bool(np.array_equal(a, b)), None
    equal, difference, size = a.dtype == b.dtype, 0.0, 0.0
    for one, other in zip(_chunks(a), _chunks(b), strict=True):
        if one.dtype == other.dtype and one.tobytes() == other.tobytes():
            size += _square(wide(one))
            continue
        equal = False
        with np.errstate(all="ignore"):
            size += _square(wide(one))
            difference += _square(wide(other) - wide(one))
    if equal:
        return True, 0.0
    relative = math.sqrt(difference) / math.sqrt(size) if size else math.inf if difference else 0.0
    return False, relative if math.isfinite(relative) else None


def _square(values: Array) -> float:
    with np.errstate(all="ignore"):
        return float(np.vdot(values, values).real)


def _chunks(array: Array) -> Iterator[Array]:
    flat = array.reshape(-1)
    for start in range(0, len(flat), CHUNK):
        yield flat[start : start + CHUNK]


def _renamed(before: Mapping[str, StoredTensor], after: Mapping[str, StoredTensor]) -> list[tuple[str, str]]:
    """Tensors of the first model alone with the bytes of one of the second model alone, each used once.

    Tensors of one number throughout, such as new biases and gains, are alike in all models: they are renamed
    only where others are.
    """
    lost = [tensor for name, tensor in before.items() if name not in after and tensor.elements >= LEAST]
    candidates: dict[object, list[StoredTensor]] = defaultdict(list)
    for name, tensor in after.items():
        if name not in before:
            candidates[tensor.dtype, tensor.shape].append(tensor)
    lost = [tensor for tensor in lost if candidates.get((tensor.dtype, tensor.shape))]
    digests: dict[object, list[str]] = defaultdict(list)
    for kind in dict.fromkeys((tensor.dtype, tensor.shape) for tensor in lost):
        for tensor in candidates[kind]:
            digests[kind, _digest(tensor)].append(tensor.name)
    renames: list[tuple[str, str]] = []
    telling = False
    for tensor in lost:
        matches = digests[(tensor.dtype, tensor.shape), _digest(tensor)]
        if matches:
            renames.append((tensor.name, matches.pop(0)))
            telling = telling or not _constant(tensor.read())
    return renames if telling else []


def _constant(values: Array) -> bool:
    """Whether all elements are one number."""
    first = values.reshape(-1)[:1]
    return all(bool((chunk == first).all()) for chunk in _chunks(values))


def _digest(tensor: StoredTensor) -> bytes:
    digest, values = blake2b(digest_size=16), tensor.read()
    if values.dtype.kind == "O":
        return repr(values.tolist()).encode()
    for chunk in _chunks(values):
        digest.update(chunk.tobytes())
    return digest.digest()
