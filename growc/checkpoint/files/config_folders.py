"""Folders of weights whose config is in another folder, as for a distributed checkpoint."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from pathlib import Path

_homes: ContextVar[Mapping[Path, Path] | None] = ContextVar("homes", default=None)


@contextlib.contextmanager
def described_in(weights: Path, home: Path | None) -> Iterator[None]:
    """In this context, the config and the other files of a folder of weights are in the folder `home`."""
    token = _homes.set({**(_homes.get() or {}), **({} if home is None else {weights: home})})
    try:
        yield
    finally:
        _homes.reset(token)


def home_of(path: Path) -> Path:
    """The folder with the config of a folder of weights: by default, that folder itself."""
    return (_homes.get() or {}).get(path, path)
