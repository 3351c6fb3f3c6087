"""Configs that are tried: each builds the class, and is judged by how much of the planned program it has.

Needs: the source's config, `Target`, a function that builds. Gives: `Trials`, which builds each config once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from torch import nn

from growc.dialects.transformers.config.fields import Path, Values, changed, leaves, scaled
from growc.dialects.transformers.config.shapes import (
    Feature,
    Shape,
    Ties,
    agreement,
    among,
    features,
    layer_counts,
    read_by,
    shapes_of,
    ties_of,
)
from growc.dialects.transformers.log.entry import Log, alike
from growc.dialects.transformers.log.record import operator_log
from growc.dialects.transformers.log.zero_branches import awake
from growc.errors.diagnostic import Attempt


class Build(Protocol):
    """Builds the class of a config on meta; `constants`: buffers that no checkpoint holds have values."""

    def __call__(self, config: dict[str, object], *, constants: bool = False) -> nn.Module:
        """The module in evaluation mode; raises where the class does not take the config."""
        ...


@dataclass(frozen=True)
class Target:
    """What the planned program is.

    shapes: of all that the result's checkpoint holds and the program reads: what else its class has is free.
    ties: names that are one tensor. log: of the planned program on `inputs`. layers: for each container whose
    layers change, the source layer of each new one. zeros: stored tensors that are zero. fixed: the program
    takes no other sizes, but for rows.
    """

    shapes: Mapping[str, Shape]
    ties: Ties
    log: Log
    inputs: Mapping[str, object]
    layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()
    fixed: bool = False


@dataclass(frozen=True)
class Built:
    """A class as a config makes it; without shapes where it refuses the config, in the words of `failed`."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    ties: Ties = frozenset()
    log: Log | None = None
    failed: str = ""


Known = dict[tuple[str, bool, bool], Built]
"""Configs that were built, for any target: the config, whether with its log, and `Target.fixed`."""


@dataclass(frozen=True)
class Trial(Built):
    """A config with other values than the source's, and what came of it."""

    values: Values = field(default_factory=dict)

    @cached_property
    def features(self) -> dict[Feature, int]:
        """Its sizes."""
        return features(self.shapes)

    @cached_property
    def read(self) -> Mapping[str, Shape]:
        """The shapes of all that it reads, or of all where that is not known."""
        return self.shapes if self.log is None else read_by(self.log.reads, self.shapes, self.ties)

    @cached_property
    def key(self) -> str:
        """Equal for equal values."""
        return repr(sorted(self.values.items(), key=repr))


