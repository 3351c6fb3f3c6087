"""Zero units that are zero up to rounding, and functions with a jump there: sign(0) = 0, sign(1e-9) = 1.

Needs: solved states. Gives: gaps for functions with a jump at zero that read new units of zeros. They count
where a statement draws noise. Balanced noise in weights that read copies cancels up to rounding only, and may
be in the rows that make zero units.
"""

from __future__ import annotations

from collections.abc import Iterator

from growc.ir.traits import JUMP, SAME
from growc.passes.solving.solution import Solution
from growc.plans.plan import Gap


def gaps_of_jumps(solution: Solution) -> Iterator[Gap]:
    """Yield the gaps, one for each function."""
    for flow in solution.links.flows:
        gaps_of_jumps = flow.node.has(JUMP) or (flow.node.has(SAME) and flow.node.outputs[0].dtype == "bool")
        if gaps_of_jumps and any(solution.of(var).zeros.any() for var in flow.sources.values()):
            cause = "new units are zero there up to rounding, because of noise, and it has a jump at zero"
            yield Gap.at(flow.node, cause, "leave the noise out")
