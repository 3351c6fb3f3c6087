"""Sources that somebody writes to while growc reads them: the run says so, whatever else it found.

A file is known by its device, inode, size and time of change. One that is replaced by a rename counts as
changed, too: the files are opened several times, and verification runs the source as it stands by then.
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

from growc.distinct import Part
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.workshop import forsaken

Identity = tuple[int, ...] | None
"""What tells a file from what it was before; None where there is none."""


@contextlib.contextmanager
def unchanged(parts: Iterable[Part]) -> Iterator[Callable[[], None]]:
    """Watch what a run reads. Raises GrowError (G325) in place of an error where one of `parts` changed.

    Gives what raises it where all went well, to be called before anything is committed.
    """
    before = {part.path: (part, _identity(part.path)) for part in parts}

    def changed() -> GrowError | None:
        for part, identity in before.values():
            now = _identity(part.path)
            if identity is not None and now != identity:
                how = "changed" if now is not None else "was removed"
                message = f"`{part.path}`, {part.role}, {how} while growc read it"
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


def identities(parts: Iterable[Part]) -> list[tuple[str, Identity]]:
    """What tells files, and what is in them, from all others."""
    return [(str(part.path), _identity(part.path)) for part in parts]


def _identity(path: Path) -> Identity:
    """Of a folder only which one it is: its files are watched themselves."""
    with contextlib.suppress(OSError, ValueError):
        found = path.stat()
        place = found.st_dev, found.st_ino
        return place if path.is_dir() else (*place, found.st_size, found.st_mtime_ns)
    return None


@contextlib.contextmanager
def _cut_short(changed: Callable[[], GrowError | None]) -> Iterator[None]:
    """While sources are mapped: to read behind the new end of one kills a process (SIGBUS) without a word.

    Python's own handlers of signals run too late for this one. One of the C library says what happened and
    ends the process. It is left alone where another one stands or a thread runs growc.
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
        forsaken()
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
