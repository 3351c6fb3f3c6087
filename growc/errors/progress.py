"""How a long step tells how far it is."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""(what is being done, done so far, of how much); a total of 0 means that it is not known."""


def quiet(phrase: str, done: int, total: int) -> None:
    """Says nothing of the progress."""
