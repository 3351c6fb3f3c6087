"""Training in stages: between two stages growc makes the next model, and carries the optimizer along.

StackBERT (Gong et al. 2019, algorithm 1) doubles the layers and trains all of them. MSLT (Yang et al. 2020,
section 3) adds layers on top, trains only these and the head, and trains everything in its last stage.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from inspect import signature
from typing import NamedTuple

from torch import nn, optim

from growc.training.optimizer_state import New, carry
from growc.training.submodels import grown, top_and_head


@dataclass(frozen=True)
class TrainingStage:
    """One stage of training.

    steps: its length. recipe: makes its model from the one before; empty for the same model. top: the number
    of top layers that are trained, together with everything after them; None for all parameters.
    """

    steps: int
    recipe: str = ""
    top: int | None = None


def stackbert(layers: int, steps: Sequence[int]) -> list[TrainingStage]:
    """Return a stage for each number of steps.

    The first has `layers` layers, each other twice as many as the one before.
    """
    grown = [TrainingStage(n, f"stack layers to {layers * 2**k} by whole") for k, n in enumerate(steps) if k]
    return [TrainingStage(steps[0]), *grown]


def mslt(layers: int, added: int, steps: Sequence[int]) -> list[TrainingStage]:
    """Return a stage for each number of steps.

    Each but the first and the last adds layers, and the last trains everything.
    """
    grown = [
        TrainingStage(n, f"stack layers to {layers + k * added} by top {added}", added)
        for k, n in enumerate(steps[:-1])
        if k
    ]
    return [TrainingStage(steps[0]), *grown, TrainingStage(steps[-1])]


class Staged(NamedTuple):
    """A stage's model and optimizer.

    approximate: parameters whose state differs from that of training. fresh: parameters that begin without
    state.
    """

    module: nn.Module
    optimizer: optim.Optimizer
    approximate: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()


def enter(
    stage: TrainingStage,
    module: nn.Module,
    optimizer: optim.Optimizer,
    example_inputs: object = None,
    *,
    new: New = "mapped",
) -> Staged:
    """Enter a stage from the one before: make its model and optimizer, and train only its parameters.

    The optimizer is of the same kind, with its state carried along. It has all parameters of `module`, in any
    groups. Parameters that are not trained get no gradient. `example_inputs` are as for `growc.apply`, `new`
    as for `growc apply --optimizer-new`. Raises GrowError.
    """
    entered = Staged(module, optimizer)
    if stage.recipe:
        entered = _carried(stage.recipe, module, optimizer, example_inputs, new)
    model = entered.module
    chosen = None if stage.top is None else top_and_head(model, stage.top, example_inputs)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_(chosen is None or name in chosen)
    return entered


def _carried(
    recipe: str, module: nn.Module, optimizer: optim.Optimizer, example_inputs: object, new: New
) -> Staged:
    names = {parameter: name for name, parameter in module.named_parameters()}
    before = [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
    model, plan = grown(recipe, module, example_inputs)
    parameters = dict(model.named_parameters())
    carried = carry(optimizer.state_dict(), plan, before, list(parameters), new=new)
    groups = [{"params": [parameters[name] for name in names]} for names in carried.names]
    accepted = signature(
        type(optimizer)
    ).parameters  # torch's defaults hold more than its constructors accept
    defaults = {name: value for name, value in optimizer.defaults.items() if name in accepted}
    next_optimizer = type(optimizer)(groups, **defaults)
    next_optimizer.load_state_dict(carried.state)
    return Staged(model, next_optimizer, carried.approximate, carried.fresh)
