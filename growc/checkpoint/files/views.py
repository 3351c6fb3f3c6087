"""Tensors that are parts of another tensor, such as those into which transformers splits all experts of a
layer.

This module finds which part each tensor is, and makes rows of the whole from the parts. A conversion is run
once on tensors without data: an output that is a view of an input is a part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from torch.overrides import TorchFunctionMode

from growc.algebra.indexmap import Array, Ints
from growc.plans.lazy_rows import Rows

if TYPE_CHECKING:
    import torch

Range = tuple[int, int]
"""The first place, and the place behind the last."""


class Uncopied(TorchFunctionMode):
    """A mode in which copies of a tensor are the tensor itself, to find where elements come from."""

    def __torch_function__(
        self,
        func: Callable[..., object],
        types: object,
        args: tuple[object, ...] = (),
        kwargs: Mapping[str, object] | None = None,
    ) -> object:
        if getattr(func, "__name__", "") in ("contiguous", "clone"):
            return args[0]
        return func(*args, **(kwargs or {}))


@dataclass(frozen=True)
class View:
    """A part of a tensor.

    ranges: along each axis of the whole. order: the whole's axes in the order in which the part has them;
    axes of length one are last.
    """

    name: str
    whole: str
    ranges: tuple[Range, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, rows: Array) -> Array:
        """The part, taken from the rows of the whole that contain it."""
        return rows[(slice(None), *self.rest)].transpose(self.order).reshape(self.shape)

    def turned(self, part: Array) -> Array:
        """The part with its axes as in those rows."""
        sizes = [end - start for start, end in self.ranges]
        return part.reshape([sizes[axis] for axis in self.order]).transpose(np.argsort(self.order))

    @property
    def rest(self) -> tuple[slice, ...]:
        """The place of the part in a row."""
        return tuple(slice(*axis_range) for axis_range in self.ranges[1:])


def views(
    results: Mapping[str, torch.Tensor], wholes: Mapping[str, torch.Tensor]
) -> dict[str, list[View]] | None:
    """For each of some tensors, its parts among the results; None if these do not cover it.

    results: those of a conversion. wholes: the tensors that went in. None of them has data.
    """
    names = {tensor.untyped_storage()._cdata: name for name, tensor in wholes.items()}
    parts_of: dict[str, list[View]] = {name: [] for name in wholes}
    for name, tensor in results.items():
        whole = names.get(tensor.untyped_storage()._cdata)
        view = None if whole is None else _view(name, tensor, whole, tuple(wholes[whole].shape))
        if view is None:
            return None
        parts_of[view.whole].append(view)
    covered = (sum(prod(v.shape) for v in parts) == wholes[name].numel() for name, parts in parts_of.items())
    return parts_of if all(covered) else None


def _view(name: str, part: torch.Tensor, whole: str, sizes: tuple[int, ...]) -> View | None:
    """The place of a view in a contiguous tensor; None if it is not one range along each axis."""
    strides = _strides(sizes)
    starts, offset = [], part.storage_offset()
    for stride in strides:
        starts.append(offset // max(1, stride))
        offset %= max(1, stride)
    lengths, order = [1] * len(sizes), list[int]()
    for size, stride in zip(part.shape, part.stride(), strict=True):
        if size == 1:
            continue
        axes = [a for a in range(len(sizes)) if strides[a] == stride and sizes[a] > 1 and a not in order]
        if not axes or starts[axes[0]] + size > sizes[axes[0]]:
            return None
        lengths[axes[0]] = size
        order.append(axes[0])
    order += [axis for axis in range(len(sizes)) if axis not in order]
    ranges = tuple((start, start + length) for start, length in zip(starts, lengths, strict=True))
    return View(name, whole, ranges, tuple(order), tuple(part.shape))


@lru_cache
def _strides(sizes: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(prod(sizes[axis + 1 :]) for axis in range(len(sizes)))


def together(parts: Iterable[View]) -> list[list[View]]:
    """Parts grouped by the rows and the tensor that contain them."""
    groups: dict[tuple[str, Range], list[View]] = defaultdict(list)
    for view in parts:
        groups[view.whole, view.ranges[0]].append(view)
    return list(groups.values())


def rows_of_parts(
    parts: Sequence[View], shape: tuple[int, ...], dtype: np.dtype[np.generic], read: Callable[[str], Array]
) -> Rows:
    """A tensor by its rows, put together of parts that `read` brings by name."""
    inside: dict[int, list[View]] = defaultdict(list)
    for view in parts:
        for row in range(*view.ranges[0]):
            inside[row].append(view)

    def compute(rows: Ints) -> Array:
        joined = np.empty((len(rows), *shape[1:]), dtype)
        arrays: dict[str, Array] = {}
        for place, row in enumerate(rows.tolist()):
            for view in inside[row]:
                if view.name not in arrays:
                    arrays[view.name] = view.turned(read(view.name))
                joined[place][view.rest] = arrays[view.name][row - view.ranges[0][0]]
        return joined

    return Rows(shape[0], shape[1:], dtype, compute)
