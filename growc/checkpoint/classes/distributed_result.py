"""The contents of a new distributed checkpoint, made from a plan: weights, optimizers and other entries."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from growc.checkpoint.classes.carried_state import carried_by, told_of
from growc.checkpoint.classes.new_tensors import GrownWeights
from growc.checkpoint.classes.on_disk import CheckpointOnDisk
from growc.checkpoint.files.distributed import Distributed
from growc.checkpoint.files.pieces import KeyPath
from growc.checkpoint.files.safetensors_file import DTYPES, HeaderEntry, Readable
from growc.checkpoint.files.torch_tensors import entry_of
from growc.checkpoint.files.write_distributed import Contents, key_of
from growc.dialects.torch.operators.arrays import to_numpy
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.plans.execute import planned
from growc.plans.lazy_rows import Rows, stored
from growc.plans.plan import Plan, WeightPlan
from growc.training.distributed_state import (
    GROUPS,
    NAMES,
    PARAMETERS,
    STATE,
    SavedOptimizer,
    StoredState,
    groups_as_saved,
    optimizers_in,
    read,
    saved_bytes,
)
from growc.training.optimizer_state import KEPT, Carried, New, parameter_groups, read_optimizer

MODEL: KeyPath = ("model",)
OPTIMIZER: KeyPath = ("optim",)
"""Key paths of the weights and of the optimizer's state if the source gives none."""


@dataclass(frozen=True)
class ComputedState:
    """A tensor of optimizer state that is computed when it is written."""

    plan: WeightPlan
    value: torch.Tensor | StoredState

    def rows(self) -> Rows:
        """The tensor's values by rows."""
        return planned(self.plan, to_numpy(read(self.value)))

    @property
    def entry(self) -> HeaderEntry:
        """Element type and shape, as a file states them."""
        value = self.value
        stored_entry = value.saved.entry(value.key) if isinstance(value, StoredState) else entry_of("", value)
        return replace(stored_entry, shape=self.plan.after)


def contents_of(
    grown: GrownWeights[CheckpointOnDisk], plan: Plan, optimizer: Path | None, new: New
) -> Contents:
    """The contents of a result's distributed checkpoint.

    optimizer: a file with an optimizer's state, used in place of the states that lie beside the weights.
    Raises GrowError (G316) if a state does not fit the model.
    """
    contents, checkpoint = Contents(), grown.source.checkpoint
    saved = checkpoint.distributed
    prefix = checkpoint.prefix if saved else MODEL
    for name, plan_name in _names(grown):
        contents.add((*prefix, name), grown.entry(plan_name), partial(grown.make, plan_name), plan_name)
    for name in grown.source.names.unused:
        tensor = checkpoint.tensors[name]
        contents.add((*prefix, name), tensor.entry, partial(_stored, tensor))
    shapes = {grown.first[name]: tuple(p.shape) for name, p in grown.module.named_parameters()}
    if optimizer is not None:
        state = read_optimizer(optimizer)
        groups = parameter_groups(grown.source.module, state)
        carried = carried_by(grown, plan, state, groups, new, ComputedState)
        _add_state(contents, carried, lambda *words: (*OPTIMIZER, *words), shapes)
        _add_groups(contents, carried)
        contents.remarks.append(told_of(key_of(OPTIMIZER), carried, new))
    if saved:
        handled_keys = {key for key in saved.tensors if saved.paths[key][:-1] == prefix}
        for one in optimizers_of(grown):
            handled_keys |= one.keys
            if optimizer is None:
                carried = carried_by(grown, plan, one.state(), one.names, new, ComputedState)
                place = partial(_numbered, one, carried) if one.numbered else one.path
                _add_state(contents, carried, place, shapes)
                _add_settings(contents, one, carried)
                contents.remarks.append(told_of(key_of(one.prefix) or "the optimizer", carried, new))
        for key in (key for key in saved.paths if key not in handled_keys):
            _require_no_copy(grown, saved, key)
            contents.copy(saved, key)
    return contents


