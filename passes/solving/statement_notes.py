"""Notes on one statement for a reader of the plan: options that change nothing, the order of equal scores.

Needs: a lowered statement and its steps. Gives: sentences.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from growc.ir.graph import Value
from growc.ir.lowered_statement import Stage
from growc.passes.solving.choices.shares import gaps_of_ranking
from growc.passes.solving.solution import READS
from growc.plans.plan import AxisStep


def notes_on_readers(stage: Stage, steps: Mapping[Value, Sequence[AxisStep]]) -> Iterator[str]:
    """Yield a note for each option on readers if no weight reads the axis."""
    read = any(step.verb == READS for steps_of_use in steps.values() for step in steps_of_use)
    if any(request.fill for request in stage.requests.values()) and not read:
        for words in stage.options.on_readers:
            yield f"`{words}` changes nothing: no weight reads `{stage.axis}`"


def notes_on_ties(stage: Stage) -> Iterator[str]:
    """Yield a note if units of equal score, all copies of which are chosen, change their order."""
    whole = [c for c in stage.choices if c.space in stage.requests and not any(gaps_of_ranking(stage, c))]
    if any((np.diff(stage.requests[choice.space].map.index) < 0).any() for choice in whole):
        yield (
            f"{stage.axis} of equal score are chosen in another order than in the source; "
            "`neighbor copy` keeps the order"
        )
