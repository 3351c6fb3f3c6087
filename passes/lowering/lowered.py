"""The lowered form of a recipe's statements."""

from __future__ import annotations

from dataclasses import dataclass, field

from growc.algebra.indexmap import Ints
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.axes.unstacked_experts import ExpertRemoval
from growc.plans.plan import AxisChange, Summary


@dataclass
class Lowered:
    """The maps and sizes that a recipe asks for."""

    stages: list[Stage] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    summaries: list[Summary] = field(default_factory=list)
    axes: dict[str, AxisChange] = field(default_factory=dict)
    history: list[tuple[int, Sizes]] = field(default_factory=list, repr=False)
    """The sizes before each statement, by its number."""
    numbers: dict[str, Ints] = field(default_factory=dict)
    """The old number of each unit, for inputs that number units of which some are dropped."""
    prefixes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """The sizes that each share of a `nest` stands for, by axis; the smallest share first."""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    taken: ExpertRemoval = field(default_factory=ExpertRemoval)
    """The changes of units that the graph takes out one by one."""

    def before(self, moment: int) -> Sizes:
        """The sizes before the statement with the number `moment`."""
        return next((sizes for number, sizes in self.history if number >= moment), self.sizes)
