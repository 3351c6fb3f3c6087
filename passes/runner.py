"""Passes as values, and what runs them in order and holds each to what it says of itself."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields

from growc.compilation import Compilation


@dataclass(frozen=True)
class Pass:
    """One step of the compiler. `requires`: the fields that it reads; `ensures`: those that it fills in."""

    name: str
    run: Callable[[Compilation], Compilation]
    requires: tuple[str, ...]
    ensures: tuple[str, ...]

    @property
    def does(self) -> str:
        """What it does, in a line."""
        return (self.run.__doc__ or "").strip().partition("\n")[0]

    def __call__(self, c: Compilation) -> Compilation:
        """The compilation with what the pass ensures. Raises ContractError where it changes anything else."""
        made = self.run(c)
        for field in fields(c):
            if field.name not in self.ensures and getattr(made, field.name) is not getattr(c, field.name):
                raise ContractError(f"the pass {self.name} changes `{field.name}`, and does not say so")
        c.after(self, made)
        return made


class ContractError(Exception):
    """A pass does something that it does not say."""


def run(passes: Sequence[Pass], c: Compilation) -> Compilation:
    """All passes in order, without looking for circular garbage: that costs more the larger the graph is."""
    collects = gc.isenabled()
    gc.disable()
    try:
        for one in passes:
            c = one(c)
        return c
    finally:
        if collects:
            gc.enable()
