"""Run growc, and let its Nth step on files kill it or fail: `driver.py STEP FAULT COUNT ARGUMENT…`.

A step is what Python asks of the system about a file that is to change: to open one for writing, to rename,
remove or link it, to make or remove a folder, to wait for the disk. COUNT is where the number of steps is
written; `-` for nowhere. FAULT is `kill`, `interrupt` or the name of an error (`ENOSPC`).
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from pathlib import Path
from typing import NoReturn

CHANGES = frozenset({"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.link", "os.truncate"})
SIGNALS = {"kill": signal.SIGKILL, "interrupt": signal.SIGTERM}
WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT


class Steps:
    """Counts steps, and lets one of them fail."""

    def __init__(self, at: int, fault: str) -> None:
        self.at, self.fault, self.count, self.armed = at, fault, 0, True

    def take(self) -> None:
        """One step. Raises OSError where it is to fail."""
        self.count += 1
        if self.count == self.at and self.armed:
            if self.fault in SIGNALS:
                os.kill(os.getpid(), SIGNALS[self.fault])
                return
            number = getattr(errno, self.fault)
            raise OSError(number, os.strerror(number))

    def hook(self, event: str, given: tuple[object, ...]) -> None:
        """The audit hook, which Python calls before each event."""
        if event in CHANGES or (event == "open" and _writes(given)):
            self.take()


def _writes(given: tuple[object, ...]) -> bool:
    """Whether a file is opened to be written to."""
    return isinstance(given[2], int) and bool(given[2] & WRITES) and _is_kept(given[0])


def _is_kept(path: object) -> bool:
    """Whether a path is that of a file on a disk."""
    return isinstance(path, str | bytes | os.PathLike) and not os.fsdecode(path).startswith("/dev/")


def run(at: int, fault: str, count: str, arguments: list[str]) -> NoReturn:
    from growc.cli import main

    steps = Steps(at, fault)
    usual = os.fsync

    def fsync(handle: int) -> None:
        steps.take()
        usual(handle)

    os.fsync = fsync
    sys.dont_write_bytecode = True
    sys.addaudithook(steps.hook)
    sys.argv[1:] = arguments
    end = main.end_at_once

    def ended(status: int) -> NoReturn:
        steps.armed = False
        if count != "-":
            Path(count).write_text(str(steps.count))
        end(status)

    main.end_at_once = ended
    main.program()


if __name__ == "__main__":
    run(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4:])
