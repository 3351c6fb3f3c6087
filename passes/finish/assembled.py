"""The stored tensors of a result."""

from __future__ import annotations

from dataclasses import dataclass, field

from growc.ir.graph import Value, Weight
from growc.plans.plan import WeightPlan


@dataclass
class Assembled:
    """The planned tensors. `uses`: the uses that each of them serves, in the order of `weights`."""

    weights: list[WeightPlan] = field(default_factory=list)
    uses: list[list[Value]] = field(default_factory=list)
    sources: list[Weight] = field(default_factory=list, repr=False)
