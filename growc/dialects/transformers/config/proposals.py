"""Proposals for a config: each field is varied to see which numbers follow it.

From `ConfigTrials` follow new values, the most telling ones first.

Sizes of stored tensors come first, then the operator log. The number of heads is not the size of a stored
tensor, but that of a computed one. An eps is not a size at all.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from functools import cached_property
from itertools import chain
from typing import Any, Generic, TypeVar

from growc.dialects.transformers.config.fields import FieldPath, Values
from growc.dialects.transformers.config.shapes import Feature
from growc.dialects.transformers.config.trials import ConfigTrial, ConfigTrials
from growc.dialects.transformers.log.entry import Log, LogEntry, rounded
from growc.resolve.config_fields import FIELDS, SCOPED

SINGLE = 10
"""The number of values that are proposed alone."""
LOGS = 160
"""The number of changed fields whose logs are recorded."""
USUAL = frozenset(n for table in (FIELDS, *SCOPED.values()) for names in table.values() for n in names)
"""Fields that usually hold sizes. Their logs are recorded before others. They decide nothing else."""
LogNumber = tuple[int, int]
"""The position of an operator in the target's log, and that of one of its numbers.

COUNT is the log's length.
"""
NEAR_WHOLE = 1e-4
"""A proposal that is so near a whole number is that number: it was computed in floating point."""

FOR_NONE = (64, 48)
"""Values to try for a field that is None: sizes that different numbers of heads divide."""

COUNT = -1
Vote = tuple[FieldPath, str]
"""A field, and its new value as text."""
NumberPlace = TypeVar("NumberPlace", Feature, LogNumber)
"""The place of a number."""


@dataclass(frozen=True)
class LoggedNumbers(Generic[NumberPlace]):
    """Numbers of one kind. of: those of a trial. wanted: those of the target. logged: they are in the log."""

    of: Callable[[ConfigTrial], Mapping[NumberPlace, float]]
    wanted: Mapping[NumberPlace, float]
    logged: bool = False

    def wrong(self, trial: ConfigTrial) -> set[NumberPlace]:
        """Return the places of wanted numbers that differ in a trial."""
        numbers = self.of(trial)
        return {place for place, n in self.wanted.items() if numbers.get(place, n) != n}


def _logged(trials: ConfigTrials, numbers: Callable[[LogEntry], Iterable[float]]) -> LoggedNumbers[LogNumber]:
    """Return the reading of logs: their length, and numbers of the operators that match the target."""
    target, known = trials.target.log, dict[str, dict[LogNumber, float]]()

    def read(log: Log) -> dict[LogNumber, float]:
        readings: dict[LogNumber, float] = {(COUNT, 0): len(log.entries)}
        for k, entry in aligned(log, target):
            readings |= {(k, j): n for j, n in enumerate(numbers(entry))}
        return readings

    def of(trial: ConfigTrial) -> dict[LogNumber, float]:
        if trial.log is None:
            return {}
        if trial.key not in known:
            known[trial.key] = read(trial.log)
        return known[trial.key]

    return LoggedNumbers(of, read(target), logged=True)


def aligned(log: Log, target: Log) -> Iterator[tuple[int, LogEntry]]:
    """Yield the entries of a log that match the target except for numbers, with their target places."""
    log_keys, target_keys = ([(e.operator, e.kinds) for e in one.entries] for one in (log, target))
    if log_keys == target_keys:
        yield from enumerate(log.entries)
        return
    for a, b, count in SequenceMatcher(None, log_keys, target_keys, autojunk=False).get_matching_blocks():
        yield from ((b + k, log.entries[a + k]) for k in range(count))


class Proposals:
    """Derivation of field values from numbers of the program."""

    def __init__(self, trials: ConfigTrials) -> None:
        self.trials, self.logs = trials, LOGS
        self.sizes = LoggedNumbers[Feature](lambda trial: trial.features, trials.wanted)
        self.whole = _logged(trials, lambda entry: (*chain(*entry.shapes), *entry.whole))
        self.real = _logged(trials, lambda entry: map(rounded, entry.exact))

    def of(self, trial: ConfigTrial) -> Iterator[Iterator[Values]]:
        """Yield new values in stages. In each, values together precede each value alone.

        Sizes suggest values first. If all sizes are right, the whole numbers of the log do. That log is the
        trial's, or the source's if more of its operators match the target. If these are right too, its real
        numbers do. Flags that turn operators on or off come last, if they bring the log closer.
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
                p: nearer.values.get(p, v) for p, v in self.trials.settings.items() if isinstance(v, bool)
            }
            flipped = {path: not value for path, value in values.items()}
            moved = self.movers(nearer, flipped, lambda t: t.log != nearer.log)
            candidates = ({**nearer.values, path: flipped[path]} for path in moved)
            yield (one for one in candidates if self.score(one) > self.score(nearer.values))

    def score(self, values: Values) -> float:
        """Return how close the class with these values is, by its log too."""
        return self.trials.score(self.trials.of(values, logged=True))

    @cached_property
    def sized(self) -> dict[FieldPath, set[Feature]]:
        """The fields that sizes follow, with these sizes."""
        followers = {p: self.moved(self.trials.start, self.sizes, p)[1] for p in self.trials.settings}
        return {path: set(moved) for path, moved in followers.items() if moved}

    def by_log(self, trial: ConfigTrial, reading: LoggedNumbers[LogNumber]) -> Iterator[Iterator[Values]]:
        """Yield stages of values for fields that no size follows, but numbers of the log.

        Usual fields come first.
        """
        numbers = reading.of(trial)
        wrong = {place: numbers[place] for place in reading.wrong(trial)}
        for usual in (True, False):
            paths = (p for p in self.trials.settings if (p[-1] in USUAL) is usual and p not in self.sized)
            values = {path: trial.values.get(path, self.trials.settings[path]) for path in paths if wrong}
            probe_values = {path: probes(value)[0] for path, value in values.items() if probes(value)}
            moved = self.movers(trial, probe_values, lambda t: not wrong.items() <= reading.of(t).items())
            yield self.ranked(trial, reading, self.followed(trial, reading, moved))

    def movers(
        self, trial: ConfigTrial, values: Values, moves: Callable[[ConfigTrial], bool]
    ) -> Iterator[FieldPath]:
        """Yield the fields that move a log.

        All fields change in one build. Each half is then tried if the log moves.
        """
        if not values or not self.logs:
            return
        self.logs -= 1
        probed, paths = self.trials.of({**trial.values, **values}, logged=True), list(values)
        if probed.log is not None and not moves(probed):
            return
        if len(paths) == 1:
            yield from paths
        for half in (paths[: len(paths) // 2], paths[len(paths) // 2 :]) if len(paths) > 1 else ():
            yield from self.movers(trial, {path: values[path] for path in half}, moves)

    def ranked(
        self,
        trial: ConfigTrial,
        reading: LoggedNumbers[NumberPlace],
        moving: Iterable[tuple[FieldPath, dict[NumberPlace, Any]]],
    ) -> Iterator[Values]:
        """Yield values of fields, together and alone. Values that give most wanted numbers come first."""
        wrong = reading.wrong(trial)
        votes: dict[Vote, set[NumberPlace]] = {}
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
        self,
        trial: ConfigTrial,
        reading: LoggedNumbers[NumberPlace],
        path: FieldPath,
        value: Any,
        places: set[NumberPlace],
    ) -> bool:
        """Whether an integer decreases while sizes grow. Such a number, a ratio, mostly stays as it is."""
        before = trial.values.get(path, self.trials.settings[path])
        numbers = reading.of(trial)
        grow = all(reading.wanted[place] > numbers[place] for place in places)
        return type(before) is int and value < before and grow

    def moving(self, trial: ConfigTrial) -> Iterator[tuple[FieldPath, dict[Feature, Any]]]:
        """Return, for each field that sizes follow, the values that would give each of them as wanted.

        A field that moves only right sizes is omitted if other fields can correct all wrong ones.
        """
        wrong, reached = self.sizes.wrong(trial), set[Feature]().union(*self.sized.values())
        some = wrong if wrong <= reached else reached
        paths = (path for path, moved in self.sized.items() if not some.isdisjoint(moved))
        return self.followed(trial, self.sizes, paths)

    def followed(
        self, trial: ConfigTrial, reading: LoggedNumbers[NumberPlace], paths: Iterable[FieldPath]
    ) -> Iterator[tuple[FieldPath, dict[NumberPlace, Any]]]:
        """Yield, for each field that numbers follow, the values that would give each of them as wanted."""
        for path in paths:
            self.logs -= reading.logged
            if (self.logs >= 0 or not reading.logged) and (proposed := self.following(trial, reading, path)):
                yield path, proposed

    def following(
        self, trial: ConfigTrial, reading: LoggedNumbers[NumberPlace], path: FieldPath
    ) -> dict[NumberPlace, Any]:
        """Return the values of one field that would give each number that follows it as wanted."""
        value = trial.values.get(path, self.trials.settings[path])
        probe, moved = self.moved(trial, reading, path)
        estimates = {p: estimate(value, probe, *moved[p], reading.wanted[p]) for p in moved}
        return {p: estimated for p, estimated in estimates.items() if estimated is not None}

    def moved(
        self, trial: ConfigTrial, reading: LoggedNumbers[NumberPlace], path: FieldPath
    ) -> tuple[Any, dict[NumberPlace, tuple[float, float]]]:
        """Return another value that the class accepts, and the (old, new) numbers that follow the field."""
        value = trial.values.get(path, self.trials.settings[path])
        numbers = reading.of(trial)
        for probe in probes(value):
            probed = self.trials.of({**trial.values, path: probe}, reading.logged)
            if not probed.shapes or (reading.logged and probed.log is None):
                continue
            probed_numbers = reading.of(probed)
            old_and_new = {
                p: (n, probed_numbers.get(p, n)) for p, n in numbers.items() if p in reading.wanted
            }
            moved = {p: (old, new) for p, (old, new) in old_and_new.items() if old != new}
            if not moved and value is None and probe != probes(value)[-1]:
                continue  # this number may be the default that None stands for
            return probe, moved
        return None, {}

    def with_lists(self, values: Values) -> Iterator[Values]:
        """Yield values that may change a number of layers.

        They come alone, with the lists per layer, and with each of these lists as the class fills it.
        """
        yield values
        if lists := self.trials.lists(values):
            yield {**values, **lists}
            for path in lists:
                others = {p: v for p, v in {**values, **lists}.items() if p != path}
                yield {**others, **self.trials.filled(others, [path])}


def _cover(ranked: Sequence[Vote], votes: Mapping[Vote, set[Any]]) -> list[Vote]:
    """Return the first vote and more that give the remaining places, first those that give no place twice."""
    uncovered: set[Any] = set().union(*votes.values())
    chosen: dict[FieldPath, Vote] = {}
    for allow_repeats in (False, True):
        for vote in ranked:
            if vote[0] not in chosen and (
                votes[vote] & uncovered if allow_repeats else votes[vote] <= uncovered
            ):
                chosen[vote[0]] = vote
                uncovered -= votes[vote]
    return [*chosen.values()]


def estimate(value: Any, probe: Any, old: float, new: float, wanted: float) -> Any:
    """Return the field value that gives a wanted number, extrapolated from two values, or None.

    The number may be linear in the value, linear in its reciprocal (a width divided by a number of heads), or
    a power of it (a scale).

    >>> estimate(64, 128, 192, 384, 288), estimate(None, 64, 256, 64, 100), estimate(4.0, 8.0, 256, 512, 384)
    (96, 100, 6.0)
    >>> estimate(4, 8, 192, 144, 160), estimate(16, 32, 16**-0.5, 32**-0.5, 8**-0.5)
    (6, 8)
    """
    if value == old and probe == new:
        return type(probe)(wanted)
    through = (0, 0) if value is None else (value, old)
    linear = through[0] + (wanted - through[1]) * (probe - through[0]) / (new - through[1])
    if isinstance(value, float):
        return linear
    if whole := _whole(linear):
        return whole
    if not value:
        return None
    share = 1 / value + (wanted - old) * (1 / probe - 1 / value) / (new - old)
    return (_whole(1 / share) if share else None) or _whole(_power(value, probe, old, new, wanted))


def _power(value: int, probe: int, old: float, new: float, wanted: float) -> float:
    """Return the value that gives a wanted number if the number is a power of the value, or 0."""
    if min(value, probe, old, new, wanted) <= 0:
        return 0.0
    degree = math.log(new / old) / math.log(probe / value)
    return float(value * (wanted / old) ** (1 / degree))


def _whole(number: float) -> int | None:
    return round(number) if number > 0 and abs(number - round(number)) < NEAR_WHOLE else None


def probes(value: Any) -> list[Any]:
    """Return values to try for a field. Constructors may refuse some of them."""
    if isinstance(value, (bool, list)):
        return []
    if value is None:
        return list(FOR_NONE)
    if isinstance(value, float):
        return [value * 2, value * 1.5, value + 0.25]
    return [value * 2, value + 1, value * 3, value + 2] if value else [1]
