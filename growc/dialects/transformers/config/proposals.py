"""Values of a config that the wanted sizes suggest: each number is changed to see which sizes follow it.

Needs: `Trials`. Gives: new values, the most telling first.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from growc.dialects.transformers.config.fields import Path, Values, changed, value_at
from growc.dialects.transformers.config.shapes import Feature, layer_counts
from growc.dialects.transformers.config.trials import Trial, Trials

SINGLE = 10
"""So many values are proposed alone."""


class Proposals:
    """What sizes say about numbers. still: those that no size followed."""

    def __init__(self, trials: Trials) -> None:
        self.trials = trials
        self.still: set[Path] = set()

    def of(self, trial: Trial) -> Iterator[Values]:
        """New values: those that together give all sizes, then each alone."""
        wrong = self.trials.wrong(trial)
        votes: dict[tuple[Path, str], set[Feature]] = {}
        values: dict[tuple[Path, str], Any] = {}
        for path, proposed in self.moving(trial) if wrong else ():
            for feature in proposed.keys() & wrong:
                vote = path, repr(proposed[feature])
                values[vote] = proposed[feature]
                votes.setdefault(vote, set()).add(feature)
        against = {vote for vote in votes if self.against(trial, vote[0], values[vote], votes[vote])}
        ranked = sorted(votes, key=lambda vote: (-len(votes[vote]), vote in against, repr(vote)))
        together: dict[Path, Any] = {}
        for vote in ranked:
            if votes[vote] & wrong and vote[0] not in together:
                together[vote[0]] = values[vote]
                wrong -= votes[vote]
        if len(together) > 1:
            yield from self.with_lists(trial, together)
        for vote in ranked[:SINGLE]:
            yield from self.with_lists(trial, {vote[0]: values[vote]})

    def against(self, trial: Trial, path: Path, value: Any, sizes: set[Feature]) -> bool:
        """Whether a whole number becomes less where sizes become more: a ratio mostly stays as it is."""
        before = trial.values.get(path, self.trials.leaves[path])
        grow = all(self.trials.wanted[f] > trial.features[f] for f in sizes)
        return type(before) is int and value < before and grow

    def moving(self, trial: Trial) -> Iterator[tuple[Path, dict[Feature, Any]]]:
        """For each number that sizes follow: the value that would give each of them as wanted."""
        for path, before in self.trials.leaves.items():
            if path not in self.still:
                proposed = self.following(trial, path, trial.values.get(path, before))
                if proposed:
                    yield path, proposed

    def following(self, trial: Trial, path: Path, value: Any) -> dict[Feature, Any]:
        """The value of one number that would give each size that follows it as wanted."""
        wanted = self.trials.wanted
        for probe in probes(value):
            there = self.probed(trial, path, value, probe)
            if not there.shapes:
                continue
            sizes = {f: (n, there.features.get(f, n)) for f, n in trial.features.items() if f in wanted}
            moved = {f: (old, new) for f, (old, new) in sizes.items() if old != new}
            if not moved and value is None and probe != probes(value)[-1]:
                continue  # what stands for None may be this very number
            if not moved and not trial.values:
                self.still.add(path)
            found = {f: estimate(value, probe, old, new, wanted[f]) for f, (old, new) in moved.items()}
            return {f: estimated for f, estimated in found.items() if estimated is not None}
        return {}

    def probed(self, trial: Trial, path: Path, value: object, probe: Any) -> Trial:
        """The trial with another number; with lists of its length too, where the class insists."""
        there = self.trials.of({**trial.values, path: probe}, logged=False)
        if there.shapes or not isinstance(value, int):
            return there
        lineage = tuple(min(i, value - 1) for i in range(probe))
        lists = self.lists(trial, path[:-1], value, lineage)
        return self.trials.of({**trial.values, path: probe, **lists}, logged=False) if lists else there

    def with_lists(self, trial: Trial, values: Values) -> Iterator[Values]:
        """Values that change a number of layers, alone, and with the lists that go along."""
        followed: dict[Path, Any] = {}
        for path, new in values.items():
            old = trial.values.get(path, self.trials.leaves[path])
            if isinstance(old, int) and isinstance(new, int):
                followed |= self.lists(trial, path[:-1], old, self.lineage(trial, old, new))
        yield values
        if followed:
            yield {**values, **followed}
            for path, made in self.trials.relisted({**values, **followed}).items():
                yield {**values, **followed, path: made}

    def lineage(self, trial: Trial, old: int, new: int) -> tuple[int, ...]:
        """Which layer each of a new number of them was: as the target says of a container of this length."""
        known = layer_counts(trial.shapes)
        for container, layers in self.trials.target.layers.items():
            if known.get(container) == old and len(layers) == new:
                return layers
        return tuple(min(i, old - 1) for i in range(new))

    def lists(self, trial: Trial, place: Path, old: int, lineage: tuple[int, ...]) -> dict[Path, Any]:
        """Lists beside a number of layers, as long as it was: with the entries of the new layers."""
        beside = value_at(changed(self.trials.config, trial.values), place)
        if not isinstance(beside, dict):
            return {}
        return {
            (*place, key): [value[i] for i in lineage]
            for key, value in beside.items()
            if isinstance(value, list) and len(value) == old
        }


def estimate(value: Any, probe: Any, old: int, new: int, wanted: int) -> Any:
    """The value that gives a wanted size, if the size is a line through two values, or one through their
    reciprocals: a width that is shared by so many heads. None if there is none.

    >>> estimate(64, 128, 192, 384, 288), estimate(None, 64, 256, 64, 100), estimate(4.0, 8.0, 256, 512, 384)
    (96, 100, 6.0)
    >>> estimate(4, 8, 192, 144, 160)
    6
    """
    through = (0, 0) if value is None else (value, old)
    found = through[0] + (wanted - through[1]) * (probe - through[0]) / (new - through[1])
    if isinstance(value, float):
        return found
    if whole := _whole(found):
        return whole
    if not value:
        return None
    share = 1 / value + (wanted - old) * (1 / probe - 1 / value) / (new - old)
    return _whole(1 / share) if share else None


def _whole(found: float) -> int | None:
    return round(found) if found > 0 and abs(found - round(found)) < 1e-6 else None


def probes(value: Any) -> list[Any]:
    """Values to see what sizes do; constructors take not every one."""
    if isinstance(value, (bool, list)):
        return []
    if value is None:
        return [64, 48]
    if isinstance(value, float):
        return [value * 2, value * 1.5, value + 0.25]
    return [value * 2, value + 1, value * 3, value + 2] if value else [1]
