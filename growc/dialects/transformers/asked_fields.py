"""Fields that a class asks its config for, and that the config lacks: the class takes values of its own then.

Needs: the building of a class. Gives: the path to each such field. Written into the config it counts, as any
other field does.
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

from growc.dialects.transformers.config.fields import Path

MODELS = "transformers.models."
"""Where the code of classes stands; what transformers itself asks for makes no sizes."""


@dataclass
class Asked:
    """Who asked for which name, in order."""

    names: list[tuple[PreTrainedConfig, str]] = field(default_factory=list)

    def paths(self, module: nn.Module) -> list[Path]:
        """Where the config of a module lacks them. Copies of a part of a config count as the part."""
        root = getattr(module, "config", None)
        parts = list(_parts(root)) if isinstance(root, PreTrainedConfig) else []
        found: dict[Path, None] = {}
        for asked, name in self.names:
            same = [path for path, part in parts if part is asked]
            for path in same or [path for path, part in parts if type(part) is type(asked)]:
                found[*path, name] = None
        return list(found)


def _parts(config: PreTrainedConfig, path: Path = ()) -> Iterator[tuple[Path, PreTrainedConfig]]:
    """A config and those in it, with their paths."""
    yield path, config
    for name, value in vars(config).items():
        if isinstance(value, PreTrainedConfig):
            yield from _parts(value, (*path, name))


@contextmanager
def asking() -> Iterator[Asked]:
    """What classes that are built meanwhile ask for, and do not find."""
    asked = Asked()

    def lacks(config: PreTrainedConfig, name: str) -> NoReturn:
        if sys._getframe(1).f_globals.get("__name__", "").startswith(MODELS) and not name.startswith("_"):
            asked.names.append((config, name))
        raise AttributeError(f"'{type(config).__name__}' object has no attribute '{name}'")

    with mock.patch.object(PreTrainedConfig, "__getattr__", lacks, create=True):
        yield asked
