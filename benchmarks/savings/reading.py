"""Numbers of a table's runs: losses where branches end, and at which cost scratch's loss is reached.

Pure functions of records. README.md states the rules; they were written before anything ran.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, stdev
from typing import Any, Literal

from benchmarks.savings.tables import Row

Points = Sequence[tuple[float, float]]
"""(cost, loss) where the branches of a run end, cost rising."""

Record = dict[str, Any]
STEP, FLOPS, LOSS = range(3)


@dataclass(frozen=True)
class Reached:
    """At which cost a loss is reached: at `cost`, at `cost` or before, or never at up to `cost`."""

    sign: Literal["", "≤", ">"]
    cost: float

    def percent(self, whole: float) -> str:
        """The cost as a percentage of another one; never less than 100 where the loss is not reached."""
        cost = max(self.cost, whole) if self.sign == ">" else self.cost
        return f"{self.sign} {percent(cost, whole)}".strip()


def percent(cost: float, whole: float) -> str:
    """A cost as a percentage of another one."""
    return f"{100 * cost / whole:.0f} %"


def reached(points: Points, target: float) -> Reached:
    """Where a run reaches a loss; between two branches the loss is linear in the logarithm of the cost."""
    first, last = points[0], points[-1]
    if first[1] <= target:
        return Reached("≤", first[0])
    for (cost, loss), (later, lower) in pairwise(points):
        if lower <= target < loss:
            part = (loss - target) / (loss - lower)
            return Reached("", cost * (later / cost) ** part)
    return Reached(">", last[0])


@dataclass(frozen=True)
class Line:
    """A row with the records of its seeds, those that have ended."""

    row: Row
    records: tuple[Record, ...]

    def points(self, cost: int = FLOPS) -> list[list[tuple[float, float]]]:
        """Where the branches of each run end."""
        return [[(point[cost], point[LOSS]) for point in r["decayed"]] for r in self.records]

    def mean(self, cost: int = FLOPS) -> list[tuple[float, float]]:
        """The mean of the seeds' points: costs are equal but where stages are drawn."""
        return [tuple(map(fmean, zip(*seeds, strict=True))) for seeds in zip(*self.points(cost), strict=True)]

    def curve(self) -> list[tuple[float, float]]:
        """The mean of the stable runs, as (operations, loss)."""
        rows = zip(*(record["curve"] for record in self.records), strict=True)
        return [(fmean(p[FLOPS] for p in points), fmean(p[LOSS] for p in points)) for points in rows]

    @property
    def cost(self) -> float:
        """The mean operations of all steps."""
        return self.mean()[-1][0]

    @property
    def final(self) -> float:
        """The mean loss at the end of the last branch."""
        return self.mean()[-1][1]

    @property
    def spread(self) -> float:
        """The standard deviation of the seeds' final losses; not a number for one seed."""
        finals = [points[-1][1] for points in self.points()]
        return stdev(finals) if len(finals) > 1 else math.nan


def spread_in_points(scratch: Line) -> float:
    """The spread of scratch's seeds in points of its operations, by the slope between the last branches."""
    (cost, loss), (later, lower) = scratch.mean()[-2:]
    slope = (loss - lower) / math.log(later / cost)
    return 100 * scratch.spread / slope if slope > 0 else math.inf


def source_cost(line: Line) -> tuple[float, float] | None:
    """Operations of the training of a row's sources, and the tokens that they saw for each parameter."""
    needs = [need for record in line.records for need in record["needs"]]
    if not needs:
        return None
    return fmean(need["flops"] for need in needs), fmean(need["tokens_per_parameter"] for need in needs)
