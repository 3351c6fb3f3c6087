"""Fields that a class reads from its config and does not find, so that it uses a default of its own.

The paths to these fields are recorded while a class is built. Once written into the config, such a field
takes effect like any other.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NoReturn
from unittest import mock

from torch import nn
from transformers import PreTrainedConfig

from growc.dialects.transformers.config.fields import FieldPath

MODELS = "transformers.models."
"""Package with the code of classes. Fields that other code of transformers asks for decide no sizes."""


@dataclass
class MissingFields:
    """The configs that were asked for missing fields, with the names, in order."""

    names: list[tuple[PreTrainedConfig, str]] = field(default_factory=list)

    def paths(self, module: nn.Module) -> list[FieldPath]:
        """Return the paths of the missing fields in a module's config.

        A copy of a sub-config counts as that sub-config.
        """
        root = getattr(module, "config", None)
        parts = list(_parts(root)) if isinstance(root, PreTrainedConfig) else []
        missing: dict[FieldPath, None] = {}
        for config, name in self.names:
            exact = [path for path, part in parts if part is config]
            for path in exact or [path for path, part in parts if type(part) is type(config)]:
                missing[*path, name] = None
        return list(missing)


def _parts(config: PreTrainedConfig, path: FieldPath = ()) -> Iterator[tuple[FieldPath, PreTrainedConfig]]:
    """Yield a config and its sub-configs, with their paths."""
    yield path, config
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            yield from _parts(value, (*path, name))


@contextmanager
def asking() -> Iterator[MissingFields]:
    """Record the missing fields that classes ask for inside the context."""
    missing = MissingFields()

    def lacks(config: PreTrainedConfig, name: str) -> NoReturn:
        if sys._getframe(1).f_globals.get("__name__", "").startswith(MODELS) and not name.startswith("_"):
            missing.names.append((config, name))
        raise AttributeError(f"'{type(config).__name__}' object has no attribute '{name}'")

    with mock.patch.object(PreTrainedConfig, "__getattr__", lacks, create=True):
        yield missing
