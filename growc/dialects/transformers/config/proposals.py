"""Values of a config that the planned program suggests: each field is changed to see which numbers follow it.

Needs: `Trials`. Gives: new values, the most telling first.

Sizes of stored tensors come first, then the operator log: the number of heads is the size of no tensor that
is stored, but of some that are computed; an eps is the size of none.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain
from typing import Any, Generic, TypeVar

from growc.dialects.transformers.config.fields import Path, Values
from growc.dialects.transformers.config.shapes import Feature
from growc.dialects.transformers.config.trials import Trial, Trials
from growc.dialects.transformers.log.entry import Entry, Log, rounded
from growc.resolve.config_fields import FIELDS, SCOPED

SINGLE = 10
"""So many values are proposed alone."""
LOGS = 160
"""So many changed fields are seen by their logs."""
USUAL = frozenset(n for table in (FIELDS, *SCOPED.values()) for names in table.values() for n in names)
"""Fields that mostly bear sizes: seen by their logs before others. They decide nothing."""
Slot = tuple[int, int]
"""The place of an operator in the target's log, and that of one of its numbers; COUNT: how many there are."""
COUNT = -1
Vote = tuple[Path, str]
"""A field, and how its new value is spelled."""
Place = TypeVar("Place", Feature, Slot)
"""Where a number stands."""


@dataclass(frozen=True)
class Reading(Generic[Place]):
    """Numbers of one kind: those of a trial, and which are wanted. logged: they stand in the log."""

    of: Callable[[Trial], Mapping[Place, float]]
    wanted: Mapping[Place, float]
    logged: bool = False

    def wrong(self, trial: Trial) -> set[Place]:
        """The wanted numbers that a trial has otherwise."""
        found = self.of(trial)
        return {place for place, n in self.wanted.items() if found.get(place, n) != n}


def _logged(trials: Trials, numbers: Callable[[Entry], Iterable[float]]) -> Reading[Slot]:
    """How many operators there are, and numbers of those that stand where the target has the same one."""
    target, known = trials.target.log, dict[str, dict[Slot, float]]()

    def read(log: Log) -> dict[Slot, float]:
        found: dict[Slot, float] = {(COUNT, 0): len(log.entries)}
        for k, entry in aligned(log, target):
            found |= {(k, j): n for j, n in enumerate(numbers(entry))}
        return found

    def of(trial: Trial) -> dict[Slot, float]:
        if trial.log is None:
            return {}
        if trial.key not in known:
            known[trial.key] = read(trial.log)
        return known[trial.key]

    return Reading(of, read(target), logged=True)


def aligned(log: Log, target: Log) -> Iterator[tuple[int, Entry]]:
    """The entries of a log that the target has too but for numbers, with their places there."""
    ours, theirs = ([(e.operator, e.kinds) for e in one.entries] for one in (log, target))
    if ours == theirs:
        yield from enumerate(log.entries)
        return
    for a, b, count in SequenceMatcher(None, ours, theirs, autojunk=False).get_matching_blocks():
        yield from ((b + k, log.entries[a + k]) for k in range(count))


