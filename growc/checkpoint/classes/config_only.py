"""A config.json without weights: the class that it names, and the sizes of weights whose values are
unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from growc.algebra.indexmap import Array
from growc.checkpoint.classes.class_weights import ClassWeights, first_names
from growc.checkpoint.files.directory import read_json
from growc.checkpoint.files.safetensors_file import HeaderEntry
from growc.checkpoint.files.torch_tensors import entry_of
from growc.dialects.torch.operators.arrays import to_numpy
from growc.dialects.transformers.classes import build, require_bounded
from growc.errors.diagnostic import Diagnostic, GrowError

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class ConfigOnly(ClassWeights):
    """A class without weights. Only tensors that it computes from the config, and whole numbers, have
    values.
    """

    remark = "planned without weights: equal values, which growc keeps equal, are not seen"

    @staticmethod
    def open(path: Path) -> ConfigOnly:
        """The class of a config.json. Raises GrowError (G309, G310) if it names no class that can be
        built.
        """
        config = read_json(path)
        require_bounded(build(config), ())
        module = build(config, constants=True)
        return ConfigOnly(module, first_names(module), config, build)

    @cached_property
    def tensors(self) -> Mapping[str, torch.Tensor]:
        """The class's state; tensors without values are on the meta device."""
        state: Mapping[str, torch.Tensor] = self.module.state_dict(keep_vars=True)
        return state

    def entry(self, name: str) -> HeaderEntry:
        """The entry that a file would have, in the element type that the config names."""
        entry = self._entries.get(name)
        if entry is None:
            entry = self._entries[name] = self._entry(name)
        return entry

    def _entry(self, name: str) -> HeaderEntry:
        import torch

        tensor = self.tensors[name]
        named = self.config.get("dtype") or self.config.get("torch_dtype")
        kind = getattr(torch, str(named), tensor.dtype) if tensor.is_floating_point() else tensor.dtype
        return entry_of(name, torch.empty(tensor.shape, dtype=kind, device="meta"))

    @cached_property
    def _entries(self) -> dict[str, HeaderEntry]:
        """Entries that were asked for, by name."""
        return {}

    def has(self, name: str) -> bool:
        """Whether a tensor is a whole number, which no training changes."""
        tensor = self.tensors[name]
        return not tensor.is_meta and not tensor.is_floating_point()

    def read(self, name: str) -> Array:
        """One tensor with values. Raises GrowError (G310) for a weight."""
        if not self.has(name):
            message = f"the values of `{name}` are not known: a config.json says sizes alone"
            raise GrowError(Diagnostic("G310", message, help="name the directory that holds the weights"))
        return to_numpy(self.tensors[name])
