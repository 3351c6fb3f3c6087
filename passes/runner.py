"""Passes as values, and a runner that checks each pass against its declared fields."""

from __future__ import annotations

import gc
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Generic, Never, TypeVar

from growc.passes.compilation import Source

Given = TypeVar("Given", bound=Source, contravariant=True)
Made = TypeVar("Made", bound=Source, covariant=True)
Later = TypeVar("Later", bound=Source)
Begun = TypeVar("Begun", bound=Source)


class Step(ABC, Generic[Given, Made]):
    """One pass, or several in order."""

    @abstractmethod
    def __iter__(self) -> Iterator[Pass[Never, Source]]:
        """The passes, in order."""

    @abstractmethod
    def run(self, state: Given) -> Made:
        """The result of the passes."""

    def __rshift__(self, then: Step[Made, Later]) -> Step[Given, Later]:
        """These passes followed by others, which take their result."""
        return Passes((*self, *then), lambda state: then.run(self.run(state)))


@dataclass(frozen=True)
class Passes(Step[Given, Made]):
    """Several passes in order."""

    each: tuple[Pass[Never, Source], ...]
    all: Callable[[Given], Made]

    def __iter__(self) -> Iterator[Pass[Never, Source]]:
        return iter(self.each)

    def run(self, state: Given) -> Made:
        """The result of the last pass."""
        return self.all(state)


@dataclass(frozen=True)
class Pass(Step[Given, Made]):
    """One step of the compiler.

    requires: the fields that it reads.
    ensures: the fields that it fills in.
    remakes: other fields that it may replace if it edits the model.
    """

    name: str
    function: Callable[[Given], Made]
    requires: tuple[str, ...]
    ensures: tuple[str, ...]
    remakes: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[Pass[Never, Source]]:
        yield self

    @property
    def does(self) -> str:
        """The first line of the function's docstring."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def run(self, state: Given) -> Made:
        """The result of the pass. Raises ContractError if it changes fields that it does not declare."""
        result = self.function(state)
        filled = [
            name
            for name, value in vars(result).items()
            if name in self.ensures or vars(state).get(name, self) is not value
        ]
        for name in filled:
            if name not in (*self.ensures, *self.remakes):
                raise ContractError(f"the pass {self.name} changes `{name}`, and does not say so")
        result.after(self.name, result, filled)
        return result


class ContractError(Exception):
    """A pass changed a field that it does not declare."""


def run(passes: Step[Begun, Later], state: Begun) -> Later:
    """Run passes without the cyclic garbage collector, whose cost grows with the size of the graph."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return passes.run(state)
    finally:
        if collects:
            gc.enable()
