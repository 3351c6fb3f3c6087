"""What the statements of a recipe come to."""

from __future__ import annotations

from dataclasses import dataclass, field

from growc.algebra.indexmap import Ints
from growc.ir.lowered_statement import Sizes, Stage
from growc.passes.axes.unstacked_experts import Taken
from growc.plans.plan import AxisChange, Summary


@dataclass
class Lowered:
    """What the recipe asks for, in maps."""

    stages: list[Stage] = field(default_factory=list)
    sizes: Sizes = field(default_factory=Sizes)
    summaries: list[Summary] = field(default_factory=list)
    axes: dict[str, AxisChange] = field(default_factory=dict)
    history: list[tuple[int, Sizes]] = field(default_factory=list, repr=False)
    """The sizes before each statement, by its number."""
    numbers: dict[str, Ints] = field(default_factory=dict)
    """For inputs that number units of which some are gone, the old number of each."""
    prefixes: dict[str, dict[str, tuple[int, ...]]] = field(default_factory=dict)
    """For each share of a `nest` the sizes that it stands for, by axis, the smallest share first."""
    warnings: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    taken: Taken = field(default_factory=Taken)
    """What becomes of units that are taken out one by one."""

    def before(self, moment: int) -> Sizes:
        """The sizes as they stood before the statement of a number."""
        return next((sizes for number, sizes in self.history if number >= moment), self.sizes)
