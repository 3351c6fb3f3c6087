"""Optimizer state in a distributed checkpoint.

It is stored by names of parameters, in nested or flattened dictionaries
(torch.distributed.checkpoint.state_dict), or by numbers, as the optimizer itself stores it.
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from growc.checkpoint.files.distributed import Distributed
from growc.checkpoint.files.pieces import KeyPath
from growc.errors.diagnostic import Attempt, Diagnostic, GrowError
from growc.training.optimizer_state import OptimizerState, parameter_groups

if TYPE_CHECKING:
    import torch
    from torch import nn

STATE, GROUPS, PARAMETERS, NAMES = "state", "param_groups", "params", "param_names"


@dataclass(frozen=True)
class StoredState:
    """A tensor of a checkpoint, read on demand."""

    saved: Distributed
    key: str

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the tensor."""
        return self.saved.tensors[self.key].shape

    def read(self) -> torch.Tensor:
        """Return the tensor."""
        return self.saved.tensor(self.key)


@dataclass(frozen=True)
class Unread:
    """A group's value that holds objects of classes. It can be copied, but not inspected."""


def read(value: torch.Tensor | StoredState) -> torch.Tensor:
    """Return a tensor of state, which may be in memory already."""
    return value.read() if isinstance(value, StoredState) else value


@dataclass
class SavedOptimizer:
    """One optimizer of a checkpoint.

    prefix: the path above its entries. flat: whether its own dictionary is flattened.
    fields: for each parameter, by its name or number, the key of each entry of its state.
    settings: for each group, by its number, the key of each entry. In a flat one, every parameter is a group.
    """

    saved: Distributed
    module: nn.Module
    prefix: KeyPath
    flat: bool
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """The keys of all entries."""
        return {
            key
            for entry_keys in (*self.fields.values(), *self.settings.values())
            for key in entry_keys.values()
        }

    @property
    def numbered(self) -> bool:
        """Whether parameters have numbers instead of names."""
        return not self.flat and any(isinstance(n, int) for group in self._listed for n in group)

    def state(self) -> OptimizerState:
        """Return the state_dict of a torch optimizer, with `StoredState` tensors. Its parameters are `names`.

        Raises GrowError (G316) if a parameter with state is in no group.
        """
        owners = self._owners()
        stray = next((owner for owner in self.fields if owner not in owners), None)
        if stray is not None:
            raise _misfit(f"the optimizer has state of `{stray}`, which is in none of its groups")
        entries = {owners[owner]: self._values(keys) for owner, keys in self.fields.items()}
        groups, position = [], 0
        for keys, names in zip(self.settings.values(), self.names, strict=True):
            group = self._values({word: key for word, key in keys.items() if word != PARAMETERS})
            groups.append({**group, PARAMETERS: list(range(position, position + len(names))), NAMES: names})
            position += len(names)
        return {STATE: entries, GROUPS: groups}

    @cached_property
    def names(self) -> list[list[str]]:
        """The names of the parameters of each group."""
        if self.flat:
            return [[owner] for owner in self.settings]
        listed = self._listed
        if not self.numbered:
            return [[str(name) for name in group] for group in listed]
        entries = {int(owner): self._values(keys) for owner, keys in self.fields.items()}
        groups: list[OptimizerState] = [{PARAMETERS: group} for group in listed]
        for group, keys in zip(groups, self.settings.values(), strict=True):
            group |= {NAMES: self.saved.value(keys[NAMES])} if NAMES in keys else {}
        return parameter_groups(self.module, {STATE: entries, GROUPS: groups})

    def merged(self) -> tuple[OptimizerState, list[list[str]]]:
        """Return the state and the parameters of each group. Flat groups with equal settings are merged."""
        state, names = self.state(), self.names
        if not self.flat:
            return state, names
        group_of_settings: dict[object, int] = {}
        groups: list[OptimizerState] = []
        for owner, group in zip(self.settings.values(), state[GROUPS], strict=True):
            settings = tuple((word, self._content(key)) for word, key in sorted(owner.items()))
            if (position := group_of_settings.setdefault(settings, len(groups))) == len(groups):
                groups.append({**group, PARAMETERS: [], NAMES: []})
            groups[position][PARAMETERS] += group[PARAMETERS]
            groups[position][NAMES] += group[NAMES]
        return {STATE: state[STATE], GROUPS: groups}, [group[NAMES] for group in groups]

    def _owners(self) -> dict[str, int]:
        """Return the number of each parameter, by the name or number that its state is stored under."""
        listed = self.names if not self.numbered else self._listed
        return {str(owner): number for number, owner in enumerate(o for group in listed for o in group)}

    @cached_property
    def _listed(self) -> list[list[str | int]]:
        """The names or numbers that each group lists.

        Raises GrowError (G316) if a group lists none, or if one is listed twice.
        """
        if self.flat:
            return [[owner] for owner in self.settings]
        groups: list[list[str | int]] = []
        for keys in self.settings.values():
            listed = self.saved.value(keys[PARAMETERS]) if PARAMETERS in keys else None
            if not isinstance(listed, list) or not all(isinstance(one, str | int) for one in listed):
                raise _misfit("a group of the optimizer lists no parameters")
            groups.append(listed)
        all_listed = [one for group in groups for one in group]
        if len(set(all_listed)) < len(all_listed):
            raise _misfit("a parameter is twice in the groups of the optimizer")
        return groups

    def _values(self, keys: Mapping[str, str]) -> OptimizerState:
        return {word: self._value(key) for word, key in keys.items()}

    def _value(self, key: str) -> object:
        if key not in self.saved.tensors:
            with Attempt() as attempt:
                return self.saved.value(key)
            assert attempt.error is not None
            return Unread()
        stored = StoredState(self.saved, key)
        return stored if stored.shape else stored.read()

    def _content(self, key: str) -> bytes:
        return self.saved.content(key) if key in self.saved.values else saved_bytes(self.saved.tensor(key))

    def path(self, *words: str | int) -> KeyPath:
        """Return the path of an entry of a result."""
        return (*self.prefix, ".".join(map(str, words))) if self.flat else (*self.prefix, *words)