def _require_no_copy(grown: GrownWeights[CheckpointOnDisk], saved: Distributed, key: str) -> None:
    """Raise GrowError (G310) if a key is another copy (an average, say) of a weight that changes."""
    name = str(saved.paths[key][-1])
    if key not in saved.tensors or name not in grown.source.stored:
        return
    plan = grown.plans.get(grown.first.get(name, name))
    if saved.tensors[key].shape == grown.source.entry(name).shape and (plan is None or plan.changed):
        message = f"`{key}` looks like another copy of a weight, and would stay as it is"
        remedy = "save it in a checkpoint of its own, and grow that by the same recipe"
        raise GrowError(Diagnostic("G310", message, help=remedy))


def _numbered(optimizer: SavedOptimizer, carried: Carried, kind: str, name: str, word: str) -> KeyPath:
    """The key path of a parameter's state in an optimizer that numbers its parameters."""
    names = [n for group in carried.names for n in group]
    return optimizer.path(kind, str(names.index(name)), word)


def _stored(tensor: Readable) -> Rows:
    return stored(tensor.read())


def _names(grown: GrownWeights[CheckpointOnDisk]) -> Iterator[tuple[str, str]]:
    """The names under which tensors are stored, each with the name of its plan.

    If a tensor has several names, those that the source stores are given. All are given if the source's files
    store only one.
    """
    stored_names = grown.source.checkpoint.tensors
    of_first = {grown.first[name]: name for name in grown.plans}
    for name in grown.module.state_dict():
        plan_name = of_first[grown.first[name]]
        if name == plan_name or name in stored_names or not grown.source.checkpoint.distributed:
            yield name, plan_name


def optimizers_of(grown: GrownWeights[CheckpointOnDisk]) -> list[SavedOptimizer]:
    """The optimizers that lie beside the weights of the source."""
    saved = grown.source.checkpoint.distributed
    return optimizers_in(saved, grown.source.module) if saved else []


def _add_settings(contents: Contents, optimizer: SavedOptimizer, carried: Carried) -> None:
    """Add the groups of an optimizer, each with its parameters."""
    listed = groups_as_saved(optimizer, carried.names)
    for owner, names, members in zip(optimizer.settings, carried.names, listed, strict=True):
        for place in names if optimizer.flat else (int(owner),):
            for word, key in optimizer.settings[owner].items():
                path = optimizer.path(GROUPS, place, word)
                if word in (PARAMETERS, NAMES):
                    contents.add_value(path, saved_bytes(members if word == PARAMETERS else list(names)))
                else:
                    contents.add_copy(path, optimizer.saved, key)


def _add_groups(contents: Contents, carried: Carried) -> None:
    for number, (group, names) in enumerate(zip(carried.state[GROUPS], carried.names, strict=True)):
        for word, value in {**group, PARAMETERS: list(names)}.items():
            if word != NAMES:
                contents.add_value((*OPTIMIZER, GROUPS, number, word), saved_bytes(value))


def _add_state(
    contents: Contents, carried: Carried, path: Callable[..., KeyPath], shapes: Mapping[str, tuple[int, ...]]
) -> None:
    """Add the state of each parameter. Fresh state is zeros, since loading asks for all entries."""
    entries = carried.state[STATE]
    example_entries: Mapping[str, object] = next(
        (e for e in entries.values() if any(isinstance(v, ComputedState) for v in e.values())), {}
    )
    for number, name in enumerate(name for group in carried.names for name in group):
        fresh = number not in entries
        for word, value in entries.get(number, example_entries).items():
            place = path(STATE, name, word)
            if isinstance(value, ComputedState) and fresh:
                entry = replace(value.entry, shape=shapes[name])
                contents.add(place, entry, partial(_zeros, entry))
            elif isinstance(value, ComputedState):
                contents.add(place, value.entry, value.rows)
            elif isinstance(value, StoredState):  # state of unknown kind, of a weight that stays
                contents.add_copy(place, value.saved, value.key)
            elif isinstance(value, Tensor):
                stored_value = torch.zeros_like(value) if fresh else value
                contents.add(place, entry_of("", stored_value), partial(stored, to_numpy(stored_value)))
            else:
                contents.add_value(place, saved_bytes(0 if fresh and word in KEPT else value))


def _zeros(entry: HeaderEntry) -> Rows:
    return stored(np.zeros(entry.shape, DTYPES[entry.dtype]))
