"""Rates of single entries: new units of a grown weight learn by a schedule of their own.

A parameter that grew has old entries beside new ones, and an optimizer has one rate for both. SPARKLING
re-warms the rate of what is new. After a step, the change of the chosen entries is multiplied by a factor.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from growc.training.schedule import Schedule


class EntryRates:
    """Multiplies the changes that an optimizer makes to some entries by a schedule's factor.

    That is a rate of their own wherever changes are proportional to the rate: SGD, Adam, AdamW, with decay. A
    step keeps a copy of the parameters in `entries`. step: which one the schedule is asked for next.
    """

    def __init__(
        self, optimizer: Optimizer, entries: Mapping[Tensor, Tensor], schedule: Schedule, step: int = 0
    ) -> None:
        """`entries` has, for a parameter, truth values of its shape: `entry_kinds(...)[name] == NEW` is what
        is new. Raises ValueError for other shapes.
        """
        for parameter, chosen in entries.items():
            if parameter.shape != chosen.shape:
                raise ValueError(f"entries {list(chosen.shape)} of a parameter {list(parameter.shape)}")
        self.schedule, self.step = schedule, step
        self._entries = {p: chosen for p, chosen in entries.items() if chosen.any()}
        self._before: dict[Tensor, Tensor] = {}
        self._handles = (
            optimizer.register_step_pre_hook(self._keep),
            optimizer.register_step_post_hook(self._scale),
        )

    def remove(self) -> None:
        """Leave the optimizer as it was."""
        for handle in self._handles:
            handle.remove()

    def state_dict(self) -> dict[str, int]:
        """Which step comes next."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Go on where `state_dict` was taken."""
        self.step = state["step"]

    def _keep(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        self._before = {parameter: parameter.detach().clone() for parameter in self._entries}

    @torch.no_grad()
    def _scale(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        factor = self.schedule(self.step)
        for parameter, before in self._before.items():
            slower = torch.lerp(before, parameter, factor)
            parameter.copy_(torch.where(self._entries[parameter], slower, parameter))
        self._before = {}
        self.step += 1
