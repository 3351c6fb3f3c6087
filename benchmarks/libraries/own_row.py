"""One row of a table of models: what makes a model, what it is fed, and the axes that are asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any

import torch
from subjects import Feeds, Subject, bounded
from torch import nn


@dataclass(frozen=True)
class Noise:
    """An input of normal numbers."""

    shape: tuple[int, ...]


@dataclass(frozen=True)
class Tokens:
    """An input of whole numbers from 0 to below."""

    shape: tuple[int, ...]
    below: int


@dataclass(frozen=True)
class Same:
    """An input that is the same number everywhere, in both feeds."""

    shape: tuple[int, ...]
    value: Any


@dataclass(frozen=True)
class Made:
    """A call to be made later; its options may be such calls too. maker: `module:name`."""

    maker: str
    options: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[Any, ...] = ()

    def __call__(self) -> Any:
        """Make it."""
        module, name = self.maker.split(":")
        parts = [_made(part) for part in self.parts]
        return getattr(import_module(module), name)(*parts, **{k: _made(v) for k, v in self.options.items()})


@dataclass(frozen=True)
class Row:
    """One model.

    axes: what is asked for, decided from the model's code: channels where a convolution reads a space that
    is neither input nor output; else ffn and heads, those that there are; else hidden.
    prepare: what is done before the library is imported.
    """

    library: str
    name: str
    family: str
    axes: tuple[str, ...]
    model: Made
    feed: Mapping[str, Any]
    prepare: Callable[[], None] | None = None

    def subject(self) -> Subject:
        """The subject that is measured; nothing is made yet."""
        return Subject(self.library, self.name, self.family, partial(_make, self), self.axes)


def _made(value: Any) -> Any:
    return value() if isinstance(value, Made) else value


def _make(row: Row) -> tuple[nn.Module, Feeds]:
    if row.prepare is not None:
        row.prepare()
    torch.manual_seed(0)
    module = bounded(row.model()).eval()
    draw = torch.Generator().manual_seed(1)
    first, second = ({k: _drawn(v, draw) for k, v in row.feed.items()} for _ in range(2))
    return module, (first, second)


def _drawn(value: Any, draw: torch.Generator) -> Any:
    if isinstance(value, Noise):
        return torch.randn(value.shape, generator=draw)
    if isinstance(value, Tokens):
        return torch.randint(value.below, value.shape, generator=draw)
    if isinstance(value, Same):
        return torch.full(value.shape, value.value)
    return value
