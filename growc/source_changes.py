"""Detect sources that change while growc reads them; the run then reports this instead of any other error.

A file is identified by its device, inode, size and time of change. A file replaced by a rename counts as
changed, too: growc opens files several times, and verification runs the source as it is then.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.file_roles import NamedPath
from growc.system.workshop import remove_own_folders

Identity = tuple[int, ...] | None
"""The identity of a file's state; None if there is no file."""


@contextlib.contextmanager
def unchanged(parts: Iterable[NamedPath]) -> Iterator[Callable[[], None]]:
    """Watch the files that a run reads.

    If one of `parts` changed, GrowError (G325) is raised in place of an error. Yields a function that raises
    it after a run without errors, to be called before a commit.
    """
    before = {part.path: (part, _identity(part.path)) for part in parts}

    def changed() -> GrowError | None:
        for part, identity in before.values():
            current = _identity(part.path)
            if identity is not None and current != identity:
                event = "changed" if current is not None else "was removed"
                message = f"`{part.path}`, {part.role}, {event} while growc read it"
                remedy = "run it again once nothing writes to that file"
                return GrowError(Diagnostic("G325", message, help=remedy))
        return None

    def require() -> None:
        if (error := changed()) is not None:
            raise error

    with _cut_short(changed):
        try:
            yield require
        except Exception as error:
            if (reason := changed()) is not None:
                raise reason from error
            raise


def identities(parts: Iterable[NamedPath]) -> list[tuple[str, Identity]]:
    """Each path with the identity of its file's state."""
    return [(str(part.path), _identity(part.path)) for part in parts]


def _identity(path: Path) -> Identity:
    """The identity of a path; for a folder only its device and inode, since its files are watched
    themselves.
    """
    with contextlib.suppress(OSError, ValueError):
        stats = path.stat()
        place = stats.st_dev, stats.st_ino
        return place if path.is_dir() else (*place, stats.st_size, stats.st_mtime_ns)
    return None


@contextlib.contextmanager
def _cut_short(changed: Callable[[], GrowError | None]) -> Iterator[None]:
    """In this context, a source that is cut short does not kill the process (SIGBUS) without a message.

    SIGBUS is sent when mapped memory behind the new end of a file is read. Python's own signal handlers run
    too late for it. A handler of the C library prints the error and ends the process. It is not installed if
    there is another handler, or if a thread runs growc.
    """
    number = getattr(signal, "SIGBUS", None)
    if number is None or threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(_: int) -> None:
        error = changed()
        if error is None:
            message = "the system could not read a source: its disk or its network failed"
            error = GrowError(Diagnostic("G502", message))
        remove_own_folders()
        os.write(sys.stderr.fileno(), f"{error}\n".encode())
        os._exit(error.exit_status)

    handler = ctypes.CFUNCTYPE(None, ctypes.c_int)(end)
    install = ctypes.CDLL(None).signal
    install.restype, install.argtypes = ctypes.c_void_p, (ctypes.c_int, ctypes.c_void_p)
    before = install(number, ctypes.cast(handler, ctypes.c_void_p))
    if before:
        install(number, before)
    try:
        yield
    finally:
        if not before:
            install(number, None)
