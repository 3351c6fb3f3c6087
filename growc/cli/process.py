"""The command line as a process: its streams, its signals, its memory, and reports of bugs."""

from __future__ import annotations

import atexit
import contextlib
import gc
import logging
import mmap
import os
import signal
import sys
import tempfile
import traceback
from collections.abc import Iterator, Sequence
from typing import NoReturn

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.interrupts import INTERRUPTS
from growc.version import __version__

try:
    import resource  # imported here, since imports fail if memory is short
except ImportError:  # some systems have no limits
    resource = None  # type: ignore[assignment]

SELDOM = 200_000
"""Number of new objects before a garbage collection; Python's default is 700. Imports and graphs make objects
that stay.
"""
SPARE = 1 << 24
"""Bytes of memory that are reserved, so that running out of memory can still be reported."""
CHAIN = 20
"""The most causes of an error that are examined."""


def prepare_process() -> None:
    """Make settings for growc as a whole process.

    Signals are ignored, so that one that comes after the command has ended changes nothing.
    """
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)  # `interruptible` restores these handlers
    gc.set_threshold(SELDOM)
    _open_streams()


def end_at_once(status: int) -> NoReturn:
    """End the process after its exit functions have run, without freeing every object first.

    Threads that torch.distributed leaves behind abort some processes that continue to the interpreter's end.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def spare_memory() -> mmap.mmap:
    """Memory that is freed when its block is left. Python code would need memory to free it, so this is no
    generator.
    """
    return mmap.mmap(-1, SPARE)


def _open_streams() -> None:
    """Open closed standard streams on the null device; otherwise the next opened file would receive their
    output.
    """
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # it gets the lowest free number
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


@contextlib.contextmanager
def no_loggers() -> Iterator[None]:
    """In this context, logs of libraries are dropped: users learn everything from diagnostics."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def last_words() -> Iterator[None]:
    """In this context, output that cannot be printed is dropped; otherwise the interpreter retries at its
    end, and fails.
    """
    try:
        yield
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def refused(error: OSError) -> GrowError:
    """The error for a refusal of the system."""
    path = f" `{error.filename}`" if error.filename else ""
    message = f"the system refused{path}: {(error.strerror or str(error)).lower()}"
    return GrowError(Diagnostic("G502", message))


def unexpected(error: Exception, arguments: Sequence[str]) -> GrowError:
    """The error for an unexpected exception of a command.

    It is lack of memory, a refusal of the system that a library wraps in its own error, or a bug. A bug is
    reported in a file.
    """
    if _starved(error):
        remedy = "a machine with more, or a higher `ulimit -v`; `--memory` bounds what writing takes"
        return GrowError(Diagnostic("G502", "there is not enough memory", help=remedy))
    if isinstance(cause := error.__cause__, OSError):
        return refused(cause)
    with tempfile.NamedTemporaryFile("w", prefix="growc-report-", suffix=".txt", delete=False) as file:
        file.write(f"growc {__version__}\narguments: {list(arguments)}\n\n")
        file.write("".join(traceback.format_exception(error)))
    message = f"this is a bug in growc ({type(error).__name__}); the report is in {file.name}"
    return GrowError(Diagnostic("G900", message))


def _starved(error: BaseException | None) -> bool:
    """Whether memory ran out. If memory is limited, imports and threads fail with errors of their own."""
    possible_kinds = (MemoryError, SystemError, ImportError, RuntimeError)  # RuntimeError: threads
    kinds = possible_kinds if _is_limited() else (MemoryError,)
    for _ in range(CHAIN):
        if error is None or isinstance(error, kinds):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, kinds)


def _is_limited() -> bool:
    """Whether the address space of this process is limited, by `ulimit -v`."""
    return resource is not None and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