def optimizers_in(saved: Distributed, module: nn.Module) -> list[SavedOptimizer]:
    """Return the optimizers of a checkpoint whose parameters are a module's."""
    optimizers: dict[KeyPath, SavedOptimizer] = {}
    names = set(module.state_dict())
    for key, path in saved.paths.items():
        entry = _read(path, names)
        if entry is not None:
            prefix, flat, kind, owner, word = entry
            optimizer = optimizers.setdefault(prefix, SavedOptimizer(saved, module, prefix, flat))
            (optimizer.fields if kind == STATE else optimizer.settings).setdefault(owner, {})[word] = key
    places = {name: place for place, name in enumerate(module.state_dict())}
    for optimizer in optimizers.values():
        order = places.__getitem__ if optimizer.flat else int
        optimizer.settings = dict(sorted(optimizer.settings.items(), key=lambda pair: order(pair[0])))
    return [optimizer for optimizer in optimizers.values() if optimizer.settings]


def _read(path: KeyPath, names: set[str]) -> tuple[KeyPath, bool, str, str, str] | None:
    """Parse the path of an optimizer's entry: prefix, whether it is flat, kind, owner, and name, or None."""
    if len(path) >= 3 and path[-3] in (STATE, GROUPS):
        owner = str(path[-2])
        if path[-2] in names or owner.isdigit():
            return path[:-3], False, str(path[-3]), owner, str(path[-1])
        return None
    kind, _, rest = str(path[-1]).partition(".")
    if kind not in (STATE, GROUPS):
        return None
    owner, _, word = rest.rpartition(".")
    return (path[:-1], True, kind, owner, word) if owner in names else None


def groups_as_saved(optimizer: SavedOptimizer, names: Sequence[Sequence[str]]) -> list[list[str | int]]:
    """Return the lists of the result's groups: names, or numbers, as in the source.

    Names that the class does not have stay as they were.
    """
    module_names = set(optimizer.module.state_dict())
    lists: list[list[str | int]] = []
    position = 0
    for group, before in zip(names, optimizer.names, strict=True):
        if optimizer.numbered:
            lists.append(list(range(position, position + len(group))))
            position += len(group)
        else:
            lists.append([*group, *(name for name in before if name not in module_names)])
    return lists


def saved_bytes(value: object) -> bytes:
    """Return the bytes that `torch.save` writes for a value."""
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _misfit(message: str) -> GrowError:
    return GrowError(Diagnostic("G316", message))
