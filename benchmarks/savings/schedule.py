"""Warm-up, stable, decay: branches of one stable run decay, so that decayed is compared with decayed.

A branch that ends at step E leaves the stable run at E − decay·E, and its rate falls linearly to zero. The
stable run goes on from there as if the branch had not been. The next branch leaves later.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from growc.training.schedule import WarmupStableDecay

DECAY = 0.2
"""The part of a branch's steps in which its rate falls."""


@dataclass(frozen=True)
class Leg:
    """Steps `start` to `stop` of a run: of the stable run, or of a branch, which ends decayed."""

    start: int
    stop: int
    schedule: WarmupStableDecay

    @property
    def decays(self) -> bool:
        """Whether it is a branch."""
        return self.schedule.decay > 0


def legs(steps: int, warmup: int, branches: Sequence[float], decay: float = DECAY) -> list[Leg]:
    """The legs of a run whose branches end at these parts of its steps, in the order in which they run.

    Raises ValueError where a branch would leave before the one in front of it, or during the warm-up.

    >>> [(leg.start, leg.stop, leg.decays) for leg in legs(10, 1, (0.5, 1.0))]
    [(0, 4, False), (4, 5, True), (4, 8, False), (8, 10, True)]
    """
    stable = WarmupStableDecay(steps, warmup)
    planned: list[Leg] = []
    start = 0
    for part in branches:
        end = round(part * steps)
        falling = max(1, round(decay * end))
        leaving = end - falling
        if leaving < start:
            raise ValueError(f"the branch that ends at step {end} leaves before the one in front of it")
        planned += [Leg(start, leaving, stable), Leg(leaving, end, stable.ending(end, falling))]
        start = leaving
    return planned
