"""A checkpoint with the class that its config names; its tensors have the names of the class."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.class_weights import ClassWeights
from growc.checkpoint.files.directory import Checkpoint, config_of
from growc.checkpoint.files.key_mapping import ModuleNames
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.dialects.transformers.config.shapes import same_tensors
from growc.errors.diagnostic import Diagnostic, GrowError

if TYPE_CHECKING:
    from torch import nn

    from growc.plans.lazy_rows import Rows


@dataclass(frozen=True)
class CheckpointOnDisk(ClassWeights):
    """A checkpoint that its class can read. The values of `stored` are names of the file."""

    checkpoint: Checkpoint
    names: ModuleNames

    @staticmethod
    def open(path: Path) -> CheckpointOnDisk:
        """Open a directory. Raises GrowError (G309, G310) if it is not what its class loads."""
        from growc.dialects.transformers.classes import build, require_bounded
        from growc.dialects.transformers.computed_parameters import unstored

        module = build(config_of(path))  # on meta until its sizes match the file's
        checkpoint = Checkpoint.open(path, module.state_dict())
        entries = {name: tensor.entry for name, tensor in checkpoint.tensors.items()}
        names = ModuleNames(module, entries, checkpoint.read)
        lacking = [
            n
            for tied in same_tensors(module)
            if not any(name in names.entries for name in tied)
            for n in tied
        ]
        require_bounded(module, lacking)
        computed = unstored(module, lacking)
        computing = partial(build, unstored=computed)
        stored = _stored(path, computing(checkpoint.config) if computed else module, names)
        module = computing(checkpoint.config, constants=True)
        return CheckpointOnDisk(module, stored, checkpoint.config, computing, checkpoint, names)

    def entry(self, name: str) -> HeaderEntry:
        """Name, element type and shape as the file states them."""
        return self.names.entries[self.stored[name]]

    def read(self, name: str) -> Array:
        """The tensor's values, from the file."""
        return self.names.read(self.stored[name])

    def rows(self, name: str) -> Rows | None:
        """The tensor's rows from the file, if the file has parts of it."""
        return self.names.rows(self.stored[name])


def _stored(path: Path, module: nn.Module, names: ModuleNames) -> dict[str, str]:
    state = module.state_dict()
    stored: dict[str, str] = {}
    for tied in same_tensors(module):
        present = [name for name in tied if name in names.entries]
        if not present:
            raise _no_model(path, module, f"there is no `{tied[0]}`")
        for name in present:
            if names.entries[name].shape != tuple(state[name].shape):
                sizes = f"{list(names.entries[name].shape)}, and the config says {list(state[name].shape)}"
                raise _no_model(path, module, f"`{name}` is {sizes}")
        first, *others = present
        elements = names.read(first).tobytes() if others else b""
        for name in others:
            if names.read(name).tobytes() != elements:
                raise _parted(path, first, name)
        stored |= dict.fromkeys(tied, first)
    return stored


def _no_model(path: Path, module: nn.Module, reason: str) -> GrowError:
    message = f"the weights in `{path}` are not those of a `{type(module).__name__}`: {reason}"
    return GrowError(Diagnostic("G310", message))


def _parted(path: Path, one: str, other: str) -> GrowError:
    message = f"the config in `{path}` ties `{one}` to `{other}`, and their values differ"
    remedy = "say in the config that they are not tied (`tie_word_embeddings`), as they are loaded"
    return GrowError(Diagnostic("G310", message, help=remedy))
