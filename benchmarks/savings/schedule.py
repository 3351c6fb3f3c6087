"""Warm-up, stable, decay: branches of one stable run decay, so that decayed is compared with decayed.

A branch that ends at step E leaves the stable run at E − decay·E, and its rate falls linearly to zero. The
stable run goes on from there as if the branch had not been. The next branch leaves later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

DECAY = 0.2
"""The part of a branch's steps in which its rate falls."""


@dataclass(frozen=True)
class Leg:
    """Steps `start` to `stop` of a run, at the full rate or falling to zero."""

    start: int
    stop: int
    falling: bool

    def factor(self, step: int, warmup: int) -> float:
        """The part of the full rate at a step: linear warm-up over the first `warmup` steps of a run."""
        up = min(1.0, (step + 1) / warmup)
        return up * (self.stop - step) / (self.stop - self.start) if self.falling else up


def legs(steps: int, branches: Sequence[float], decay: float = DECAY) -> list[Leg]:
    """The legs of a run whose branches end at these parts of its steps, in the order in which they run.

    >>> legs(10, (0.5, 1.0))
    [Leg(start=0, stop=4, falling=False), Leg(start=4, stop=5, falling=True), \
Leg(start=4, stop=8, falling=False), Leg(start=8, stop=10, falling=True)]
    """
    found: list[Leg] = []
    stable = 0
    for part in branches:
        end = round(part * steps)
        leaving = end - max(1, round(decay * end))
        if leaving < stable:
            raise ValueError(f"the branch that ends at step {end} leaves before the one in front of it")
        found += [Leg(stable, leaving, False), Leg(leaving, end, True)]
        stable = leaving
    return found
