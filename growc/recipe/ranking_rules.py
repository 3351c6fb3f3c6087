"""The rankings: rules that order the units of an axis, one row each in RANKINGS.

The language, its messages and the table in docs/language.md follow from the rows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from growc.algebra.indexmap import Floats, Ints
from growc.recipe.statistics import IMPORTANCE, REAP, Statistic
from growc.recipe.words import FILE, Word


@dataclass(frozen=True)
class ScoredUnits:
    """The scores of an axis's units that a ranking may ask for: a number for each unit.

    importance: the scores that the ranking measures. from_file: the scores of the file that it names.
    """

    importance: Callable[[], Floats]
    magnitude: Callable[[], Floats]
    drawn: Callable[[], Floats]
    from_file: Callable[[], Floats]


@dataclass(frozen=True)
class RankingRule(Word):
    """One rule that chooses units. It has scores or places, takes a file that lists the units, or averages.

    - meaning: the text of docs/language.md.
    - scores: a number for each unit; the highest rank first.
    - places: the `size` of `count` units that stay, in their old order.
    - averages: whether it chooses no units, and makes means instead.
    - statistic: the statistic that `measure importance` must have measured.
    - orders: whether it is an order of all units as well.
    - keeps_numbers: whether it is allowed on an axis whose units are known by number.
    - axes: the axes that it ranks; empty: all.
    - gradients: whether its file has inputs to take gradients on.
    """

    meaning: str
    scores: Callable[[ScoredUnits], Floats] | None = None
    places: Callable[[int, int], Ints] | None = None
    averages: bool = False
    statistic: Statistic | None = None
    orders: bool = True
    keeps_numbers: bool = False
    axes: tuple[str, ...] = ()
    gradients: bool = False

    @property
    def measured(self) -> bool:
        """Whether it needs `measure importance`."""
        return self.statistic is not None

    @property
    def lists(self) -> bool:
        """Whether its file lists the units that stay."""
        return self.takes == FILE and self.scores is None


def _importance(using: str, before: bool, meaning: str) -> RankingRule:
    """A row that ranks by another statistic of importance."""
    words = ["importance", *(["using", using] if using else []), *(["before activation"] if before else [])]
    statistic = Statistic(" ".join(words), using, before)
    return RankingRule(statistic.name, meaning, scores=lambda units: units.importance(), statistic=statistic)


_ROWS = (
    RankingRule(
        "importance",
        "mean over samples and unmasked positions of the absolute value, on the source model; for the stream "
        "the sum over the embedding sum, each branch output before its add, and each sum after it, once "
        "each; for ffn and heads the tensor that the reading weight contracts (after activation and gate; "
        "the context; a head's score is the mean of its units'); needs `measure importance`",
        scores=lambda units: units.importance(),
        statistic=IMPORTANCE,
    ),
    _importance(
        "mean",
        False,
        "Minitron's: the mean over samples and unmasked positions of the absolute value of what the weights "
        "that read the axis contract (LN(X) for the stream), each tensor once, added up; for heads of the L2 "
        "norm of what the head gives",
    ),
    _importance("l2", False, "the same with the L2 norm over samples and positions: sqrt(Σ x²)"),
    _importance("max", False, "the same with the largest absolute value"),
    _importance(
        "",
        True,
        "`importance`, but for units behind an activation (ffn) of what the weights that make them give, "
        "bias included, in front of it (weight subcloning's letter); of gated units all such tensors, added "
        "up",
    ),
    _importance("mean", True, "`using mean` on those tensors (Minitron's F_neuron)"),
    _importance("l2", True, "`using l2` on those tensors"),
    _importance("max", True, "`using max` on those tensors"),
    RankingRule(
        "reap",
        "on `experts`: the mean of gate · ‖output‖ over the unmasked tokens that chose the expert (Lasby et "
        "al. 2025, equation 9); needs `measure importance`",
        scores=lambda units: units.importance(),
        statistic=REAP,
        axes=("experts",),
    ),
    RankingRule(
        f"taylor on {FILE}",
        "the mean over samples of (Σ ∂L/∂w · w)², added up over the weights that make or read the unit; L is "
        "the loss of next tokens (Molchanov et al. 2019); of modules, `.pt2` programs and checkpoint "
        "directories",
        scores=lambda units: units.from_file(),
        gradients=True,
    ),
    RankingRule(
        f"scores {FILE}",
        "one's own: those that the file says of the source's units, the highest first (below)",
        scores=lambda units: units.from_file(),
    ),
    RankingRule(
        "magnitude",
        "L2 over all making and reading weights of the unit, each tensor divided by its own Frobenius norm",
        scores=lambda units: units.magnitude(),
    ),
    RankingRule(
        "even",
        "floor(i·d/d')",
        places=lambda count, size: np.arange(size) * count // size,
        orders=False,
    ),
    RankingRule(
        "first",
        "the first d'",
        places=lambda count, size: np.arange(size),
        keeps_numbers=True,
    ),
    RankingRule(
        "random",
        "drawn, by `seed N` (default 0)",
        scores=lambda units: units.drawn(),
        seeded=True,
    ),
    RankingRule(
        f"keep {FILE}",
        "those whose numbers the file lists, one a line",
        keeps_numbers=True,
    ),
    RankingRule(
        "mean",
        "on `kv_heads` alone: the means of key/value heads (below)",
        averages=True,
    ),
)

RANKINGS = {rule.name: rule for rule in _ROWS}

KEEPING_NUMBERS = " or ".join(f"`by {rule.spelling}`" for rule in _ROWS if rule.keeps_numbers)
"""The rankings that are allowed on axes whose units are known by number, as text."""
