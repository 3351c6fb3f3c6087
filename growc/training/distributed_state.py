"""The state of an optimizer in a distributed checkpoint: by names of parameters, in nested dictionaries or
flattened (torch.distributed.checkpoint.state_dict), or by numbers, as the optimizer itself has it.
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
from growc.training.optimizer_state import State, parameter_groups

if TYPE_CHECKING:
    import torch
    from torch import nn

STATE, GROUPS, PARAMETERS, NAMES = "state", "param_groups", "params", "param_names"


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint, read when it is asked for."""

    saved: Distributed
    key: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return self.saved.tensors[self.key].shape

    def read(self) -> torch.Tensor:
        """Its values."""
        return self.saved.tensor(self.key)


@dataclass(frozen=True)
class Unread:
    """A value of a group that holds objects of classes: it can be copied, and not looked into."""


def read(value: torch.Tensor | Stored) -> torch.Tensor:
    """A tensor of state, which may be in memory."""
    return value.read() if isinstance(value, Stored) else value


@dataclass
class SavedOptimizer:
    """One optimizer. prefix: the path below which it lies. flat: whether its own dictionary is flattened.

    fields: of each parameter, by its name or number, the key of each entry of its state. settings: of each
    group, by its number, the key of each entry; of a flat one every parameter is a group.
    """

    saved: Distributed
    module: nn.Module
    prefix: KeyPath
    flat: bool
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: dict[str, dict[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """All of its entries."""
        return {key for found in (*self.fields.values(), *self.settings.values()) for key in found.values()}

    @property
    def numbered(self) -> bool:
        """Whether parameters have numbers in place of names."""
        return not self.flat and any(isinstance(n, int) for group in self._listed for n in group)

    def state(self) -> State:
        """As the state_dict of a torch optimizer, whose tensors are `Stored`; its parameters: `names`.

        Raises GrowError (G316) where a parameter with state is in no group.
        """
        owners = self._owners()
        stray = next((owner for owner in self.fields if owner not in owners), None)
        if stray is not None:
            raise _misfit(f"the optimizer has state of `{stray}`, which is in none of its groups")
        entries = {owners[owner]: self._values(found) for owner, found in self.fields.items()}
        groups, at = [], 0
        for found, names in zip(self.settings.values(), self.names, strict=True):
            group = self._values({word: key for word, key in found.items() if word != PARAMETERS})
            groups.append({**group, PARAMETERS: list(range(at, at + len(names))), NAMES: names})
            at += len(names)
        return {STATE: entries, GROUPS: groups}

    @cached_property
    def names(self) -> list[list[str]]:
        """The names of the parameters of each group."""
        if self.flat:
            return [[owner] for owner in self.settings]
        listed = self._listed
        if not self.numbered:
            return [[str(name) for name in group] for group in listed]
        entries = {int(owner): self._values(found) for owner, found in self.fields.items()}
        groups: list[State] = [{PARAMETERS: group} for group in listed]
        for group, found in zip(groups, self.settings.values(), strict=True):
            group |= {NAMES: self.saved.value(found[NAMES])} if NAMES in found else {}
        return parameter_groups(self.module, {STATE: entries, GROUPS: groups})

    def merged(self) -> tuple[State, list[list[str]]]:
        """The state and the parameters of each group, where parameters with the same settings are one."""
        state, names = self.state(), self.names
        if not self.flat:
            return state, names
        alike: dict[object, int] = {}
        groups: list[State] = []
        for owner, group in zip(self.settings.values(), state[GROUPS], strict=True):
            what = tuple((word, self._content(key)) for word, key in sorted(owner.items()))
            if (at := alike.setdefault(what, len(groups))) == len(groups):
                groups.append({**group, PARAMETERS: [], NAMES: []})
            groups[at][PARAMETERS] += group[PARAMETERS]
            groups[at][NAMES] += group[NAMES]
        return {STATE: state[STATE], GROUPS: groups}, [group[NAMES] for group in groups]

    def _owners(self) -> dict[str, int]:
        """The number of each parameter, by what its state goes by."""
        listed = self.names if not self.numbered else self._listed
        return {str(owner): number for number, owner in enumerate(o for group in listed for o in group)}

    @cached_property
    def _listed(self) -> list[list[str | int]]:
        """What each group lists. Raises GrowError (G316) where that is no list, or one is there twice."""
        if self.flat:
            return [[owner] for owner in self.settings]
        groups: list[list[str | int]] = []
        for found in self.settings.values():
            listed = self.saved.value(found[PARAMETERS]) if PARAMETERS in found else None
            if not isinstance(listed, list) or not all(isinstance(one, str | int) for one in listed):
                raise _misfit("a group of the optimizer lists no parameters")
            groups.append(listed)
        every = [one for group in groups for one in group]
        if len(set(every)) < len(every):
            raise _misfit("a parameter is twice in the groups of the optimizer")
        return groups

    def _values(self, keys: Mapping[str, str]) -> State:
        return {word: self._value(key) for word, key in keys.items()}

    def _value(self, key: str) -> object:
        if key not in self.saved.tensors:
            with Attempt() as attempt:
                return self.saved.value(key)
            assert attempt.error is not None
            return Unread()
        stored = Stored(self.saved, key)
        return stored if stored.shape else stored.read()

    def _content(self, key: str) -> bytes:
        return self.saved.content(key) if key in self.saved.values else saved_bytes(self.saved.tensor(key))

    def path(self, *words: str | int) -> KeyPath:
        """Where an entry of a result lies."""
        return (*self.prefix, ".".join(map(str, words))) if self.flat else (*self.prefix, *words)


def optimizers_in(saved: Distributed, module: nn.Module) -> list[SavedOptimizer]:
    """The optimizers of a checkpoint whose parameters are a module's."""
    found: dict[KeyPath, SavedOptimizer] = {}
    names = set(module.state_dict())
    for key, path in saved.paths.items():
        said = _read(path, names)
        if said is not None:
            prefix, flat, kind, owner, word = said
            one = found.setdefault(prefix, SavedOptimizer(saved, module, prefix, flat))
            (one.fields if kind == STATE else one.settings).setdefault(owner, {})[word] = key
    places = {name: place for place, name in enumerate(module.state_dict())}
    for one in found.values():
        order = places.__getitem__ if one.flat else int
        one.settings = dict(sorted(one.settings.items(), key=lambda pair: order(pair[0])))
    return [one for one in found.values() if one.settings]


def _read(path: KeyPath, names: set[str]) -> tuple[KeyPath, bool, str, str, str] | None:
    """Below which path an entry of an optimizer lies, if it is flat, its kind, whose it is, and its name."""
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


def groups_as_saved(one: SavedOptimizer, names: Sequence[Sequence[str]]) -> list[list[str | int]]:
    """What the groups of a result list: names, or numbers, as they are in the source; and what the class does
    not have, as it was.
    """
    own = set(one.module.state_dict())
    found: list[list[str | int]] = []
    at = 0
    for group, before in zip(names, one.names, strict=True):
        if one.numbered:
            found.append(list(range(at, at + len(group))))
            at += len(group)
        else:
            found.append([*group, *(name for name in before if name not in own)])
    return found


def saved_bytes(value: object) -> bytes:
    """What `torch.save` makes of a value."""
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def _misfit(message: str) -> GrowError:
    return GrowError(Diagnostic("G316", message))
