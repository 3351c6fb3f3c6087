"""Which files may be opened: regular ones, and of the names found inside a file, those that stay with it."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError, wrong

KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


def irregular(path: Path) -> str:
    """Why what stands at a path is no regular file (`a named pipe`); nothing where it is one or is not there.

    Nothing is opened: a named pipe would wait for its other end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return next((kind for is_kind, kind in KINDS if is_kind(mode)), "")


def require_path(path: str | Path, role: str) -> None:
    """Raise GrowError (G200) for what is no path on any system."""
    if not isinstance(path, str | Path):
        raise wrong(f"{role} is no path: it is of type {type(path).__name__}")
    if "\0" in os.fspath(path):
        raise wrong(f"{role} is no path: there is a zero byte in it")


def first_line(error: BaseException) -> str:
    """The first line of what an error says; the system's own reason where it has one."""
    said = (error.strerror or "").lower() if isinstance(error, OSError) else ""
    lines = [line.strip() for line in (said or str(error)).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


@contextlib.contextmanager
def foreign(path: Path, kind: str, code: str = "G310") -> Iterator[None]:
    """The wall around every parser of a file from elsewhere: whatever it raises is a fault of the file.

    kind: what the file was to be (`an ONNX model`). Raises GrowError with this code, and before anything is
    opened where the path leads to no regular file.
    """
    if reason := irregular(path):
        raise GrowError(Diagnostic(code, f"`{path}` is {reason}, and no file"))
    try:
        yield
    except GrowError:
        raise
    except Exception as error:
        message = f"`{path}` cannot be read as {kind}: {first_line(error)}"
        raise GrowError(Diagnostic(code, message)) from error


def companion(owner: Path, name: str) -> Path:
    """The real path of the file that `owner` calls `name` and is made of, which need not be there.

    A model from elsewhere names no other file of this machine (`stays_with`). Raises GrowError (G310) for
    what lies outside, or is no regular file.
    """
    try:
        places = [Path(os.path.realpath(Path(folder, name))) for folder in _folders(owner)]
        place = next((p for p in places if p.exists()), places[0])
    except (OSError, ValueError) as error:  # too long, or with a zero byte
        raise _stray(owner, name, "which is no path") from error
    if not stays_with(owner, place):
        raise _stray(owner, name, "which lies outside of its folder")
    if kind := irregular(place):
        raise _stray(owner, name, f"which is {kind}")
    return place


def stays_with(owner: Path, place: Path) -> bool:
    """Whether a file or folder really lies in the folder of `owner`, or below it.

    That is its folder as it is named, and the one where it really stands: a cache of downloads keeps models
    and data as symbolic links to one folder.
    """
    real = os.path.realpath(place)
    return any(os.path.commonpath((folder, real)) == folder for folder in _folders(owner))


def _folders(owner: Path) -> list[str]:
    return [os.path.realpath(owner.parent), str(Path(os.path.realpath(owner)).parent)]


def _stray(owner: Path, name: str, reason: str) -> GrowError:
    message = f"`{owner}` names the file `{name}`, {reason}"
    remedy = "a file that belongs to a model stands in the model's folder"
    return GrowError(Diagnostic("G310", message, help=remedy))
