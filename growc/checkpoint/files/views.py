"""Tensors that are parts of another one, as what transformers parts a joined tensor into (all experts of a
layer, say): which part each is, and the rows of the one by those of the others.

A conversion is run once on tensors without data: what comes out as a view of what went in is a part of it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

import numpy as np
from torch.overrides import TorchFunctionMode

from growc.algebra.indexmap import Array, Ints
from growc.plans.rows import Rows

if TYPE_CHECKING:
    import torch

Range = tuple[int, int]
"""The first place, and the one behind the last."""


class Uncopied(TorchFunctionMode):
    """While it is entered, a copy of a tensor is the tensor: only where its elements come from is asked."""

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
    """A part of a tensor. ranges: along each axis of that. order: its axes, in the order that the part has
    them; those with one place are last.
    """

    name: str
    whole: str
    ranges: tuple[Range, ...]
    order: tuple[int, ...]
    shape: tuple[int, ...]

    def of(self, rows: Array) -> Array:
        """The part, of those rows of the whole tensor that it lies in."""
        return rows[(slice(None), *self.rest)].transpose(self.order).reshape(self.shape)

    def turned(self, part: Array) -> Array:
        """The part as it lies in those rows."""
        sizes = [end - start for start, end in self.ranges]
        return part.reshape([sizes[axis] for axis in self.order]).transpose(np.argsort(self.order))

    @property
    def rest(self) -> tuple[slice, ...]:
        """Where in a row it lies."""
        return tuple(slice(*one) for one in self.ranges[1:])


def views(
    made: Mapping[str, torch.Tensor], wholes: Mapping[str, torch.Tensor]
) -> dict[str, list[View]] | None:
    """For each of some tensors, its parts among what was made of them; None where that is not all of it.

    The tensors have no data.
    """
    names = {tensor.untyped_storage()._cdata: name for name, tensor in wholes.items()}
    found: dict[str, list[View]] = {name: [] for name in wholes}
    for name, tensor in made.items():
        whole = names.get(tensor.untyped_storage()._cdata)
        view = None if whole is None else _view(name, tensor, whole, tuple(wholes[whole].shape))
        if view is None:
            return None
        found[view.whole].append(view)
    covered = (sum(prod(v.shape) for v in parts) == wholes[name].numel() for name, parts in found.items())
    return found if all(covered) else None


def _view(name: str, part: torch.Tensor, whole: str, sizes: tuple[int, ...]) -> View | None:
    """Where a view lies in a contiguous tensor; None where it is no range along each axis."""
    strides = [prod(sizes[axis + 1 :]) for axis in range(len(sizes))]
    starts, left = [], part.storage_offset()
    for stride in strides:
        starts.append(left // max(1, stride))
        left %= max(1, stride)
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


def together(parts: Iterable[View]) -> list[list[View]]:
    """Parts that lie in the same rows of the same tensor."""
    found: dict[tuple[str, Range], list[View]] = defaultdict(list)
    for view in parts:
        found[view.whole, view.ranges[0]].append(view)
    return list(found.values())


def rows_of_parts(
    parts: Sequence[View], shape: tuple[int, ...], dtype: np.dtype[np.generic], read: Callable[[str], Array]
) -> Rows:
    """A tensor by its rows, put together of parts that `read` brings by name."""
    inside: dict[int, list[View]] = defaultdict(list)
    for view in parts:
        for row in range(*view.ranges[0]):
            inside[row].append(view)

    def compute(rows: Ints) -> Array:
        made = np.empty((len(rows), *shape[1:]), dtype)
        arrays: dict[str, Array] = {}
        for place, row in enumerate(rows.tolist()):
            for view in inside[row]:
                if view.name not in arrays:
                    arrays[view.name] = view.turned(read(view.name))
                made[place][view.rest] = arrays[view.name][row - view.ranges[0][0]]
        return made

    return Rows(shape[0], shape[1:], dtype, compute)
