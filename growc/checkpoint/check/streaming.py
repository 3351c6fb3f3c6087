"""Running a class whose weights stay on disk: each is read when an operator takes it, then dropped."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_map

from growc.checkpoint.classes.on_disk import Opened
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.operators.arrays import to_torch


class Streaming(TorchFunctionMode):
    """While it is entered, parameters of a module on meta are those of a checkpoint wherever they are used.

    typed: what is made of each stored tensor.
    """

    def __init__(self, opened: Opened, typed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._opened, self._typed = opened, typed
        state: Mapping[str, torch.Tensor] = opened.module.state_dict(keep_vars=True)
        self._names = {tensor: name for name, tensor in state.items()}
        for name, tensor in state.items():  # what asks for a type without an operator sees the stored one
            tensor.data = self._typed(without_data(opened.names.entries[opened.stored[name]]))

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        args, named = tree_map(self._read, (args, dict(kwargs or {})))
        return func(*args, **named)

    def _read(self, given: Any) -> Any:
        name = self._names.get(given) if isinstance(given, torch.Tensor) else None
        if name is None:
            return given
        return self._typed(to_torch(self._opened.read(name)))
