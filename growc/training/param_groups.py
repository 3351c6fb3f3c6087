"""What a trainer does with a lineage: parameters by where their entries come from, and freezing some of them.

An entry is old (the source's own, though it may have another factor), copied (a copy of one), or new (zero,
drawn, a mean).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from growc.algebra.indexmap import Ints
from growc.plans.plan import Plan
from growc.training.hold import Method, held_groups
from growc.training.optimizer_state import all_names

if TYPE_CHECKING:
    import torch

Kind = Literal["old", "copied", "new"]
KINDS: tuple[Kind, ...] = ("old", "copied", "new")
"""In the order in which an entry counts for the parameter that it stands in."""

OLD, COPIED, NEW = range(3)


def entry_kinds(module: torch.nn.Module, lineage: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """For each parameter a tensor of its shape, with the number in KINDS of every entry.

    `lineage` is `growc.plans.lineage.lineage_of` of a plan, or what `growc apply --lineage` wrote.
    """
    import torch

    found: dict[str, torch.Tensor] = {}
    for parameter, names in all_names(module).items():
        listed = [lineage["weights"][name] for name in names if name in lineage["weights"]]
        kinds = _kinds(listed[0] if listed else {}, lineage["maps"], tuple(parameter.shape), names[0])
        found[names[0]] = torch.from_numpy(kinds).to(parameter.device)
    return found


def _kinds(
    weight: Mapping[str, Any], maps: Sequence[Mapping[str, object]], shape: tuple[int, ...], name: str
) -> Ints:
    """The kind of each entry of one weight; one that the lineage does not mention is old."""
    if weight and tuple(weight["shape"]) != shape:
        raise ValueError(f"`{name}` has shape {list(shape)}, and {weight['shape']} in the lineage")
    whole = NEW if weight.get("zero") else COPIED if weight.get("copy") else OLD
    kinds = np.full(shape, whole, dtype=np.int64)
    for axis, step in weight.get("axes", {}).items():
        made = maps[step["map"]]
        units = np.full(len(made["from"]), OLD, dtype=np.int64)
        units[made["new"]] = COPIED
        units[np.asarray(made["from"]) < 0] = NEW
        places = [1] * len(shape)
        places[int(axis)] = len(units)
        kinds = np.maximum(kinds, units.reshape(places))
    return kinds


def param_groups(
    module: torch.nn.Module,
    lineage: Mapping[str, object] | Plan,
    *,
    hold: bool = False,
    method: Method = "adamw",
    lr: float | None = None,
    weight_decay: float = 0.0,
    eps: float = 1e-8,
    **options: Mapping[str, object],
) -> list[dict[str, object]]:
    """Groups for a torch optimizer: parameters that are all old, have copied entries, have new ones.

    Keywords give the options of a group: `param_groups(m, lineage, old={"lr": 1e-5}, new={"lr": 1e-3})`. An
    empty group is left out. Entries of one parameter cannot have rates of their own; `freeze` parts them.

    With `hold`, groups by the numbers with which training the module is training the source with `lr`,
    `weight_decay` and `eps` (growc.training.hold.Held): `param_groups(m, m.plan, hold=True, lr=1e-3)`.
    Raises TypeError for what does not go together.
    """
    if hold:
        if not isinstance(lineage, Plan) or lr is None or options:
            raise TypeError("`hold` takes a plan (`module.plan`), `lr`, and no options of groups")
        return held_groups(module, lineage, method, lr=lr, weight_decay=weight_decay, eps=eps)
    if isinstance(lineage, Plan):
        raise TypeError("groups by where entries come from take a lineage (`module.lineage`), and no plan")
    unknown = options.keys() - set(KINDS)
    if unknown:
        raise TypeError(f"groups are {', '.join(KINDS)}, and there is no group `{min(unknown)}`")
    members: dict[str, list[tuple[str, torch.nn.Parameter]]] = {kind: [] for kind in KINDS}
    kinds = entry_kinds(module, lineage)
    for name, parameter in module.named_parameters():
        newest = int(kinds[name].max()) if kinds[name].numel() else OLD
        members[KINDS[newest]].append((name, parameter))
    return [
        {"params": named, "name": kind, **options.get(kind, {})} for kind, named in members.items() if named
    ]


def freeze(
    module: torch.nn.Module, lineage: Mapping[str, object], kinds: Collection[Kind] = KINDS[:1]
) -> list[object]:
    """Keep the gradients of all entries of some kinds at zero, in parameters that hold others too.

    Parameters that hold no others get no gradient at all. Weight decay works without gradients: groups of
    parameters that are frozen in part must not have any. Returns the hooks; `remove` ends each.
    """
    import torch

    hooks = []
    numbers = [KINDS.index(kind) for kind in kinds]
    for name, entries in entry_kinds(module, lineage).items():
        parameter = module.get_parameter(name)
        kept = ~torch.isin(entries, torch.tensor(numbers, device=entries.device))
        if not kept.any():
            parameter.requires_grad_(False)
        elif not kept.all():
            hook = partial(torch.mul, kept)
            hooks.append(parameter.register_hook(hook))
    return hooks
