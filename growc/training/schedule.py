"""Schedules: factors on a group's learning rate by step, as torch's LambdaLR takes them.

Steps are updates, counted from 0. A schedule has no state, so a resumed run asks for its next step.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

Schedule = Callable[[int], float]


@dataclass(frozen=True)
class WarmupStableDecay:
    """A linear rise over `warmup` steps, the full rate, and a linear fall over the last `decay` steps.

    Hu et al. 2024, "MiniCPM", section 4. steps: the length of the whole training. lowest: the factor that
    would follow the last step. Raises ValueError if rise and fall do not fit into the steps.
    """

    steps: int
    warmup: int = 0
    decay: int = 0
    lowest: float = 0.0

    def __post_init__(self) -> None:
        if min(self.warmup, self.decay) < 0 or self.warmup + self.decay > self.steps or self.steps < 1:
            raise ValueError(f"{self.steps} steps have no room for {self.warmup} up and {self.decay} down")

    def __call__(self, step: int) -> float:
        """Return the factor at a step."""
        if step < self.steps - self.decay:
            return _rise(step, self.warmup)
        remaining = max(self.steps - step, 0) / self.decay if self.decay else 1.0
        return self.lowest + (1 - self.lowest) * remaining

    def ending(self, steps: int, decay: int) -> WarmupStableDecay:
        """Return a decay branch: the same schedule up to step `steps` - `decay`, from which the rate falls.

        Decayed models are compared with decayed ones. A branch starts from the run's state at that step.
        """
        return replace(self, steps=steps, decay=decay)


@dataclass(frozen=True)
class Rewarmed:
    """A schedule that rises again over `warmup` steps from step `grown` on, for units that are new then.

    SPARKLING re-warms the rate of new units alone; old units keep `schedule`. Before `grown` both are equal.
    """

    schedule: Schedule
    grown: int
    warmup: int

    def __call__(self, step: int) -> float:
        """Return the factor at a step."""
        again = 1.0 if step < self.grown else _rise(step - self.grown, self.warmup)
        return again * self.schedule(step)


def _rise(step: int, warmup: int) -> float:
    """Return 1/warmup at step 0, rising to 1 at the last step of the rise."""
    return min((step + 1) / warmup, 1.0) if warmup else 1.0
