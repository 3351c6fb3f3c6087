"""Writes as they run, taken as new values: what a tensor has become, and what its views show by then.

It is what growc.dialects.torch.capture.functionalize does to a captured graph. The operators that give the
new values run in the place of the write.
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
    """What takes a view; what it is taken from, and the value of that when it was; which of several parts."""

    func: Any
    args: Any
    kwargs: Any
    source: Tensor
    taken: Tensor
    parts: Any = None
    part: int = 0


class Written:
    """Tensors that were written to. kept: tensors for which writes stay: running statistics."""

    def __init__(self, mode: Any) -> None:
        self.mode = mode
        self.kept: set[Tensor] = set()
        self.value: dict[Tensor, Tensor] = {}
        self.views: dict[Tensor, _View] = {}

    def now(self, tensor: Tensor) -> Tensor:
        """What a tensor has become: a view of what was written to is taken again."""
        held = self.value.get(tensor, tensor)
        view = self.views.get(tensor)
        if view is None:
            return held
        source = self.now(view.source)
        if source is view.taken:
            return held
        with self.mode:
            made = view.func(source, *view.args[1:], **view.kwargs)
        view.taken = source
        return self._keep(tensor, made if view.parts is None else made[view.part])

    def saw(self, func: Any, args: Any, kwargs: Any, made: Any) -> None:
        """An operator that writes nothing: it may have made views."""
        first = next(iter(func._schema.arguments), None)
        if first is None or first.alias_info is None or not args or not isinstance(args[0], Tensor):
            return
        parts = list(made) if isinstance(made, list | tuple) else [made]
        for number, part in enumerate(parts):
            if part is not args[0] and _memory(part) == _memory(args[0]):
                several = made if isinstance(made, list | tuple) else None
                taken = self.now(args[0])
                self.views[part] = _View(func, args, kwargs, args[0], taken, several, number)

    def write(self, func: Any, args: Any, kwargs: Any) -> bool:
        """An operator that writes to its first argument, as new values; False where none give them."""
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
        """The value that a write leaves behind, of the size and type that were there."""
        given, named = tree_map_only(Tensor, self.now, (args, kwargs))
        before = args[0]
        with self.mode:
            if func is aten.copy_.default:
                value = given[1]
                value = value if value.shape == before.shape else aten.expand_as.default(value, before)
            else:
                value = without_write(func)(*spelt_out(func, given, named), **named)
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
        """The views from a tensor down to what is no view."""
        found = []
        while tensor in self.views:
            found.append(self.views[tensor])
            tensor = found[-1].source
        return found

    def _root(self, tensor: Tensor) -> Tensor:
        chain = self._chain(tensor)
        return chain[-1].source if chain else tensor


def _put(view: _View, shown: Tensor, value: Tensor) -> Any:
    """The operator that puts a view's value back, with its arguments. Raises NotFunctionalError."""
    if view.parts is None:
        return put_back(view.func, view.args[1:], shown, value)
    return put_part(view.func, (view.args, view.kwargs), view.parts, view.part, shown, value)


def _memory(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata if isinstance(tensor, Tensor) else None
