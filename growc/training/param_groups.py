"""Parameter groups by lineage: parameters by the origin of their entries, and freezing of some entries.

An entry is old (the source's own, possibly with another factor), copied (a copy of one), or new (zero, drawn,
a mean).
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

ParameterKind = Literal["old", "copied", "new"]
KINDS: tuple[ParameterKind, ...] = ("old", "copied", "new")
"""In ascending order of precedence: a parameter has the last kind that any of its entries has."""

OLD, COPIED, NEW = range(3)


def entry_kinds(module: torch.nn.Module, lineage: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Return, for each parameter, a tensor of its shape with the index in KINDS of every entry.

    `lineage` is `growc.plans.lineage.lineage_of` of a plan, or the content of a file written by `growc apply
    --lineage`.
    """
    import torch

    kinds_by_name: dict[str, torch.Tensor] = {}
    for parameter, names in all_names(module).items():
        listed = [lineage["weights"][name] for name in names if name in lineage["weights"]]
        kinds = _kinds(listed[0] if listed else {}, lineage["maps"], tuple(parameter.shape), names[0])
        kinds_by_name[names[0]] = torch.from_numpy(kinds).to(parameter.device)
    return kinds_by_name


def _kinds(
    weight: Mapping[str, Any], maps: Sequence[Mapping[str, object]], shape: tuple[int, ...], name: str
) -> Ints:
    """Return the kind of each entry of a weight. A weight that the lineage does not mention is old.

    Raises ValueError if shapes differ.
    """
    if weight and tuple(weight["shape"]) != shape:
        raise ValueError(f"`{name}` has shape {list(shape)}, and {weight['shape']} in the lineage")
    default = NEW if weight.get("zero") else COPIED if weight.get("copy") else OLD
    kinds = np.full(shape, default, dtype=np.int64)
    for axis, step in weight.get("axes", {}).items():
        index_map = maps[step["map"]]
        units = np.full(len(index_map["from"]), OLD, dtype=np.int64)
        units[index_map["new"]] = COPIED
        units[np.asarray(index_map["from"]) < 0] = NEW
        broadcast_shape = [1] * len(shape)
        broadcast_shape[int(axis)] = len(units)
        kinds = np.maximum(kinds, units.reshape(broadcast_shape))
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
    """Return groups for a torch optimizer: parameters all old, with copied entries, or with new entries.

    Keywords give the options of a group: `param_groups(m, lineage, old={"lr": 1e-5}, new={"lr": 1e-3})`.
    Empty groups are omitted. Entries of one parameter cannot have separate rates; `freeze` separates them.

    With `hold`, the groups have the numbers with which training the module is training the source with `lr`,
    `weight_decay` and `eps` (growc.training.hold.Held): `param_groups(m, m.plan, hold=True, lr=1e-3)`. Raises
    TypeError for arguments that do not go together.
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
    module: torch.nn.Module, lineage: Mapping[str, object], kinds: Collection[ParameterKind] = KINDS[:1]
) -> list[object]:
    """Keep the gradients of all entries of some kinds at zero, in parameters that have other entries too.

    Parameters with no other entries get no gradient at all. Weight decay works without gradients, so groups
    of partly frozen parameters must have none. Returns the hooks; `remove` ends each.
    """
    import torch

    hooks = []
    numbers = [KINDS.index(kind) for kind in kinds]
    for name, entries in entry_kinds(module, lineage).items():
        parameter = module.get_parameter(name)
        trainable = ~torch.isin(entries, torch.tensor(numbers, device=entries.device))
        if not trainable.any():
            parameter.requires_grad_(False)
        elif not trainable.all():
            hook = partial(torch.mul, trainable)
            hooks.append(parameter.register_hook(hook))
    return hooks
