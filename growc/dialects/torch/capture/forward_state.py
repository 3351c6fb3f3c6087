"""State that a forward leaves in the attributes of its module, and whether the next call computes by it.

A program of torch.export is one call of a forward. A module that counts its calls may compute something else
in the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.export import ExportedProgram

__all__ = ["StatefulError", "of_every_call"]

OWN = nn.Module().__dict__.keys()
"""The attributes that every module has."""
PLAIN = (bool, int, float, complex, str, bytes, type(None))


class StatefulError(Exception):
    """A forward that computes something else when it is called again."""


def of_every_call(module: nn.Module, export: Callable[[], ExportedProgram]) -> ExportedProgram:
    """Return the program of a call from the module's state, which torch.export restores.

    If the call changes plain attributes, a call after it must have the same program. Later calls are taken to
    be like that one. Raises StatefulError with the attributes, if they differ.
    """
    before, changes = _attributes(module), list[dict[_Place, object]]()

    def record(*_: object) -> None:
        after = _attributes(module)
        changes.append({place: place.value for place in after if after[place] != before.get(place)})

    with module.register_forward_hook(record):
        program = export()
    changed = changes[0] if changes else {}
    if not changed:
        return program

    def begin(*_: object) -> None:
        for place, value in changed.items():
            place.part.__dict__[place.attribute] = value

    with module.register_forward_pre_hook(begin):
        again = export()
    if _same(program, again):
        return program
    names = ", ".join(f"`{place.attribute}`" for place in changed)
    raise StatefulError(f"its forward changes {names}, and computes something else when it is called again")


@dataclass(frozen=True)
class _Place:
    """An attribute of a part of a module."""

    part: nn.Module
    attribute: str

    @property
    def value(self) -> object:
        """The content of the attribute."""
        return self.part.__dict__[self.attribute]


@dataclass(eq=False)
class _Thing:
    """A thing that is only equal to itself."""

    value: object

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Thing) and other.value is self.value


def _attributes(module: nn.Module) -> dict[_Place, object]:
    """Return the plain content of all attributes."""
    return {
        _Place(part, name): _content(value)
        for part in module.modules()
        for name, value in part.__dict__.items()
        if name not in OWN
    }


def _content(value: object) -> object:
    """Return numbers and texts, also those in mappings and sequences. Other things are known by identity."""
    if isinstance(value, PLAIN):
        return type(value), value
    if isinstance(value, Tensor | torch.SymInt):
        return Tensor
    if isinstance(value, Mapping):
        return [(_content(key), _content(one)) for key, one in value.items()]
    if isinstance(value, list | tuple):
        return [*map(_content, value)]
    if isinstance(value, Set):
        return {repr(one) for one in value}
    return _Thing(value)


def _same(one: ExportedProgram, other: ExportedProgram) -> bool:
    """Whether two programs have the same calls and constants."""
    constants = one.constants.keys() == other.constants.keys() and all(
        value is other.constants[name] or _equal(value, other.constants[name])
        for name, value in one.constants.items()
    )
    return constants and str(one.graph) == str(other.graph)


def _equal(one: object, other: object) -> bool:
    if not isinstance(one, Tensor) or not isinstance(other, Tensor):
        return one is other
    return one.dtype == other.dtype and torch.equal(one, other)
