"""Tracking of in-place writes at run time: the current value of each tensor, and of its views.

growc.dialects.torch.capture.functionalize does the same for a captured graph. The operators that compute the
new values run in place of the write.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from growc.dialects.torch.capture.functionalize import (
    NotFunctionalError,
    put_back,
    put_part,
    spelt_out,
    without_write,
)

aten = torch.ops.aten


@dataclass
class _View:
    """A view: the call that took it, its source, and the source's value at that time.

    part: the number of the part, if the call gave several.
    """

    func: Any
    args: Any
    kwargs: Any
    source: Tensor
    taken: Tensor
    parts: Any = None
    part: int = 0


class WriteTracker:
    """Tensors that were written to. kept: tensors to which writes stay, such as running statistics."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.kept: set[Tensor] = set()
        self.value: dict[Tensor, Tensor] = {}
        self.views: dict[Tensor, _View] = {}

    def now(self, tensor: Tensor) -> Tensor:
        """Return the current value of a tensor. A view is taken again if its source was written to."""
        current = self.value.get(tensor, tensor)
        view = self.views.get(tensor)
        if view is None:
            return current
        source = self.now(view.source)
        if source is view.taken:
            return current
        with self.mode:
            output = view.func(source, *view.args[1:], **view.kwargs)
        view.taken = source
        return self._keep(tensor, output if view.parts is None else output[view.part])

    def saw(self, func: Any, args: Any, kwargs: Any, result: Any) -> None:
        """Record the views that a non-writing operator has made."""
        first = next(iter(func._schema.arguments), None)
        if first is None or first.alias_info is None or not args or not isinstance(args[0], Tensor):
            return
        parts = list(result) if isinstance(result, list | tuple) else [result]
        for number, part in enumerate(parts):
            if part is not args[0] and _memory(part) == _memory(args[0]):
                several = result if isinstance(result, list | tuple) else None
                taken = self.now(args[0])
                self.views[part] = _View(func, args, kwargs, args[0], taken, several, number)

    def write(self, func: Any, args: Any, kwargs: Any) -> bool:
        """Replace a write to the first argument by new values. Return False if no operators give them."""
        targets = [a for a in func._schema.arguments if a.alias_info and a.alias_info.is_write]
        if len(targets) != 1 or not args or not isinstance(args[0], Tensor):
            return False
        if targets[0] is not func._schema.arguments[0] or self._root(args[0]) in self.kept:
            return False
        try:
            for view in self._chain(args[0]):
                _put(view, args[0], args[0])
            self._written(args[0], self._as_written(func, args, kwargs))
        except NotFunctionalError:
            return False
        return True

    def _as_written(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """Return the value after a write, in the shape and dtype of the tensor that is written to."""
        operands, options = tree_map_only(Tensor, self.now, (args, kwargs))
        before = args[0]
        with self.mode:
            if func is aten.copy_.default:
                value = operands[1]
                value = value if value.shape == before.shape else aten.expand_as.default(value, before)
            else:
                value = without_write(func)(*spelt_out(func, operands, options), **options)
            value = value if value.dtype == before.dtype else aten.to.dtype(value, before.dtype)
        assert isinstance(value, Tensor), "a write leaves one value"
        return value

    def _written(self, tensor: Tensor, value: Tensor) -> None:
        self._keep(tensor, value)
        view = self.views.get(tensor)
        if view is not None:
            target, args = _put(view, self.now(view.source), value)
            with self.mode:
                whole = target(*args)
            self._written(view.source, whole)
            view.taken = self.now(view.source)

    def _keep(self, tensor: Tensor, value: Tensor) -> Tensor:
        self.value[tensor] = value
        return value

    def _chain(self, tensor: Tensor) -> list[_View]:
        """Return the views from a tensor down to its base."""
        views = []
        while tensor in self.views:
            views.append(self.views[tensor])
            tensor = views[-1].source
        return views

    def _root(self, tensor: Tensor) -> Tensor:
        chain = self._chain(tensor)
        return chain[-1].source if chain else tensor


def _put(view: _View, shown: Tensor, value: Tensor) -> Any:
    """Return the operator that puts a view's value back, with its arguments. Raises NotFunctionalError."""
    if view.parts is None:
        return put_back(view.func, view.args[1:], shown, value)
    return put_part(view.func, (view.args, view.kwargs), view.parts, view.part, shown, value)


def _memory(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata if isinstance(tensor, Tensor) else None
