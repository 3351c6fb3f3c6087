"""Work in a second thread, in order, a few pieces behind the caller: writing while more is computed."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Self

PIECES = 4
"""The largest number of pieces that wait to be done."""
UNSYNCED = 64 << 20
"""Bytes written to a file before it is synced to the disk."""


class BackgroundWrites:
    """A queue of pieces of work. As a context manager, it waits for all pieces at the end.

    The error of a piece is raised where a later one is asked for, or at the end.
    """

    def __init__(self) -> None:
        self.pool, self.pending = ThreadPoolExecutor(1), deque[Future[None]]()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        with self.pool:
            self.wait()

    def wait(self) -> None:
        """Wait until all pieces are done."""
        while self.pending:
            self.pending.popleft().result()

    def ask(self, piece: Callable[[], None]) -> None:
        """Do this piece after all pieces before it."""
        self.pending.append(self.pool.submit(piece))
        if len(self.pending) > PIECES:
            self.pending.popleft().result()


class ToDisk(BackgroundWrites):
    """Syncs files to the disk while more is written, so that the last sync has little left to do."""

    def __init__(self) -> None:
        super().__init__()
        self.since: dict[int, int] = {}

    def wrote(self, handle: int, count: int) -> None:
        """Note that `count` bytes were written to an open file; sync it after UNSYNCED bytes."""
        self.since[handle] = self.since.get(handle, 0) + count
        if self.since[handle] >= UNSYNCED:
            self.since[handle] = 0
            self.ask(partial(getattr(os, "fdatasync", os.fsync), handle))  # macOS has fsync alone
