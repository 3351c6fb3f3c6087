"""What a `measure importance` can find of units and layers. Rankings and orders say which of it they need."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Statistic:
    """What is measured, by its name in the language.

    using: what stands for all samples and positions: their mean, their L2 norm (`l2`) or their largest
    absolute value (`max`); nothing for the mean on the tensors of weight subcloning. before_activation:
    whether units behind an activation are measured in front of it.
    """

    name: str
    using: str = ""
    before_activation: bool = False

    @property
    def largest(self) -> bool:
        """Whether the largest value counts, and not a sum."""
        return self.using == "max"


IMPORTANCE = Statistic("importance")
"""That of weight subcloning, for units and for layers: what `growc measure` shows."""

COSINE = Statistic("cosine")
"""How far layers turn the stream: 1 − cos of what goes in and what comes out (ShortGPT)."""

LOSS = Statistic("loss")
"""How much the loss of next tokens rises without a layer."""

REAP = Statistic("reap")
"""What experts add, gate times ‖output‖, over the tokens that chose them."""

TAYLOR = Statistic("taylor")
"""Gradient times weight."""
