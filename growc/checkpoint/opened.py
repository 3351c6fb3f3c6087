"""A checkpoint with the class that its config names: its tensors by the names of the class."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from growc.checkpoint.directory import Checkpoint
from growc.checkpoint.names import ModuleNames
from growc.checkpoint.torchtensors import to_torch
from growc.diagnostic import Diagnostic, GrowError
from growc.graph import Array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Opened:
    """A checkpoint that can be read by its class.

    module: on meta. stored: for every name of the class's state, the one of the same tensor that the file
    has.
    """

    checkpoint: Checkpoint
    module: Any
    names: ModuleNames
    stored: Mapping[str, str]

    @staticmethod
    def open(path: Path) -> Opened:
        """Raises GrowError (G309, G310) where the directory is not what its class loads."""
        from growc.dialects.torch.classes import build

        checkpoint = Checkpoint.open(path)
        module = build(checkpoint.config, constants=True)
        entries = {name: tensor.entry for name, tensor in checkpoint.tensors.items()}
        names = ModuleNames(module, entries, checkpoint.read)
        return Opened(checkpoint, module, names, _stored(path, module, names))

    @cached_property
    def first(self) -> dict[str, str]:
        """For every name of a tensor of the state, the first of its names."""
        return {name: same[0] for same in same_tensors(self.module) for name in same}

    def read(self, name: str) -> Array:
        """One tensor of the class's state, by any of its names, as it is stored."""
        return self.names.read(self.stored[name])

    def tensor(self, name: str) -> torch.Tensor:
        """The same for a class that computes in single precision."""
        found = to_torch(self.read(name))
        return found.float() if found.is_floating_point() and found.itemsize < 4 else found


def same_tensors(module: Any) -> list[list[str]]:
    """The names of each tensor of a module's state."""
    found: dict[int, list[str]] = {}
    for name, tensor in module.state_dict(keep_vars=True).items():
        found.setdefault(id(tensor), []).append(name)
    return list(found.values())


def _stored(path: Path, module: Any, names: ModuleNames) -> dict[str, str]:
    state = module.state_dict()
    found: dict[str, str] = {}
    for same in same_tensors(module):
        there = [name for name in same if name in names.entries]
        if not there:
            raise _no_model(path, module, f"there is no `{same[0]}`")
        for name in there:
            if names.entries[name].shape != tuple(state[name].shape):
                sizes = f"{list(names.entries[name].shape)}, and the config says {list(state[name].shape)}"
                raise _no_model(path, module, f"`{name}` is {sizes}")
        first = names.read(there[0]) if len(there) > 1 else None
        for name in there[1:]:
            if names.read(name).tobytes() != first.tobytes():  # type: ignore[union-attr]
                raise _parted(path, there[0], name)
        found |= dict.fromkeys(same, there[0])
    return found


def _no_model(path: Path, module: Any, reason: str) -> GrowError:
    message = f"the weights in `{path}` are not those of a `{type(module).__name__}`: {reason}"
    return GrowError(Diagnostic("G310", message))


def _parted(path: Path, one: str, other: str) -> GrowError:
    message = f"the config in `{path}` ties `{one}` to `{other}`, and their values differ"
    remedy = "say in the config that they are not tied (`tie_word_embeddings`), as they are loaded"
    return GrowError(Diagnostic("G310", message, help=remedy))
