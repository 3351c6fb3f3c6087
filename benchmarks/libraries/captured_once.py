"""One capture for all statements that are asked of a model: torch.export takes most of the time.

growc makes a new result of the capture each time, and the judge compares it with the model itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from growc.checkpoint.classes import model as class_model
from growc.dialects.torch import model as torch_model
from growc.dialects.torch.capture.export import ExportedModule, export
from growc.errors.diagnostic import GrowError
from growc.modules import grow

HOLDERS = (class_model, torch_model, grow)
"""Modules of growc that capture."""


@contextmanager
def captured_once() -> Iterator[None]:
    """Captures of one module, or of one checkpoint, are made once for equal inputs and either mode."""
    known: dict[str, ExportedModule | GrowError] = {}

    def once(module: nn.Module, *given: Any, **others: Any) -> ExportedModule:
        key = repr(tree_map_only(Tensor, lambda t: (t.shape, t.dtype), (type(module), given, others)))
        if key not in known:
            try:
                known[key] = export(module, *given, **others)
            except GrowError as error:
                known[key] = error
        capture = known[key]
        if isinstance(capture, GrowError):
            raise capture
        return capture

    with ExitStack() as stack:
        for holder in HOLDERS:
            stack.enter_context(mock.patch.object(holder, "export", once))
        yield
