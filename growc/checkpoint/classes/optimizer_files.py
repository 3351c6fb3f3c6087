"""The optimizer state beside a checkpoint: carried through the plan by the maps of gradients."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import torch

from growc.checkpoint.classes.new_tensors import GrownWeights
from growc.checkpoint.classes.on_disk import Opened
from growc.plans.plan import Plan
from growc.training.optimizer_state import carry, parameter_groups, read_optimizer

NAME = "optimizer.pt"
"""What a Trainer calls it."""


def carry_optimizer(path: Path, folder: Path, grown: GrownWeights[Opened], plan: Plan) -> str:
    """Write the state for the result into its folder; gives what is to be said of it.

    Raises GrowError (G316) where the state does not fit the model.
    """
    state = read_optimizer(path)
    weights = {
        grown.first[name]: replace(weight, name=grown.first[name]) for name, weight in grown.plans.items()
    }
    carried = carry(
        state,
        replace(plan, weights=tuple(weights.values())),
        parameter_groups(grown.source.module, state),
        [name for name, _ in grown.module.named_parameters()],
        aliases=grown.first,
    )
    torch.save(carried.state, folder / NAME)
    said = (
        f"`{NAME}` has the state of {len(carried.exact)} parameters as training the result would have made it"
    )
    if carried.approximate:
        said += f", and about that of {len(carried.approximate)}, such as `{carried.approximate[0]}`"
    return said + (f"; {len(carried.fresh)} begin afresh" if carried.fresh else "")
