"""Ctrl-C, SIGTERM and SIGHUP: which signals interrupt a command, how, and how they wait."""

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
"""Signals that interrupt a command, but for those that `nohup` and the like let it ignore."""


class Interrupted(KeyboardInterrupt):
    """A Ctrl-C by another name: Python remembers one that leaves an `exec`, as libraries use them, and ends
    by the signal though it was caught.
    """


class Command:
    """What signals do to a command. Once one came, no other disturbs the cleaning up."""

    def __init__(self) -> None:
        self.came = self.waits = self.committed = self.ended = False
        self.held = 0

    def interrupt(self, *_: object) -> None:
        """The handler of all of them. Raises Interrupted, or waits."""
        if self.came or self.ended:
            return
        if self.held:
            self.waits = True
            return
        self.came = True
        raise Interrupted

    @contextlib.contextmanager
    def holding(self) -> Iterator[None]:
        """Signals wait for the end; behind the commit they came too late."""
        self.held += 1
        try:
            yield
        finally:
            self.held -= 1
            if self.waits and not self.held:
                self.waits = False
                if not self.committed:
                    self.interrupt()


_RUNNING: list[Command] = []
"""The commands that signals interrupt, the innermost last: only those of the main thread."""


def _running() -> Command | None:
    """The command that this thread runs, if signals interrupt it."""
    return _RUNNING[-1] if _RUNNING and threading.current_thread() is threading.main_thread() else None


def committed() -> None:
    """What the command was to make stands."""
    if (command := _running()) is not None:
        command.committed = True


@contextlib.contextmanager
def interruptible(command: Command) -> Iterator[None]:
    """SIGTERM and SIGHUP end a command as Ctrl-C does. An import may make an error of that."""
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
        _RUNNING[:] = [one for one in _RUNNING if one is not command]
        try:
            _handle(before)
        finally:  # a handler that is back may raise meanwhile
            _handle(before)


@contextlib.contextmanager
def _whole_extensions() -> Iterator[None]:
    """No import of an extension is interrupted: what is not Python may end the process at an exception."""
    usual = {name: getattr(ExtensionFileLoader, name) for name in ("create_module", "exec_module")}
    for name, function in usual.items():
        setattr(ExtensionFileLoader, name, uninterrupted()(function))
    try:
        yield
    finally:
        for name, function in usual.items():
            setattr(ExtensionFileLoader, name, function)


def _handle(handlers: Mapping[int, Handler]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """They wait for the end, for a command in any case: a mask holds them off one thread alone, the system
    hands them to another one, as libraries have, and Python acts on them in the main thread. Where growc is
    itself a library, a mask is all: handlers are the program's.
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
