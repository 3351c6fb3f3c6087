"""Ctrl-C, SIGTERM and SIGHUP: which signals interrupt a command, and how they wait."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator
from types import FrameType

INTERRUPTS = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) != signal.SIG_IGN
)
"""Signals that interrupt a command, but for those that `nohup` and the like let it ignore."""
COMMITTED = threading.Event()
"""What a command was to make stands: what interrupts it now comes too late."""


@contextlib.contextmanager
def uninterrupted() -> Iterator[list[int]]:
    """They wait for the end; gives those that do, which may be cleared.

    A mask would hold them off one thread alone: the system hands them to another one, as libraries have, and
    Python acts on them in the main thread all the same.
    """
    waiting: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield waiting
        return
    before = {n: handler for n in INTERRUPTS if (handler := signal.getsignal(n)) is not None}
    held = True

    def wait(number: int, _: FrameType | None) -> None:
        if held:
            waiting.append(number)
        else:  # while the handlers are put back
            signal.signal(number, before[number])
            signal.raise_signal(number)

    try:
        for number in before:
            signal.signal(number, wait)
        yield waiting
    finally:
        held = False
        for number, handler in before.items():
            signal.signal(number, handler)
        for number in waiting:
            signal.raise_signal(number)
