"""The state of an optimizer in a distributed checkpoint, by names of parameters: as nested dictionaries, or
flattened (torch.distributed.checkpoint.state_dict).
"""

from __future__ import annotations

import io
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from growc.checkpoint.files.distributed import Distributed, Path_

if TYPE_CHECKING:
    import torch

STATE, GROUPS, PARAMETERS = "state", "param_groups", "params"


@dataclass(frozen=True)
class Stored:
    """A tensor of a checkpoint, read when it is asked for."""

    saved: Distributed
    key: str

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape."""
        return tuple(self.saved.tensors[self.key].size)

    def read(self) -> torch.Tensor:
        """Its values."""
        return self.saved.tensor(self.key)


def read(value: torch.Tensor | Stored) -> torch.Tensor:
    """A tensor of state, which may be in memory."""
    return value.read() if isinstance(value, Stored) else value


@dataclass
class SavedOptimizer:
    """One optimizer. prefix: the path below which it lies. flat: whether its own dictionary is flattened.

    fields: by parameter and name, the key of each entry of its state. settings: by parameter, where it is
    flat, else by number, the key of each entry of a group.
    """

    saved: Distributed
    prefix: Path_
    flat: bool
    fields: dict[str, dict[str, str]] = field(default_factory=dict)
    settings: dict[str | int, dict[str, str]] = field(default_factory=dict)

    @property
    def keys(self) -> set[str]:
        """All of its entries."""
        return {key for found in (*self.fields.values(), *self.settings.values()) for key in found.values()}

    def state(self) -> dict[str, Any]:
        """As the state_dict of a torch optimizer, whose tensors are `Stored`; its parameters: `names`."""
        numbers = {name: k for k, name in enumerate(n for group in self.names() for n in group)}
        entries = {
            numbers[n]: {w: self._value(k) for w, k in found.items()} for n, found in self.fields.items()
        }
        groups = [
            {w: self._value(key) for w, key in found.items() if w != PARAMETERS}
            | {PARAMETERS: [numbers[name] for name in group]}
            for found, group in zip(self.settings.values(), self.names(), strict=True)
        ]
        return {STATE: entries, GROUPS: groups}

    def names(self) -> list[list[str]]:
        """The parameters of each group; of a flat one every parameter is a group."""
        if self.flat:
            return [[str(name)] for name in self.settings]
        return [list(self.saved.value(found[PARAMETERS])) for found in self.settings.values()]

    def _value(self, key: str) -> Any:
        if key not in self.saved.tensors:
            return self.saved.value(key)
        stored = Stored(self.saved, key)
        return stored if stored.shape else self.saved.tensor(key)

    def path(self, *words: str | int) -> Path_:
        """Where an entry of a result lies."""
        return (*self.prefix, ".".join(map(str, words))) if self.flat else (*self.prefix, *words)


def optimizers_in(saved: Distributed, names: Collection[str]) -> list[SavedOptimizer]:
    """The optimizers of a checkpoint whose parameters have some of these names."""
    found: dict[Path_, SavedOptimizer] = {}
    known = set(names)
    for key, path in saved.paths.items():
        read = _read(path, known)
        if read is not None:
            prefix, flat, kind, owner, word = read
            one = found.setdefault(prefix, SavedOptimizer(saved, prefix, flat))
            (one.fields if kind == STATE else one.settings).setdefault(owner, {})[word] = key
    return [one for one in found.values() if one.fields and one.settings]


def _read(path: Path_, names: set[str]) -> tuple[Path_, bool, str, Any, str] | None:
    """Below which path an entry of an optimizer lies, if it is flat, its kind, whose it is, and its name."""
    if len(path) >= 3 and path[-3] in (STATE, GROUPS) and (path[-3] == GROUPS or path[-2] in names):
        return path[:-3], False, str(path[-3]), path[-2], str(path[-1])
    kind, _, rest = str(path[-1]).partition(".")
    if kind not in (STATE, GROUPS):
        return None
    owner, _, word = rest.rpartition(".")
    return (path[:-1], True, kind, owner, word) if owner in names else None


def saved_bytes(value: object) -> bytes:
    """What `torch.save` makes of a value."""
    import torch

    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()
