"""Check which files may be opened: regular ones, and of names inside a file, only those in its own folder."""

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
    """The kind of a path that is no regular file (`a named pipe`); empty if it is one or does not exist.

    The path is not opened: a named pipe would wait for its other end.
    """
    try:
        mode = path.stat().st_mode
    except (OSError, ValueError):
        return ""
    return next((kind for is_kind, kind in KINDS if is_kind(mode)), "")


def require_path(path: str | Path, role: str) -> None:
    """Raise GrowError (G200) for a value that is no path on any system."""
    if not isinstance(path, str | Path):
        raise wrong(f"{role} is no path: it is of type {type(path).__name__}")
    if "\0" in os.fspath(path):
        raise wrong(f"{role} is no path: there is a zero byte in it")


def first_line(error: BaseException) -> str:
    """The first line of an error's message; for an error of the system, its reason."""
    reason = (error.strerror or "").lower() if isinstance(error, OSError) else ""
    lines = [line.strip() for line in (reason or str(error)).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def root_cause(error: BaseException) -> BaseException:
    """The error that led to an error, and to all errors between them. Libraries wrap it in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    return error


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error, and the errors that it was raised from or behind, the latest first."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def own_cause(error: BaseException) -> GrowError | None:
    """The first of growc's errors that a library wrapped in an error of its own."""
    return next((cause for cause in causes(error) if isinstance(cause, GrowError)), None)


@contextlib.contextmanager
def parsing_foreign_file(path: Path, kind: str, code: str = "G310") -> Iterator[None]:
    """In this context, every exception of a parser of a foreign file becomes a GrowError about the file.

    kind: the expected kind of file (`an ONNX model`). Raises GrowError with this code, and does so before
    anything is opened if the path leads to no regular file.
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
    """The real path of a file that `owner` names as a part of it; the file need not exist.

    A foreign model must not name other files of this machine (see `stays_with`). Raises GrowError (G310) for
    a path outside of the folder, or one that is no regular file.
    """
    try:
        places = [Path(os.path.realpath(Path(folder, name))) for folder in _folders(owner)]
        place = next((p for p in places if p.exists()), places[0])
    except (OSError, ValueError) as error:  # the name is too long or has a zero byte
        raise _stray(owner, name, "which is no path") from error
    if not stays_with(owner, place):
        raise _stray(owner, name, "which lies outside of its folder")
    if kind := irregular(place):
        raise _stray(owner, name, f"which is {kind}")
    return place


def stays_with(owner: Path, place: Path) -> bool:
    """Whether a file or folder really is in the folder of `owner`, or below it.

    Both the folder as named and its real folder count: a cache of downloads keeps models and data as symbolic
    links to one folder.
    """
    real = os.path.realpath(place)
    return any(os.path.commonpath((folder, real)) == folder for folder in _folders(owner))


def _folders(owner: Path) -> list[str]:
    return [os.path.realpath(owner.parent), str(Path(os.path.realpath(owner)).parent)]


def _stray(owner: Path, name: str, reason: str) -> GrowError:
    message = f"`{owner}` names the file `{name}`, {reason}"
    remedy = "a file that belongs to a model stands in the model's folder"
    return GrowError(Diagnostic("G310", message, help=remedy))
