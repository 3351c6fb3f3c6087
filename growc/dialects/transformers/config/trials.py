"""Configs that are tried: each builds the class, and is judged by how much of the planned program it has.

Needs: the source's config, `Target`, a function that builds. Gives: `Trials`, which builds each config once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol

from torch import nn

from growc.dialects.transformers.asked_fields import asking
from growc.dialects.transformers.config.fields import (
    NoConfigError,
    Path,
    Values,
    changed,
    complete,
    fields,
    leaves,
    scaled,
    value_at,
    without,
)
from growc.dialects.transformers.config.shapes import (
    LAYERS,
    Feature,
    Features,
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
from growc.dialects.transformers.log.entry import Log, alike, same_logs
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
    takes no other sizes, but for rows. origins: of tensors of the result, those of the source that they come
    from. unread: how many layers of a container the source has and does not read.
    """

    shapes: Mapping[str, Shape]
    ties: Ties
    log: Log
    inputs: Mapping[str, object]
    layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    zeros: frozenset[str] = frozenset()
    fixed: bool = False
    origins: Mapping[str, str] = field(default_factory=dict)
    unread: Mapping[str, int] = field(default_factory=dict)

    @property
    def features(self) -> Features:
        """The sizes that a class has to have."""
        found = features(self.shapes)
        return {f: n + self.unread.get(f[0], 0) if f[1] == LAYERS else n for f, n in found.items()}


@dataclass(frozen=True)
class Built:
    """A class as a config makes it; without shapes where it refuses the config, in the words of `failed`."""

    shapes: Mapping[str, Shape] = field(default_factory=dict)
    ties: Ties = frozenset()
    log: Log | None = None
    failed: str = ""


@dataclass
class Known:
    """What was found of configs before, for any target.

    built: by the config, whether with its log, and `Target.fixed`. completed: configs, as the class fills
    them.
    """

    built: dict[tuple[str, bool, bool], Built] = field(default_factory=dict)
    completed: dict[str, dict[str, object] | None] = field(default_factory=dict)

    def clear(self) -> None:
        """Forget it."""
        self.built.clear()
        self.completed.clear()


PROBED = 3
"""How many times as many layers as there are, or are planned, proposals may try: their lists have entries."""


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

    @property
    def refused(self) -> bool:
        """Whether the class refuses one new value alone."""
        return not self.shapes and len(self.values) == 1

    @cached_property
    def key(self) -> str:
        """Equal for equal values."""
        return repr(sorted(self.values.items(), key=repr))


def _of_layers(entries: object, count: int, lineage: Sequence[int]) -> object | None:
    """What has an entry for each of so many layers, or for some by number, with those of these layers."""
    if isinstance(entries, list) and len(entries) == count:
        return [entries[i] for i in lineage]
    numbered = isinstance(entries, dict) and all(str(k).isdecimal() and int(k) < count for k in entries)
    if isinstance(entries, dict) and entries and numbered:
        return {str(k): entries[str(i)] for k, i in enumerate(lineage) if str(i) in entries}
    return None


