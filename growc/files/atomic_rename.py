"""Put a file or folder in place of another one atomically, and undo it."""

from __future__ import annotations

import ctypes
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from growc.system.workshop import synced

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def on_disk(draft: Path) -> None:
    """Wait until a file, or all contents of a folder, are on disk."""
    for path in _all(draft):
        synced(path)


def _all(draft: Path) -> tuple[Path, ...]:
    """A file, or a folder and all its contents."""
    return (draft, *draft.rglob("*")) if draft.is_dir() else (draft,)


def put(draft: Path, place: Path, aside: Path) -> Callable[[], object]:
    """Rename `draft` to `place`, and return a function that undoes it.

    The previous file or folder is then at `aside` or `draft`. Replaced files and folders keep their modes.
    """
    _keep_modes(draft, place)
    if draft.is_dir():
        return _put_folder(draft, place, aside)
    before = _kept(place, aside)
    draft.replace(place)

    def undo() -> None:
        place.unlink()
        if before is not None:
            shutil.move(before, place)

    return undo


def _put_folder(draft: Path, place: Path, aside: Path) -> Callable[[], object]:
    """Rename a folder to `place`. If the system can exchange two folders, `place` exists at every moment."""
    if not place.exists():
        draft.rename(place)
        return lambda: shutil.rmtree(place)
    if exchange(draft, place):
        return lambda: None if exchange(draft, place) else _replace(draft, place)
    place.rename(aside)
    try:
        draft.rename(place)
    except OSError:
        aside.rename(place)
        raise
    return lambda: _replace(aside, place)


def _replace(folder: Path, place: Path) -> None:
    shutil.rmtree(place)
    folder.rename(place)


def _keep_modes(draft: Path, place: Path) -> None:
    for path in _all(draft):
        before = place / path.relative_to(draft)
        if before.exists() and before.is_dir() == path.is_dir():
            path.chmod(stat.S_IMODE(before.stat().st_mode))


def exchange(one: Path, other: Path) -> bool:
    """Exchange two names (Linux's renameat2), and return whether the system could do it."""
    try:
        call = ctypes.CDLL(None, use_errno=True).renameat2
    except (AttributeError, OSError):
        return False
    names = os.fsencode(one), os.fsencode(other)
    return bool(call(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)


def _kept(place: Path, copy: Path) -> Path | None:
    """A second name for the file at a place; None if there is no file."""
    if not place.exists():
        return None
    try:
        os.link(place, copy)
    except OSError:
        shutil.copy2(place, copy)
    return copy
