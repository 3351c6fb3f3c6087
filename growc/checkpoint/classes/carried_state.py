"""The state of an optimizer for a new checkpoint, made from a plan."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from growc.checkpoint.classes.new_tensors import GrownWeights
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.torch_tensors import on_disk
from growc.plans.plan import Plan, WeightPlan
from growc.training.distributed_state import StoredState, read
from growc.training.optimizer_state import Carried, Make, New, OptimizerState, carry, mapped

if TYPE_CHECKING:
    import torch

OPTIMIZER = "optimizer.pt"
"""File name under which a Trainer saves the optimizer's state."""


def carried_by(
    grown: GrownWeights[CheckpointOnDisk],
    plan: Plan,
    state: OptimizerState,
    groups: Sequence[Sequence[str]],
    new: New,
    make: Make = mapped,
) -> Carried:
    """The optimizer's state for the result.

    groups: the source's parameters, in the order in which the optimizer numbers them. make: see
    growc.training.optimizer_state.carry. Raises GrowError (G316) if the state does not fit the model.
    """
    weights = {
        grown.first[name]: replace(weight, name=grown.first[name]) for name, weight in grown.plans.items()
    }
    before = [[grown.first.get(name, name) for name in group] for group in groups]
    after = [grown.first[name] for name, _ in grown.module.named_parameters()]
    places = {name: place for place, name in enumerate(name for group in before for name in group)}
    group_places = [[places[name] for name in after if name in group] for group in map(set, before)]
    if group_places != [
        sorted(group) for group in group_places
    ]:  # the optimizer does not number in the module's order: keep its own
        origin = {name: weight.copy_of or weight.source for name, weight in weights.items()}
        after.sort(key=lambda name: places.get(origin.get(name) or name, len(places)))
    return carry(state, replace(plan, weights=tuple(weights.values())), before, after, new=new, make=make)


def carry_optimizer(
    state: OptimizerState,
    groups: Sequence[Sequence[str]],
    folder: Path,
    grown: GrownWeights[CheckpointOnDisk],
    plan: Plan,
    new: New,
) -> str:
    """Write the optimizer's state for the result into its folder, and return a sentence that describes it.

    Raises GrowError (G316) if the state does not fit the model.
    """
    import torch

    with tempfile.TemporaryDirectory(dir=folder.parent) as files:
        empty = on_disk(Path(files))

        def make(weight: WeightPlan, value: torch.Tensor | StoredState) -> torch.Tensor:
            return mapped(weight, read(value), empty)

        carried = carried_by(grown, plan, state, groups, new, make)
        for entries in carried.state["state"].values():
            entries |= {
                word: read(value) for word, value in entries.items() if isinstance(value, StoredState)
            }
        torch.save(carried.state, folder / OPTIMIZER)
    return told_of(OPTIMIZER, carried, new)


def told_of(place: str, carried: Carried, new: New) -> str:
    """A sentence for the user about a state that was carried to a place."""
    exact = f"`{place}` has the state of {len(carried.exact)} parameters"
    sentence = f"{exact} as training the result would have made it"
    if carried.approximate:
        sentence += f", and about that of {len(carried.approximate)}, such as `{carried.approximate[0]}`"
    sentence += "; entries of new units are zero" if new == "zero" else ""
    sentence += f"; {len(carried.fresh)} begin afresh" if carried.fresh else ""
    return sentence + (f"; {len(carried.absent)} are in no group of it" if carried.absent else "")
