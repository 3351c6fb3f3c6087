"""The interface through which long steps report their progress."""

from __future__ import annotations

from collections.abc import Callable

Progress = Callable[[str, int, int], None]
"""Called with (the current step, the amount done, the total amount); a total of 0 means that it is
unknown.
"""


def quiet(phrase: str, done: int, total: int) -> None:
    """Report no progress."""
