"""The statistics of units and layers that `measure importance` can measure.

Rankings and orders name theirs.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """One statistic, by its name in the language.

    using: the reduction over all samples and positions: `mean`, `l2` (L2 norm) or `max` (largest absolute
    value); empty for the mean on the tensors of weight subcloning. before_activation: whether units behind an
    activation are measured in front of it.
    """

    name: str
    using: str = ""
    before_activation: bool = False

    @property
    def largest(self) -> bool:
        """Whether the largest value counts, and not a sum."""
        return self.using == "max"


IMPORTANCE = Statistic("importance")
"""The statistic of weight subcloning, for units and for layers. `growc measure` shows it."""

COSINE = Statistic("cosine")
"""The change of the stream's direction by a layer: 1 − cos of its input and its output (ShortGPT)."""

LOSS = Statistic("loss")
"""The rise of the loss of next tokens without a layer."""

REAP = Statistic("reap")
"""Gate times ‖output‖ of experts, over the tokens that chose them."""

TAYLOR = Statistic("taylor")
"""Gradient times weight."""
