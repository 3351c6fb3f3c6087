"""The numbers that a random graph is made from: drawn by a seed, recorded, and shrunk when a case fails.

Zero is always the plainest choice, so a list of zeros is the plainest graph, and shrinking needs to know
nothing of graphs.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

Option = TypeVar("Option")


class Choices:
    """Small numbers from a seed, or a recorded list again (zeros behind its end); `taken` is the record."""

    def __init__(self, source: int | Sequence[int]) -> None:
        self.taken: list[int] = []
        self._random = random.Random(source) if isinstance(source, int) else None
        self._given = () if isinstance(source, int) else tuple(source)

    def below(self, n: int) -> int:
        """A number of 0..n-1."""
        if self._random is not None:
            value = self._random.randrange(n)
        else:
            value = min(self._given[len(self.taken)], n - 1) if len(self.taken) < len(self._given) else 0
        self.taken.append(value)
        return value

    def pick(self, *options: Option) -> Option:
        """One of the options; the first is the plainest."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred cases; False is plainer."""
        return self.below(100) >= 100 - percent


def shrink(taken: Sequence[int], fails: Callable[[Sequence[int]], bool], tries: int = 2000) -> list[int]:
    """A shorter list of smaller numbers that still fails: chunks are cut out, then zeroed, then lowered."""
    best = list(taken)

    def better(trial: list[int]) -> bool:
        nonlocal best, tries
        tries -= 1
        if tries < 0 or trial == best or not fails(trial):
            return False
        best = trial
        return True

    size = max(len(best) // 2, 1)
    while size and tries > 0:
        at = 0
        while at < len(best) and tries > 0:
            chunk = best[at : at + size]
            cut = best[:at] + best[at + size :]
            zeroed = best[:at] + [0] * len(chunk) + best[at + size :]
            if not better(cut) and not (any(chunk) and better(zeroed)):
                at += size
        size //= 2
    for at in range(len(best)):
        while at < len(best) and best[at] > 0 and better([*best[:at], best[at] // 2, *best[at + 1 :]]):
            pass
    return best
