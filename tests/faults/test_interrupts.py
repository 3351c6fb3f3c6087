"""Signals that interrupt wait for the end of a block that nothing may interrupt."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator

import pytest

from growc.system.interrupts import INTERRUPTS, uninterrupted


class CameError(Exception):
    """A signal was acted on."""


@pytest.fixture(params=INTERRUPTS, ids=lambda number: number.name)
def number(request: pytest.FixtureRequest) -> Iterator[int]:
    """A signal whose handler raises."""

    def raises(*_: object) -> None:
        raise CameError

    before = signal.signal(request.param, raises)
    yield request.param
    signal.signal(request.param, before)


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


@pytest.mark.usefixtures("threads")
def test_a_signal_waits_for_the_end(number: int) -> None:
    done = []

    def work() -> None:
        with uninterrupted():
            with uninterrupted():
                os.kill(os.getpid(), number)
                sum(range(10_000))
            done.append("outer")

    with pytest.raises(CameError):
        work()
    assert done


@pytest.mark.usefixtures("threads")
def test_a_signal_that_came_too_late_is_dropped(number: int) -> None:
    with uninterrupted() as waiting:
        os.kill(os.getpid(), number)
        sum(range(10_000))
        assert waiting == [number]
        waiting.clear()


def test_a_signal_is_acted_on_afterwards_as_before(number: int) -> None:
    with uninterrupted():
        pass
    with pytest.raises(CameError):
        signal.raise_signal(number)


def test_another_thread_may_be_uninterrupted(number: int) -> None:
    found: list[list[int]] = []

    def work() -> None:
        with uninterrupted() as waiting:
            found.append(waiting)

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert found == [[]]
    with pytest.raises(CameError):
        signal.raise_signal(number)
