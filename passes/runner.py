"""Passes as values, and what runs them in order and holds each to what it says of itself."""

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
    def run(self, given: Given) -> Made:
        """What they make."""

    def __rshift__(self, then: Step[Made, Later]) -> Step[Given, Later]:
        """These and then others, which take what these make."""
        return Passes((*self, *then), lambda given: then.run(self.run(given)))


@dataclass(frozen=True)
class Passes(Step[Given, Made]):
    """Several passes in order."""

    each: tuple[Pass[Never, Source], ...]
    all: Callable[[Given], Made]

    def __iter__(self) -> Iterator[Pass[Never, Source]]:
        return iter(self.each)

    def run(self, given: Given) -> Made:
        """What the last one makes."""
        return self.all(given)


@dataclass(frozen=True)
class Pass(Step[Given, Made]):
    """One step of the compiler. `requires`: the fields that it reads. `ensures`: those that it fills in.
    `remakes`: others that it may put something else into, where it edits the model.
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
        """What it does, in a line."""
        return (self.function.__doc__ or "").strip().partition("\n")[0]

    def run(self, given: Given) -> Made:
        """What the pass makes. Raises ContractError where that is not what it ensures."""
        made = self.function(given)
        filled = [
            name
            for name, value in vars(made).items()
            if name in self.ensures or vars(given).get(name, self) is not value
        ]
        for name in filled:
            if name not in (*self.ensures, *self.remakes):
                raise ContractError(f"the pass {self.name} changes `{name}`, and does not say so")
        made.after(self.name, made, filled)
        return made


class ContractError(Exception):
    """A pass does something that it does not say."""


def run(passes: Step[Begun, Later], given: Begun) -> Later:
    """Run passes, without looking for circular garbage: that costs more the larger the graph is."""
    collects = gc.isenabled()
    gc.disable()
    try:
        return passes.run(given)
    finally:
        if collects:
            gc.enable()
