"""Signals that interrupt wait for the end of a block that nothing may interrupt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib.machinery import ExtensionFileLoader

import pytest

from growc.system.interrupts import (
    INTERRUPTS,
    Interrupted,
    SignalState,
    committed,
    interruptible,
    uninterrupted,
)


@pytest.fixture(params=INTERRUPTS, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> int:
    """A signal."""
    return int(request.param)


@pytest.fixture(params=[0, 2])
def threads(request: pytest.FixtureRequest) -> Iterator[None]:
    """Other threads of the process, which libraries start: the system hands signals to them, too."""
    end = threading.Event()
    started = [threading.Thread(target=end.wait) for _ in range(request.param)]
    for thread in started:
        thread.start()
    yield
    end.set()
    for thread in started:
        thread.join()


def send(number: int) -> None:
    """To this process, whichever thread takes it."""
    os.kill(os.getpid(), number)
    sum(range(10_000))


@pytest.mark.usefixtures("threads")
def test_a_signal_waits_for_the_end(number: int) -> None:
    done = []

    def work() -> None:
        with interruptible(SignalState()), uninterrupted():
            with uninterrupted():
                send(number)
            done.append("outer")
        done.append("behind")

    with pytest.raises(Interrupted):
        work()
    assert done == ["outer"]


@pytest.mark.usefixtures("threads")
def test_a_signal_that_came_behind_the_commit_is_too_late(number: int) -> None:
    command = SignalState()
    with interruptible(command), uninterrupted():
        committed()
        send(number)
    assert command.committed
    assert not command.came


def test_a_second_signal_does_not_disturb_the_cleaning_up(number: int) -> None:
    cleaned = []

    def work() -> None:
        with interruptible(SignalState()):
            try:
                send(number)
            finally:
                send(number)
                cleaned.append(True)

    with pytest.raises(Interrupted):
        work()
    assert cleaned


def test_the_import_of_an_extension_is_not_interrupted(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Code that is not Python may end the process at an exception, as nanobind does."""
    done = []

    def initialised(loader: ExtensionFileLoader, module: object) -> None:
        send(number)
        done.append(module)

    monkeypatch.setattr(ExtensionFileLoader, "exec_module", initialised)

    def work() -> None:
        with interruptible(SignalState()):
            ExtensionFileLoader("extension", "extension.so").exec_module(sys)
            done.append("behind")

    with pytest.raises(Interrupted):
        work()
    assert done == [sys]
    assert ExtensionFileLoader.exec_module is initialised


def test_handlers_are_those_of_before(number: int) -> None:
    before = [signal.getsignal(one) for one in INTERRUPTS]
    with pytest.raises(Interrupted), interruptible(SignalState()):
        send(number)
    assert [signal.getsignal(one) for one in INTERRUPTS] == before


@pytest.mark.parametrize("at", range(1, 1 + 2 * len(INTERRUPTS)))
def test_a_handler_that_raises_while_they_are_exchanged_lets_none_be_lost(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = [signal.getsignal(one) for one in INTERRUPTS]
    usual, calls = signal.signal, []

    def raising(*given: object) -> object:
        calls.append(given)
        found = usual(*given)  # type: ignore[arg-type]
        if len(calls) == at:
            raise KeyboardInterrupt
        return found

    monkeypatch.setattr(signal, "signal", raising)
    with pytest.raises(KeyboardInterrupt), interruptible(SignalState()):
        pass
    monkeypatch.undo()
    assert [signal.getsignal(one) for one in INTERRUPTS] == before


def test_a_commit_of_another_thread_is_not_the_command_s() -> None:
    command = SignalState()
    with interruptible(command):
        thread = threading.Thread(target=committed)
        thread.start()
        thread.join()
    assert not command.committed


LIBRARY = """
import os, signal, sys
from growc.system.interrupts import committed, uninterrupted
number = int(sys.argv[1])
with uninterrupted():
    os.kill(os.getpid(), number)
    committed()
    print("held", flush=True)
print("behind", flush=True)
"""


def test_a_program_that_uses_growc_acts_on_signals_as_it_does(number: int) -> None:
    run = subprocess.run(
        [sys.executable, "-c", LIBRARY, str(number)], capture_output=True, text=True, check=False
    )
    assert (run.returncode, run.stdout) == (-number, "held\n")


def test_the_handlers_of_a_program_that_uses_growc_stay() -> None:
    before = [signal.getsignal(one) for one in INTERRUPTS]
    with uninterrupted():
        assert [signal.getsignal(one) for one in INTERRUPTS] == before
