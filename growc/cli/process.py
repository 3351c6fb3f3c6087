"""The command line as a process: its streams, its signals, its memory, and what is left of a bug."""

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

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.interrupts import INTERRUPTS
from growc.version import __version__

try:
    import resource  # here, for an import fails where memory is short
except ImportError:  # not all systems have limits
    resource = None  # type: ignore[assignment]

SELDOM = 20_000
"""So many new objects before a collection, where Python says 700: imports and graphs make live ones."""
SPARE = 1 << 24
"""Bytes that no command has, so that it can be told that it ran out of memory."""
CHAIN = 20
"""So many causes of an error are looked at."""


@contextlib.contextmanager
def own_process() -> Iterator[None]:
    """While growc is the whole process: a signal that comes once the command has ended changes nothing."""
    for number in INTERRUPTS:
        signal.signal(number, signal.SIG_IGN)  # what `interruptible` puts back
    gc.set_threshold(SELDOM)
    _open_streams()
    yield
    gc.freeze()  # the interpreter's last collection looks at everything that was imported


def end_at_once(status: int) -> None:
    """End the process, once what is to run at its end has run: threads that torch.distributed leaves behind
    abort some that go on to the interpreter's end.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    os._exit(status)


def spare_memory() -> mmap.mmap:
    """Memory that is given back when its block is left; no code of Python, which takes some, does that."""
    return mmap.mmap(-1, SPARE)


def _open_streams() -> None:
    """Streams that are closed lead nowhere: else the next file opened would take what they are sent."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    sys.stdin = sys.stdin or os.fdopen(0, closefd=False)
    sys.stdout = sys.stdout or os.fdopen(1, "w", closefd=False)
    sys.stderr = sys.stderr or os.fdopen(2, "w", closefd=False)


@contextlib.contextmanager
def no_loggers() -> Iterator[None]:
    """What libraries log is for programs: none of it reaches a person, whom diagnostics tell all."""
    handler = logging.NullHandler()
    logging.getLogger().addHandler(handler)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(handler)


@contextlib.contextmanager
def last_words() -> Iterator[None]:
    """What cannot be printed is given up: else the interpreter tries again when it ends, and fails."""
    try:
        yield
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise


def refused(error: OSError) -> GrowError:
    """What the system did not do."""
    place = f" `{error.filename}`" if error.filename else ""
    message = f"the system refused{place}: {(error.strerror or str(error)).lower()}"
    return GrowError(Diagnostic("G502", message))


def unexpected(error: Exception, given: Sequence[str]) -> GrowError:
    """What a command that must not raise raised: too little memory, what the system refused to a library that
    says so in an error of its own, or a bug, told in a file of its own.
    """
    if _starved(error):
        remedy = "a machine with more, or a higher `ulimit -v`; `--memory` bounds what writing takes"
        return GrowError(Diagnostic("G502", "there is not enough memory", help=remedy))
    if isinstance(cause := error.__cause__, OSError):
        return refused(cause)
    with tempfile.NamedTemporaryFile("w", prefix="growc-report-", suffix=".txt", delete=False) as file:
        file.write(f"growc {__version__}\narguments: {list(given)}\n\n")
        file.write("".join(traceback.format_exception(error)))
    message = f"this is a bug in growc ({type(error).__name__}); the report is in {file.name}"
    return GrowError(Diagnostic("G900", message))


def _starved(error: BaseException | None) -> bool:
    """Whether there was too little memory: where it is limited, imports and threads fail in their ways."""
    several = (MemoryError, SystemError, ImportError, RuntimeError)  # the last one for threads
    kinds = several if _is_limited() else (MemoryError,)
    for _ in range(CHAIN):
        if error is None or isinstance(error, kinds):
            break
        error = error.__cause__ or error.__context__
    return isinstance(error, kinds)


def _is_limited() -> bool:
    """Whether the addresses of this process are, by `ulimit -v`."""
    return resource is not None and resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY
