"""Work of a thread of its own, in order, a few pieces behind who asks for it: what is written while more is
computed.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Self

PIECES = 4
"""So many pieces at most wait to be done."""
UNSYNCED = 64 << 20
"""After so many bytes a file is taken to the disk."""


class Behind:
    """As a context manager it is done with all of them when it is left.

    Errors of a piece are raised where a later one is asked for, or at the end.
    """

    def __init__(self) -> None:
        self.pool, self.pending = ThreadPoolExecutor(1), deque[Future[None]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self.pool:
            self.wait()

    def wait(self) -> None:
        """Until all that was asked for is done."""
        while self.pending:
            self.pending.popleft().result()

    def ask(self, piece: Callable[[], None]) -> None:
        """Do this after what was asked for before."""
        self.pending.append(self.pool.submit(piece))
        if len(self.pending) > PIECES:
            self.pending.popleft().result()


class ToDisk(Behind):
    """Takes files to the disk while more is written: little is left to the sync that waits for all."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[int, int] = {}

    def wrote(self, handle: int, count: int) -> None:
        """So many bytes were written into an open file."""
        self.since[handle] = self.since.get(handle, 0) + count
        if self.since[handle] >= UNSYNCED:
            self.since[handle] = 0
            self.ask(partial(getattr(os, "fdatasync", os.fsync), handle))  # macOS has fsync alone