class Trials:
    """The source's config with other values, built when they are asked for.

    config: with all fields that the class has. leaves: its numbers that may change. wanted: the planned
    sizes. decided: values that the caller decides. start: the source with these.
    paired: where the class refuses a number alone, another one goes along in proportion. refusals: what it
    said of numbers that sizes suggest.
    """

    def __init__(
        self,
        given: Mapping[str, object],
        target: Target,
        build: Build,
        known: Known | None = None,
        decided: Values | None = None,
    ) -> None:
        self.given, self.target, self.build, self.paired = dict(given), target, build, False
        self.known: Known = {} if known is None else known
        self.config = complete(build(self.given), self.given)
        self.leaves = dict(leaves(self.config))
        self.wanted = features(target.shapes)
        self.seen: dict[str, Trial] = {}
        self.partners: dict[Path, list[Path]] = {}
        self.filled: dict[str, bool] = {}
        self.refusals: list[Trial] = []
        self.decided: Values = {}
        self.source = self.of({})
        self.decided = decided or {}
        for path in self.decided:
            self.leaves = {p: v for p, v in self.leaves.items() if p[: len(path)] != path[: len(p)]}
        self.start = self.of({})

    @cached_property
    def before(self) -> dict[Feature, int]:
        """The sizes of the source; of a layer that the result has, those of the one that it comes from."""
        return {(n, k): self.source.features.get((self.origin(n), k), -1) for n, k in self.wanted}

    def origin(self, name: str) -> str:
        """The name that a tensor of the result has in the source: its layers may come from others there."""
        words = name.split(".")
        found = list(words)
        for place, word in enumerate(words):
            order = self.target.layers.get(".".join(words[:place]), ()) if word.isdigit() else ()
            found[place] = str(order[int(word)]) if order and int(word) < len(order) else word
        return ".".join(found)

    @property
    def refused(self) -> bool:
        """Whether the class refused a whole number that was changed alone."""
        alone = (t.values for t in self.seen.values() if t.failed and not t.shapes and len(t.values) == 1)
        return any(type(value) is int for values in alone for value in values.values())

    def pair(self) -> None:
        """Let another number go along with one that the class refused alone; what failed is tried anew."""
        self.paired = True
        self.seen = {key: trial for key, trial in self.seen.items() if not trial.failed}

    def of(self, values: Values, logged: bool = True) -> Trial:
        """The class with other values; with its log, or its sizes alone."""
        values = {p: v for p, v in values.items() if p not in self.leaves or v != self.leaves[p]}
        values |= self.decided
        asked = Trial(values=values)
        known = self.seen.get(asked.key)
        if known is not None and (known.log is not None or known.failed or not logged):
            return known
        self.seen[asked.key] = made = self._built(values, logged)
        return made

    def _built(self, values: Values, logged: bool) -> Trial:
        try:
            config = changed(self.config, values)
        except (IndexError, KeyError, TypeError) as error:  # a list that is shorter by now
            return Trial(values=values, failed=said(error))
        made = Trial(values=values, **vars(self.built(config, logged)))
        if made.shapes:
            return self._running(made) or made if made.failed else made
        mended = (self._built({**more, **values}, logged) for more in self._insisted(values))
        found = next((trial for trial in mended if trial.shapes), None)
        return found or self._in_proportion(values, logged) or made

    def _running(self, made: Trial) -> Trial | None:
        """A class that does not run, with one more of the numbers that were equal to a changed one, as that
        is now: one that runs and has the same sizes.
        """
        for path, value in self._equal(made.values).items():
            values = {path: value, **made.values}
            there = Trial(values=values, **vars(self.built(changed(self.config, values), logged=True)))
            if there.log is not None and there.shapes == made.shapes:
                return there
        return None

    def built(self, config: dict[str, object], logged: bool) -> Built:
        """The class of a config, once for all targets: with its log, or its sizes alone."""
        key = repr(config), logged, self.target.fixed
        if key not in self.known:
            self.known[key] = self._made(config, logged)
        return self.known[key]

    def _made(self, config: dict[str, object], logged: bool) -> Built:
        with Attempt() as attempt:
            module = self.build(config, constants=logged)
        if attempt.error is not None:
            return Built(failed=said(attempt.error))
        shapes, ties = shapes_of(module), ties_of(module)
        if not logged:
            return Built(shapes, ties)
        with Attempt() as attempt:
            return Built(shapes, ties, operator_log(module, self.target.inputs, self.target.fixed))
        assert attempt.error is not None
        return Built(shapes, ties, failed=said(attempt.error))

    def _insisted(self, values: Values) -> Iterator[Values]:
        """What else a class may insist on: what it fills by itself, and that equal numbers stay equal."""
        filled = {path: new for path, new in self._filled(values).items() if path not in values}
        yield from (more for more in (filled, self._equal(values)) if more)

    def _equal(self, values: Values) -> Values:
        """The numbers that were equal to changed ones, as these are now."""
        numbers = {self.leaves[p]: v for p, v in values.items() if type(v) is type(self.leaves.get(p)) is int}
        others = [p for p, value in self.leaves.items() if type(value) is int and p not in values]
        return {path: numbers[self.leaves[path]] for path in others if self.leaves[path] in numbers}

    def _in_proportion(self, values: Values, logged: bool) -> Trial | None:
        """One new number with another one in proportion, where a class insists on a product: heads times
        their width are as many as what a layer is wide inside. The pair with the most of the planned sizes.
        """
        if not self.paired or len(values) != 1:
            return None
        [(path, new)] = values.items()
        old = self.leaves.get(path)
        if isinstance(old, bool) or not isinstance(old, int) or not isinstance(new, int):
            return None
        others = self.partners.get(path) or [p for p, v in self.leaves.items() if type(v) is int and v > 1]
        pairs = [(p, scaled(self.leaves[p], new / max(old, 1))) for p in others if p != path]
        built: dict[Path, Trial] = {}
        for partner, value in pairs:
            values = {path: new, partner: value}
            if value is not None and (made := self.built(changed(self.config, values), logged=False)).shapes:
                built[partner] = Trial(values=values, **vars(made))
        if new == 2 * old:
            self.partners[path] = list(built) or [path]  # by itself it has none
        if not built:
            return None
        best = max(built.values(), key=lambda trial: agreement(self.wanted, trial.features))
        return self._built(best.values, logged) if logged else best

    def _filled(self, values: Values) -> Values:
        """What the class fills by itself from other values than the source's: names of stages, a quotient."""
        own = [key for key in self.own if all(path[0] != key for path in values)]
        mine = {key: v for key, v in changed(self.config, values).items() if key not in own}
        made = self._completed(mine) if own else None
        return {(key,): made[key] for key in own if made and made.get(key) != self.config[key]}

    def relisted(self, values: Values) -> Values:
        """Of the lists among new values, each that the class fills by itself, as it does: layer numbers."""
        whole, found = changed(self.config, values), dict[Path, Any]()
        for key in (str(p[0]) for p, value in values.items() if isinstance(value, list) and len(p) == 1):
            if self._fills(key):
                made = self._completed({k: v for k, v in whole.items() if k != key})
                found |= {(key,): made[key]} if made and made.get(key) != whole[key] else {}
        return found

    @cached_property
    def own(self) -> tuple[str, ...]:
        """Lists and whole numbers of the config that the class fills in the same way where it has none."""
        layers = set(layer_counts(self.source.shapes).values())  # lists of layers follow these instead
        lists = [k for k, v in self.config.items() if isinstance(v, list) and len(v) not in layers]
        numbers = [k for k, v in self.config.items() if isinstance(v, int) and not isinstance(v, bool)]
        found: list[str] = []
        for named in (lists, numbers):
            more = [key for key in named if self._fills(key)]
            found += more if self._without([*found, *more]) == self.config else []
        return tuple(found)

    def _fills(self, key: str) -> bool:
        """Whether the class fills a field as it is where the config has none."""
        if key not in self.filled:
            self.filled[key] = self._without([key]) == self.config
        return self.filled[key]

    def _without(self, keys: Sequence[str]) -> dict[str, object] | None:
        return self._completed({key: value for key, value in self.config.items() if key not in keys})

    def _completed(self, given: dict[str, object]) -> dict[str, object] | None:
        """A config as the class has it; None where it refuses."""
        with suppress(Exception):  # a constructor may refuse with anything
            return complete(self.build(given), given)
        return None

    def score(self, trial: Trial) -> float:
        """How close a trial is: what sizes have in common and what logs have, and whether ties are equal."""
        if not trial.shapes:
            return -1.0
        overlap = trial.log.overlap(self.target.log) if trial.log else 0.0
        return agreement(self.wanted, trial.features) + overlap + self.tied(trial)

    def tied(self, trial: Trial) -> bool:
        """Whether the same names are one tensor."""
        return among(trial.ties, trial.read) == self.target.ties

    def solves(self, trial: Trial) -> bool:
        """Whether it is the planned program, but for real literals."""
        return self.compared(trial, frozenset()) is not None

    def idles(self, trial: Trial) -> bool:
        """Whether it is, but for real literals and what adds nothing yet."""
        return bool(self.target.zeros) and self.compared(trial, self.target.zeros) is not None

    def compared(self, trial: Trial, zeros: frozenset[str]) -> tuple[Log, Log] | None:
        """Its log and the planned one, which differ in real literals alone, where these tensors are zero."""
        if trial.read != self.target.shapes or not self.tied(trial):
            return None
        return None if trial.log is None else alike(awake(self.target.log, zeros), awake(trial.log, zeros))

    def wrong(self, trial: Trial) -> set[Feature]:
        """The planned sizes that a trial has otherwise."""
        return {f for f, n in self.wanted.items() if trial.features.get(f, n) != n}


def complete(module: nn.Module, given: Mapping[str, object]) -> dict[str, object]:
    """A config with all fields that its class has, defaults too."""
    known: Any = getattr(module, "config", None)
    fields = {} if known is None else known.to_dict()
    return {**fields, **{name: value for name, value in given.items() if not isinstance(value, dict)}}


def said(error: Exception) -> str:
    """The first line of what a class says when it refuses, and what it announces: that ends in a colon."""
    error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    announced = next((k for k, line in enumerate(lines) if not line.endswith(":")), 0)
    return f"{type(error).__name__}: {' '.join(lines[: announced + 1])}"
