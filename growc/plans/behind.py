"""Work of a thread of its own, in order, a few pieces behind who asks for it: what is written while more is
computed.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Self

PIECES = 4
"""So many pieces at most wait to be done."""


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