class Proposals:
    """What numbers say about fields."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.logs = trials, LOGS
        self.sizes = Reading[Feature](lambda trial: trial.features, trials.wanted)
        self.whole = _logged(trials, lambda entry: (*chain(*entry.shapes), *entry.whole))
        self.real = _logged(trials, lambda entry: map(rounded, entry.exact))

    def of(self, trial: Trial) -> Iterator[Iterator[Values]]:
        """New values in stages: those that together give all numbers, then each alone.

        Sizes say them; where all are as wanted, the whole numbers of the log: its own, or that of the source,
        where more operators are those of the target; and where these are, its real numbers. What turns
        operators on or off comes last, if the log comes closer by it.
        """
        if self.sizes.wrong(trial):
            yield self.ranked(trial, self.sizes, self.moving(trial))
        elif self.trials.solves(trial):
            yield from self.by_log(trial, self.real)
        else:
            source = self.trials.of({}, logged=True)
            nearer = source if len(self.whole.of(source)) > len(self.whole.of(trial)) else trial
            yield from self.by_log(nearer, self.whole)
            yield self.ranked(nearer, self.whole, self.followed(nearer, self.whole, self.sized))
            values = {
                p: nearer.values.get(p, v) for p, v in self.trials.leaves.items() if isinstance(v, bool)
            }
            turned = {path: not value for path, value in values.items()}
            moved = self.movers(nearer, turned, lambda t: t.log != nearer.log)
            found = ({**nearer.values, path: turned[path]} for path in moved)
            yield (one for one in found if self.score(one) > self.score(nearer.values))

    def score(self, values: Values) -> float:
        """How close the class with these values is, by its log too."""
        return self.trials.score(self.trials.of(values, logged=True))

    @cached_property
    def sized(self) -> dict[Path, set[Feature]]:
        """The fields that sizes follow, with these sizes."""
        found = {p: self.moved(self.trials.start, self.sizes, p)[1] for p in self.trials.leaves}
        return {path: set(moved) for path, moved in found.items() if moved}

    def by_log(self, trial: Trial, reading: Reading[Slot]) -> Iterator[Iterator[Values]]:
        """New values of fields that no size follows, which give numbers of the log: of usual ones first."""
        here = reading.of(trial)
        wrong = {place: here[place] for place in reading.wrong(trial)}
        for usual in (True, False):
            paths = (p for p in self.trials.leaves if (p[-1] in USUAL) is usual and p not in self.sized)
            values = {path: trial.values.get(path, self.trials.leaves[path]) for path in paths if wrong}
            tried = {path: probes(value)[0] for path, value in values.items() if probes(value)}
            moved = self.movers(trial, tried, lambda t: not wrong.items() <= reading.of(t).items())
            yield self.ranked(trial, reading, self.followed(trial, reading, moved))

    def movers(self, trial: Trial, values: Values, moves: Callable[[Trial], bool]) -> Iterator[Path]:
        """The fields that move a log: all change in one build, and each half of them where that moves it."""
        if not values or not self.logs:
            return
        self.logs -= 1
        there, paths = self.trials.of({**trial.values, **values}, logged=True), list(values)
        if there.log is not None and not moves(there):
            return
        if len(paths) == 1:
            yield from paths
        for half in (paths[: len(paths) // 2], paths[len(paths) // 2 :]) if len(paths) > 1 else ():
            yield from self.movers(trial, {path: values[path] for path in half}, moves)

    def ranked(
        self, trial: Trial, reading: Reading[Place], moving: Iterable[tuple[Path, dict[Place, Any]]]
    ) -> Iterator[Values]:
        """Values of fields, those first that give most of what is wanted: with others, and alone."""
        wrong = reading.wrong(trial)
        votes: dict[Vote, set[Place]] = {}
        values: dict[Vote, Any] = {}
        for path, proposed in moving if wrong else ():
            for place in proposed.keys() & wrong:
                vote = path, repr(proposed[place])
                values[vote] = proposed[place]
                votes.setdefault(vote, set()).add(place)
        against = {v for v in votes if self.against(trial, reading, v[0], values[v], votes[v])}
        ranked: list[Vote] = sorted(votes, key=lambda vote: (-len(votes[vote]), vote in against, repr(vote)))
        firsts: list[Vote] = ranked[:SINGLE]
        chosen = [_cover([first, *ranked], votes) for first in firsts] + [[first] for first in firsts]
        for together in chosen:
            yield from self.with_lists({**trial.values, **{vote[0]: values[vote] for vote in together}})

    def against(
        self, trial: Trial, reading: Reading[Place], path: Path, value: Any, places: set[Place]
    ) -> bool:
        """Whether a whole number becomes less where sizes become more: a ratio mostly stays as it is."""
        before = trial.values.get(path, self.trials.leaves[path])
        found = reading.of(trial)
        grow = all(reading.wanted[place] > found[place] for place in places)
        return type(before) is int and value < before and grow

    def moving(self, trial: Trial) -> Iterator[tuple[Path, dict[Feature, Any]]]:
        """For each field that sizes follow: the value that would give each of them as wanted.

        A field that only sizes follow which are right is left, where others may right all that are wrong.
        """
        wrong, reached = self.sizes.wrong(trial), set[Feature]().union(*self.sized.values())
        some = wrong if wrong <= reached else reached
        paths = (path for path, moved in self.sized.items() if not some.isdisjoint(moved))
        return self.followed(trial, self.sizes, paths)

    def followed(
        self, trial: Trial, reading: Reading[Place], paths: Iterable[Path]
    ) -> Iterator[tuple[Path, dict[Place, Any]]]:
        """For each of these fields that numbers follow: the value that would give each of them as wanted."""
        for path in paths:
            self.logs -= reading.logged
            if (self.logs >= 0 or not reading.logged) and (proposed := self.following(trial, reading, path)):
                yield path, proposed

    def following(self, trial: Trial, reading: Reading[Place], path: Path) -> dict[Place, Any]:
        """The value of one field that would give each number that follows it as wanted."""
        value = trial.values.get(path, self.trials.leaves[path])
        probe, moved = self.moved(trial, reading, path)
        made = {p: estimate(value, probe, *moved[p], reading.wanted[p]) for p in moved}
        return {p: estimated for p, estimated in made.items() if estimated is not None}

    def moved(
        self, trial: Trial, reading: Reading[Place], path: Path
    ) -> tuple[Any, dict[Place, tuple[float, float]]]:
        """Another value of a field that the class takes, and what each number that follows it was and is."""
        value = trial.values.get(path, self.trials.leaves[path])
        here = reading.of(trial)
        for probe in probes(value):
            there = self.trials.of({**trial.values, path: probe}, reading.logged)
            if not there.shapes or (reading.logged and there.log is None):
                continue
            found = reading.of(there)
            both = {p: (n, found.get(p, n)) for p, n in here.items() if p in reading.wanted}
            moved = {p: (old, new) for p, (old, new) in both.items() if old != new}
            if not moved and value is None and probe != probes(value)[-1]:
                continue  # what stands for None may be this very number
            return probe, moved
        return None, {}

    def with_lists(self, values: Values) -> Iterator[Values]:
        """Values that may change a number of layers: alone, with the lists that go along, and with each of
        these as the class fills it.
        """
        yield values
        if lists := self.trials.lists(values):
            yield {**values, **lists}
            for path in lists:
                others = {p: v for p, v in {**values, **lists}.items() if p != path}
                yield {**others, **self.trials.filled(others, [path])}


def _cover(ranked: Sequence[Vote], votes: Mapping[Vote, set[Any]]) -> list[Vote]:
    """The first vote, and more that give the other places: those first that give no place again."""
    left: set[Any] = set().union(*votes.values())
    chosen: dict[Path, Vote] = {}
    for again in (False, True):
        for vote in ranked:
            if vote[0] not in chosen and (votes[vote] & left if again else votes[vote] <= left):
                chosen[vote[0]] = vote
                left -= votes[vote]
    return [*chosen.values()]


def estimate(value: Any, probe: Any, old: float, new: float, wanted: float) -> Any:
    """The value that gives a wanted number, if the number is a line through two values, one through their
    reciprocals (a width that is shared by so many heads), or a power of them (a scale). Else None.

    >>> estimate(64, 128, 192, 384, 288), estimate(None, 64, 256, 64, 100), estimate(4.0, 8.0, 256, 512, 384)
    (96, 100, 6.0)
    >>> estimate(4, 8, 192, 144, 160), estimate(16, 32, 16**-0.5, 32**-0.5, 8**-0.5)
    (6, 8)
    """
    if value == old and probe == new:
        return type(probe)(wanted)
    through = (0, 0) if value is None else (value, old)
    found = through[0] + (wanted - through[1]) * (probe - through[0]) / (new - through[1])
    if isinstance(value, float):
        return found
    if whole := _whole(found):
        return whole
    if not value:
        return None
    share = 1 / value + (wanted - old) * (1 / probe - 1 / value) / (new - old)
    return (_whole(1 / share) if share else None) or _whole(_power(value, probe, old, new, wanted))


def _power(value: int, probe: int, old: float, new: float, wanted: float) -> float:
    """The value that gives a wanted number, if the number is a power of the values; 0 if it is none."""
    if min(value, probe, old, new, wanted) <= 0:
        return 0.0
    degree = math.log(new / old) / math.log(probe / value)
    return float(value * (wanted / old) ** (1 / degree))


def _whole(found: float) -> int | None:
    return round(found) if found > 0 and abs(found - round(found)) < 1e-4 else None


def probes(value: Any) -> list[Any]:
    """Values to see what numbers do; constructors take not every one."""
    if isinstance(value, (bool, list)):
        return []
    if value is None:
        return [64, 48]
    if isinstance(value, float):
        return [value * 2, value * 1.5, value + 0.25]
    return [value * 2, value + 1, value * 3, value + 2] if value else [1]
