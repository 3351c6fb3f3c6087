"""Learning rates of single entries, so that new units of a grown weight have their own schedule.

A grown parameter has old entries beside new ones, and an optimizer has one rate for both. SPARKLING re-warms
the rate of new entries. After a step, the change of the chosen entries is multiplied by a factor.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor
from torch.optim import Optimizer

from growc.training.schedule import Schedule


class EntryRates:
    """Scale the changes that an optimizer makes to some entries by the factor of a schedule.

    This is a separate rate wherever changes are proportional to the rate: SGD, Adam, AdamW, with decay. A
    step keeps a copy of the parameters in `entries`. step: the next step, for which the schedule is asked.
    """

    def __init__(
        self, optimizer: Optimizer, entries: Mapping[Tensor, Tensor], schedule: Schedule, step: int = 0
    ) -> None:
        """`entries` has a boolean mask for each parameter, of its shape.

        `entry_kinds(...)[name] == NEW` selects new entries. Raises ValueError for other shapes.
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
        """Remove the hooks, so that the optimizer is as it was."""
        for handle in self._handles:
            handle.remove()

    def state_dict(self) -> dict[str, int]:
        """Return the number of the next step."""
        return {"step": self.step}

    def load_state_dict(self, state: Mapping[str, int]) -> None:
        """Continue where `state_dict` was taken."""
        self.step = state["step"]

    def _keep(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        self._before = {parameter: parameter.detach().clone() for parameter in self._entries}

    @torch.no_grad()
    def _scale(self, optimizer: Optimizer, args: object, kwargs: object) -> None:
        factor = self.schedule(self.step)
        for parameter, before in self._before.items():
            scaled = torch.lerp(before, parameter, factor)
            parameter.copy_(torch.where(self._entries[parameter], scaled, parameter))
        self._before = {}
        self.step += 1
