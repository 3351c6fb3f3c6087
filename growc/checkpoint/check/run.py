"""Run checkpoints by their classes, loaded as a user loads them.

Large checkpoints are run without being in memory as a whole: each weight is read when an operator takes it,
and then dropped.
"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import keystr, tree_flatten_with_path, tree_map

from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.directory import config_of, weight_files
from growc.checkpoint.files.distributed import Distributed
from growc.checkpoint.files.pieces import METADATA
from growc.checkpoint.files.quiet import quiet
from growc.checkpoint.files.torch_tensors import without_data
from growc.dialects.torch.lowering.lower import plain_name
from growc.dialects.torch.operators.arrays import moved, to_numpy, to_torch, widened
from growc.dialects.transformers.classes import class_of
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.regular_files import first_line
from growc.verification.ort_session import Feeds

if TYPE_CHECKING:
    from torch import nn
    from torch.distributed.checkpoint.metadata import Metadata
    from torch.distributed.checkpoint.storage import StorageReader

WHOLE = 1 << 29
"""Largest size in bytes of weights that are loaded as a whole."""


class Streaming(TorchFunctionMode):
    """A mode in which parameters of a module on meta are read from a checkpoint wherever they are used.

    typed: converts each stored tensor.
    """

    def __init__(self, opened: CheckpointOnDisk, typed: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._opened, self._typed = opened, typed
        state: Mapping[str, torch.Tensor] = opened.module.state_dict(keep_vars=True)
        self._names = {tensor: name for name, tensor in state.items()}
        for name, tensor in state.items():  # for code that asks for a type without an operator
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

    def _read(self, value: object) -> object:
        name = self._names.get(value) if isinstance(value, torch.Tensor) else None
        if name is None:
            return value
        return self._typed(to_torch(self._opened.read(name)))


@dataclass(frozen=True)
class Loaded:
    """A checkpoint that can be run, in evaluation mode.

    weights: a context in which it is run. If the weights stay on disk, the module is on meta.
    """

    module: nn.Module
    weights: contextlib.AbstractContextManager[Any] = field(default_factory=contextlib.nullcontext)

    @property
    def whole(self) -> bool:
        """Whether all weights are in memory."""
        return not isinstance(self.weights, Streaming)

    def run(self, inputs: Mapping[str, Any]) -> Feeds:
        """The outputs by name; 16-bit numbers become float32.

        Raises GrowError (G403) if torch cannot run the class.
        """
        try:
            with torch.no_grad(), self.weights:
                outputs = self.module(**self.fitting(inputs))
        except RuntimeError as error:
            message = f"torch cannot run `{type(self.module).__name__}`"
            remedy = "its kernels may need other sizes, as multiples of 8; `--no-verify` compares nothing"
            raise GrowError(Diagnostic("G403", message, notes=(first_line(error),), help=remedy)) from error
        leaves, _ = tree_flatten_with_path(outputs)
        return {
            plain_name(keystr(path)): to_numpy(widened(tensor))
            for path, tensor in leaves
            if isinstance(tensor, torch.Tensor)
        }

    def fitting(self, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """The inputs, with real numbers in the model's own element type."""
        kind = next((p.dtype for p in self.module.parameters() if p.is_floating_point()), torch.float32)
        return {
            name: value.to(kind) if isinstance(value, torch.Tensor) and value.is_floating_point() else value
            for name, value in inputs.items()
        }


def load(path: Path, kind: torch.dtype | None = None, *, moves: bool = False) -> Loaded:
    """A checkpoint loaded by its class, as it is stored or with all real numbers of another type.

    moves: move its weights by half a unit of the last place of their stored type. Raises GrowError: G403 if
    the class does not load it, G308 if tensors are missing or do not fit.
    """
    files = weight_files(path)
    if sum(file.stat().st_size for file in files) > WHOLE:
        opened = CheckpointOnDisk.open(path)
        return Loaded(opened.module, Streaming(opened, partial(_typed, kind=kind, moves=moves)))
    if path / METADATA in files:
        return Loaded(_retyped(_gathered(path), kind, moves=moves).eval())
    chosen: Any = class_of(config_of(path))
    try:
        with quiet():
            module, report = chosen.from_pretrained(
                path,
                dtype="auto" if moves or kind is None else kind,
                output_loading_info=True,
                local_files_only=True,
            )
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        message = f"`{chosen.__name__}` does not load `{path}`"
        raise GrowError(Diagnostic("G403", message, notes=(reason,))) from error
    for problem in ("missing_keys", "mismatched_keys", "error_msgs"):
        if keys := report.get(problem):
            message = f"`{chosen.__name__}` does not find all of its weights in `{path}`"
            raise GrowError(Diagnostic("G308", message, notes=(f"{problem}: {sorted(map(str, keys))[:3]}",)))
    return Loaded((_retyped(module, kind, moves=True) if moves else module).eval())


def _retyped(module: nn.Module, kind: torch.dtype | None, *, moves: bool) -> nn.Module:
    """A module with its weights moved, and in another element type."""
    for parameter in module.parameters() if moves else ():
        parameter.data = _typed(parameter.data, kind, moves=True)
    return module if kind is None else module.to(kind)


def _gathered(path: Path) -> nn.Module:
    """The class of a distributed checkpoint with its weights, as torch loads them into one process.

    Raises GrowError: G403 if torch does not load them, G310 if the files are no such checkpoint.
    """
    from torch.distributed.checkpoint.api import CheckpointException
    from torch.distributed.checkpoint.state_dict_loader import load

    config, saved = config_of(path), Distributed.open(path)
    chosen: Any = class_of(config)
    try:
        with quiet():
            module: nn.Module = chosen(chosen.config_class.from_dict(config))
        state = module.state_dict()
        prefix = saved.prefix_of(state)
        for name, tensor in saved.below(prefix).items():
            if name in state:
                state[name].data = state[name].to(without_data(tensor.entry).dtype)
        nested: dict[str, object] = reduce(lambda inner, word: {str(word): inner}, reversed(prefix), state)
        with warnings.catch_warnings(
            action="ignore", category=UserWarning
        ):  # torch warns that there is one process
            load(nested, storage_reader=_checked_reader(saved), no_dist=True)
        module.load_state_dict(state, assign=True)
    except GrowError:
        raise
    except (Exception, CheckpointException) as error:
        message = f"torch does not load `{path}` into `{chosen.__name__}`"
        raise GrowError(Diagnostic("G403", message, notes=(first_line(error),))) from error
    chosen.tie_weights(module)
    return module


def _typed(tensor: torch.Tensor, kind: torch.dtype | None, *, moves: bool) -> torch.Tensor:
    """A stored tensor, moved if asked, with real numbers in the given type if there is one."""
    if moves and tensor.device.type != "meta":
        tensor = moved(tensor)
    return tensor if kind is None or not tensor.is_floating_point() else tensor.to(kind)


def _checked_reader(saved: Distributed) -> StorageReader:
    """torch's reader of a folder with the checked metadata; its own reader would run code of the pickle."""
    from torch.distributed.checkpoint.filesystem import FileSystemReader

    from growc.checkpoint.files.distributed_metadata import as_torch_has_it

    metadata = as_torch_has_it(saved.tensors, saved.values, saved.paths)

    class Reader(FileSystemReader):
        def read_metadata(self, *_: object, **__: object) -> Metadata:
            return metadata

    return Reader(saved.folder)
