"""Training in stages: between two of them the compiler makes the next model, and the optimizer comes along.

StackBERT (Gong et al. 2019, algorithm 1) doubles the layers and trains all of them. MSLT (Yang et al. 2020,
section 3) adds layers on top, trains these and the head alone, and trains everything in its last stage.
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
class Stage:
    """steps: for how long it trains. recipe: how its model is made of the one before; empty for the same.
    top: how many of the top layers are trained, with what follows them; None for everything.
    """

    steps: int
    recipe: str = ""
    top: int | None = None


def stackbert(layers: int, steps: Sequence[int]) -> list[Stage]:
    """A stage for each number of steps: `layers` layers first, then twice as many again and again."""
    grown = [Stage(n, f"stack layers to {layers * 2**k} by whole") for k, n in enumerate(steps) if k]
    return [Stage(steps[0]), *grown]


def mslt(layers: int, added: int, steps: Sequence[int]) -> list[Stage]:
    """A stage for each number of steps: each but the first adds layers, and the last trains everything."""
    grown = [
        Stage(n, f"stack layers to {layers + k * added} by top {added}", added)
        for k, n in enumerate(steps[:-1])
        if k
    ]
    return [Stage(steps[0]), *grown, Stage(steps[-1])]


class Staged(NamedTuple):
    """A stage's model and its optimizer. approximate: parameters whose state is not what training would have
    made of it; fresh: those that begin without state.
    """

    module: nn.Module
    optimizer: optim.Optimizer
    approximate: tuple[str, ...] = ()
    fresh: tuple[str, ...] = ()


def enter(
    stage: Stage,
    module: nn.Module,
    optimizer: optim.Optimizer,
    example_inputs: object = None,
    *,
    new: New = "mapped",
) -> Staged:
    """Enter a stage from the one before: its model, an optimizer of the same kind with the state carried
    along, and only the stage's parameters to train.

    The optimizer has all parameters of `module`, in any groups; those that are not trained get no gradient.
    `example_inputs` are as for `growc.apply`, `new` as for `growc apply --optimizer-new`. Raises GrowError.
    """
    entered = Staged(module, optimizer)
    if stage.recipe:
        entered = _carried(stage.recipe, module, optimizer, example_inputs, new)
    made = entered.module
    chosen = None if stage.top is None else top_and_head(made, stage.top, example_inputs)
    for name, parameter in made.named_parameters():
        parameter.requires_grad_(chosen is None or name in chosen)
    return entered


def _carried(
    recipe: str, module: nn.Module, optimizer: optim.Optimizer, example_inputs: object, new: New
) -> Staged:
    names = {parameter: name for name, parameter in module.named_parameters()}
    before = [[names[parameter] for parameter in group["params"]] for group in optimizer.param_groups]
    made, plan = grown(recipe, module, example_inputs)
    parameters = dict(made.named_parameters())
    carried = carry(optimizer.state_dict(), plan, before, list(parameters), new=new)
    groups = [{"params": [parameters[name] for name in names]} for names in carried.names]
    taken = signature(type(optimizer)).parameters  # torch keeps more among its defaults than it takes
    defaults = {name: value for name, value in optimizer.defaults.items() if name in taken}
    following = type(optimizer)(groups, **defaults)
    following.load_state_dict(carried.state)
    return Staged(made, following, carried.approximate, carried.fresh)
