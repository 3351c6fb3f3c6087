"""Ctrl-C, SIGTERM and SIGHUP: which signals interrupt a command, and how they wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

INTERRUPTS = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) != signal.SIG_IGN
)
"""Signals that interrupt a command, but for those that `nohup` and the like let it ignore."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """They wait for the end."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def forget() -> None:
    """Those that wait came too late. Only a main thread's do wait in Python."""
    if threading.current_thread() is not threading.main_thread():
        return
    for number in INTERRUPTS:
        before = signal.signal(number, signal.SIG_IGN)  # the system drops one that waits
        signal.signal(number, before)
