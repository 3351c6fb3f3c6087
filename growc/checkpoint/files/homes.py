"""Folders of weights whose config lies elsewhere, as that of a distributed checkpoint does."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

_homes: ContextVar[Mapping[Path, Path] | None] = ContextVar("homes", default=None)


@contextlib.contextmanager
def described_in(weights: Path, home: Path | None) -> Iterator[None]:
    """Meanwhile the config of a folder of weights, and the other files beside that, lie in another one."""
    token = _homes.set({**(_homes.get() or {}), **({} if home is None else {weights: home})})
    try:
        yield
    finally:
        _homes.reset(token)


def home_of(path: Path) -> Path:
    """The folder that has the config of a folder of weights: itself, where nothing else was said."""
    return (_homes.get() or {}).get(path, path)
