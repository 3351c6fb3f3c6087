"""Ctrl-C, SIGTERM and SIGHUP: the signals that interrupt a command, and how they are delayed."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from importlib.machinery import ExtensionFileLoader
from types import FrameType

Handler = Callable[[int, FrameType | None], object] | int | signal.Handlers

INTERRUPTS = tuple(
    number
    for name in ("SIGINT", "SIGTERM", "SIGHUP")
    if (number := getattr(signal, name, None)) is not None and signal.getsignal(number) != signal.SIG_IGN
)
"""Signals that interrupt a command, except those that `nohup` and similar tools make it ignore."""


class Interrupted(KeyboardInterrupt):
    """A Ctrl-C under another name.

    Python remembers a KeyboardInterrupt that leaves an `exec`, as libraries use it, and then ends by the
    signal even if the exception was caught.
    """


class SignalState:
    """The state of a command with respect to signals. After the first signal, no other disturbs the
    cleanup.
    """

    def __init__(self) -> None:
        self.came = self.waits = self.committed = self.ended = False
        self.held = 0

    def interrupt(self, *_: object) -> None:
        """The handler of all these signals. Raises Interrupted, or postpones it."""
        if self.came or self.ended:
            return
        if self.held:
            self.waits = True
            return
        self.came = True
        raise Interrupted

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """In this context, signals wait until the end; after the commit they have no effect."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
            if self.waits and not self.held:
                self.waits = False
                if not self.committed:
                    self.interrupt()


_RUNNING: list[SignalState] = []
"""The commands that signals interrupt, the innermost last; only those of the main thread."""


def _running() -> SignalState | None:
    """The command that this thread runs, if signals interrupt it."""
    return _RUNNING[-1] if _RUNNING and threading.current_thread() is threading.main_thread() else None


def committed() -> None:
    """Record that the command's result is in place."""
    if (command := _running()) is not None:
        command.committed = True


@contextlib.contextmanager
def interruptible(command: SignalState) -> Iterator[None]:
    """In this context, SIGTERM and SIGHUP end a command as Ctrl-C does.

    An import may turn the interrupt into an error; it becomes Interrupted again.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {n: handler for n in INTERRUPTS if (handler := signal.getsignal(n)) is not None}
    try:
        _RUNNING.append(command)
        for number in before:
            signal.signal(number, command.interrupt)
        with _whole_extensions():
            yield
    except Exception as error:
        if command.came:
            raise Interrupted from error
        raise
    finally:
        command.ended = True
        _RUNNING[:] = [running for running in _RUNNING if running is not command]
        try:
            _handle(before)
        finally:  # a restored handler may raise in the first call
            _handle(before)


@contextlib.contextmanager
def _whole_extensions() -> Iterator[None]:
    """In this context, imports of extensions are not interrupted: native code may end the process at an
    exception.
    """
    originals = {name: getattr(ExtensionFileLoader, name) for name in ("create_module", "exec_module")}
    for name, function in originals.items():
        setattr(ExtensionFileLoader, name, uninterrupted()(function))
    try:
        yield
    finally:
        for name, function in originals.items():
            setattr(ExtensionFileLoader, name, function)


def _handle(handlers: Mapping[int, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """In this context, signals wait until the end.

    For a command, its handler postpones them. A mask alone would not suffice: it holds signals off one
    thread, the system hands them to threads of libraries, and Python acts on them in the main thread. If
    growc is used as a library, only the mask is set, since the handlers belong to the program.
    """
    command = _running()
    with contextlib.nullcontext() if command is None else command.holding(), _masked():
        yield


@contextlib.contextmanager
def _masked() -> Iterator[None]:
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, INTERRUPTS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