class Trials:
    """The source's config with other values, built when they are asked for.

    config: with all fields that the class has. leaves: its numbers that may change, and None for
    each field that the class asks for and does not find. wanted: the planned
    sizes. decided: values that the caller decides. start: the source with these. paired: any other number
    may go along with one that the class refuses alone. proposed: what sizes and logs suggest, in order.
    common: how much of the planned log the trial has that suggested another one.
    """

    def __init__(
        self,
        given: Mapping[str, object],
        target: Target,
        build: Build,
        known: Known | None = None,
        decided: Values | None = None,
        paired: bool = False,
    ) -> None:
        self.given, self.target, self.build, self.paired = dict(given), target, build, paired
        self.known = Known() if known is None else known
        with asking() as asked:
            module = build(self.given)
        self.config = complete(module, self.given)
        self.leaves = dict(leaves(self.config))
        self.leaves |= {path: None for path in asked.paths(module) if path not in self.leaves}
        self.wanted = target.features
        self.seen: dict[str, Trial] = {}
        self.proposed: list[Trial] = []
        self.common: dict[str, float] = {}
        self.decided: Values = {}
        self.source = self.of({}, logged=False)
        self.decided = decided or {}
        for path in self.decided:
            self.leaves = {p: v for p, v in self.leaves.items() if p[: len(path)] != path[: len(p)]}
        self.start = self.of({})

    @cached_property
    def before(self) -> dict[Feature, int]:
        """The sizes of the source; of a layer that the result has, those of the one that it comes from."""
        origins = self.target.origins
        return {(n, k): self.source.features.get((origins.get(n, n), k), -1) for n, k in self.wanted}

    def value(self, path: Path) -> object:
        """What the source's config has there; None where it lacks the field."""
        return self.leaves[path] if path in self.leaves else value_at(self.config, path)

    def propose(self, values: Values, origin: Trial) -> Trial:
        """The class with values that sizes or logs of another trial suggest.

        What is known of its log, if anything, is that of its origin.
        """
        self.proposed.append(made := self.of(values))
        self.common.setdefault(made.key, self.overlap(origin))
        return made

    def of(self, values: Values, logged: bool | None = None) -> Trial:
        """The class with other values. logged: with its log; None: with it where its sizes are as wanted."""
        values = {p: v for p, v in values.items() if p not in self.leaves or v != self.leaves[p]}
        values |= self.decided
        key = Trial(values=values).key
        made = self.seen.get(key) or self._built(values, logged=False)
        asked = not self.wrong(made) if logged is None else logged
        if asked and made.log is None and not made.failed:
            made = self._built(made.values, logged=True)
        self.seen[key] = made
        return made

    def _built(self, values: Values, logged: bool) -> Trial:
        made = self._tried(values, logged)
        return (self._joined(made, logged) or made) if made.failed else made

    def _tried(self, values: Values, logged: bool) -> Trial:
        try:
            config = changed(self.config, values)
        except NoConfigError as error:  # a list that is shorter by now
            return Trial(values=values, failed=said(error))
        return Trial(values=values, **vars(self.built(config, logged)))

    def _joined(self, made: Trial, logged: bool) -> Trial | None:
        """The class with more new values, where it refuses these alone, or builds and does not run.

        Of one way to change more, the one with most of the planned sizes is taken; where the class did not
        run, one that runs with the same sizes.
        """
        for several in self._more(made):
            built = (self._tried({**more, **made.values}, logged=False) for more in several if more)
            taken = [t for t in built if t.shapes and (not made.shapes or t.shapes == made.shapes)]
            for there in sorted(taken, key=lambda t: -agreement(self.wanted, t.features)):
                there = self._tried(there.values, logged)
                if not there.failed:
                    return there
        return None

    def _more(self, made: Trial) -> Iterator[Sequence[Values]]:
        """What may go along: what the class fills by itself, or all numbers that were equal to a changed one,
        or one number in proportion, since heads times their width are as many as a layer is wide, or lists of
        layers, or lists as long as these, which the class fills.
        """
        equal, ratios = self._equal(made.values), self._in_proportion(made.values)
        if made.shapes or not self.paired:
            ratios = [more for more in ratios if more.items() <= equal.items()]
        if not made.shapes:
            yield [self.filled(made.values, self.own)]
        yield [equal]
        yield ratios
        yield [self.lists(made.values)]
        if not made.shapes:
            yield [self.filled(made.values, self.whole)]

    def built(self, config: dict[str, object], logged: bool) -> Built:
        """The class of a config, once for all targets: with its log, or its sizes alone."""
        key = repr(config), logged, self.target.fixed
        if key not in self.known.built:
            self.known.built[key] = self._made(config, logged)
        return self.known.built[key]

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

    def _equal(self, values: Values) -> Values:
        """The numbers that were equal to changed ones, as these are now."""
        numbers = {self.leaves[p]: v for p, v in values.items() if type(v) is type(self.leaves.get(p)) is int}
        others = [p for p, value in self.leaves.items() if type(value) is int and p not in values]
        return {path: numbers[self.leaves[path]] for path in others if self.leaves[path] in numbers}

    def _in_proportion(self, values: Values) -> list[Values]:
        """Each other number alone, times as much as the changed one, if one changed."""
        [path, *more] = values or [()]
        old, new = self.leaves.get(path), values.get(path)
        if more or type(old) is not int or type(new) is not int or not old:
            return []
        others = ((p, v) for p, v in self.leaves.items() if type(v) is int and v > 1 and p != path)
        return [{p: value} for p, v in others if (value := scaled(v, new / old)) is not None]

    def filled(self, values: Values, paths: Iterable[Path]) -> Values:
        """What the class fills by itself for fields that have no new values: names of stages, a quotient."""
        paths = [p for p in paths if all(path[: len(p)] != p for path in values)]
        try:
            whole = changed(self.config, values)
        except NoConfigError:
            return {}
        made, found = self._completed(without(whole, paths)) if paths else None, dict[Path, object]()
        for path in paths:
            with suppress(LookupError, TypeError):  # the class fills no such field
                if (new := value_at(made, path)) != value_at(whole, path):
                    found[path] = new
        return found

    def lists(self, values: Values) -> Values:
        """Lists beside a number of layers, as long as it was, and mappings of numbers of layers: with the
        entries of the new layers, as the target says of a container of this length.
        """
        counts, found = layer_counts(self.source.shapes), dict[Path, Any]()
        most = PROBED * max([*counts.values(), *layer_counts(self.target.shapes).values()], default=0)
        for path, new in values.items():
            old, beside = self.leaves.get(path), value_at(self.config, path[:-1])
            if type(old) is not int or type(new) is not int or not isinstance(beside, dict):
                continue
            if not old or new > most:
                continue
            known = (k for c, k in self.target.layers.items() if counts.get(c) == old and len(k) == new)
            lineage = next(known, tuple(min(i, old - 1) for i in range(new)))
            for key, entries in beside.items():
                place = (*path[:-1], key)
                if place not in values and (made := _of_layers(entries, old, lineage)) is not None:
                    found[place] = made
        return found

    @cached_property
    def own(self) -> tuple[Path, ...]:
        """Lists and whole numbers of the config that the class fills in the same way where it has none; but
        no list with an entry for each layer, as far as its length says that.
        """
        held = list(fields(self.config))
        lists = [p for p, v in held if isinstance(v, list) and p not in self.layered]
        return self._own((*lists, *(p for p, v in held if type(v) is int)))

    @cached_property
    def layered(self) -> frozenset[Path]:
        """Lists that are as long as a list of layers."""
        counts = set(layer_counts(self.source.shapes).values())
        return frozenset(p for p, v in fields(self.config) if isinstance(v, list) and len(v) in counts)

    @cached_property
    def whole(self) -> tuple[Path, ...]:
        """`own` with the lists that are as long as one of layers, for these may be names of stages."""
        return self._own(sorted(self.layered, key=repr), self.own)

    def _own(self, paths: Iterable[Path], found: tuple[Path, ...] = ()) -> tuple[Path, ...]:
        """Of these fields, and those found already, what the class fills in the same way without them all."""
        for path in paths:
            there = self._completed(without(self.config, (*found, path)))
            found += (path,) if there == self.config else ()
        return found

    def _completed(self, given: dict[str, object]) -> dict[str, object] | None:
        """A config as the class has it; None where it refuses."""
        key = repr(given)
        if key not in self.known.completed:
            self.known.completed[key] = None
            with suppress(Exception):  # a constructor may refuse with anything
                self.known.completed[key] = complete(self.build(given), given)
        return self.known.completed[key]

    def score(self, trial: Trial) -> float:
        """How close a trial is: what sizes have in common and what logs have, and whether ties are equal."""
        if not trial.shapes:
            return -1.0
        return agreement(self.wanted, trial.features) + self.overlap(trial) + self.tied(trial)

    def overlap(self, trial: Trial) -> float:
        """What its log has in common with the planned one; without one, the log of what suggested it."""
        if trial.log is None:
            return 0.0 if trial.failed else self.common.get(trial.key, 0.0)
        return trial.log.overlap(self.target.log)

    def tied(self, trial: Trial) -> bool:
        """Whether the same names are one tensor."""
        return among(trial.ties, trial.read) == self.target.ties

    def solves(self, trial: Trial, zeros: frozenset[str] = frozenset()) -> bool:
        """Whether it is the planned program, but for real literals. zeros: where these tensors are zero."""
        if trial.log is None or trial.read != self.target.shapes or not self.tied(trial):
            return False
        return alike(awake(self.target.log, zeros), awake(trial.log, zeros)) is not None

    def exact(self, trial: Trial) -> bool:
        """Whether it is the planned program, real literals too."""
        return self.solves(trial) and trial.log is not None and same_logs(self.target.log, trial.log)

    def wrong(self, trial: Trial) -> set[Feature]:
        """The planned sizes that a trial has otherwise."""
        return {f for f, n in self.wanted.items() if trial.features.get(f, n) != n}


def said(error: Exception) -> str:
    """The first line of what a class says when it refuses, and what it announces: that ends in a colon."""
    error = error.__cause__ if isinstance(error.__cause__, Exception) else error
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    announced = next((k for k, line in enumerate(lines) if not line.endswith(":")), 0)
    return f"{type(error).__name__}: {' '.join(lines[: announced + 1])}"
