"""Which config gives a class the planned sizes: found by building the class, not by names of fields.

Needs: the source's config, `Target` (shapes, ties and operator log of the planned program), and a function
that builds the class on meta. Gives: `Solved`, or `Unsolved` with what stands in the way.

Shapes are not enough: the number of heads shows in none of them, so that most configs with the right shapes
are wrong ones. A config is taken only where shapes, ties and the log are equal.

1. Every number of the config is changed, one at a time; what sizes do then says which value would give the
   wanted ones. Of these proposals, alone and together, the best by shapes and common log is taken up next.
2. Where all shapes are as wanted and the log is not, numbers that no shape shows are tried in the ratios that
   the wanted sizes have to the old ones, truth values turned, and literals of the log: one by one, then in
   pairs.
3. Lists as long as the layers were follow the lineage of the layers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heappop, heappush
from itertools import combinations, count
from typing import Any, Protocol

from torch import nn

from growc.config_sizes import FIELDS, SCOPED
from growc.dialects.torch.leaves import Path, Values, changed, leaves, scaled, spelled, value_at
from growc.dialects.torch.oplog import Log, operator_log, rounded
from growc.dialects.torch.shapes import (
    LAYERS,
    Feature,
    Shape,
    agreement,
    features,
    layer_counts,
    shapes_of,
    ties_of,
)


class Build(Protocol):
    """Builds the class of a config on meta; `constants`: buffers that no checkpoint holds have values."""

    def __call__(self, config: dict[str, Any], *, constants: bool = False) -> nn.Module:
        """The module in evaluation mode; raises where the class does not take the config."""
        ...


ROUNDS, PROPOSALS = 24, 10
"""So many configs are taken up and gone on from, and so many single values are tried from each."""
USUAL = frozenset(n for table in (FIELDS, *SCOPED.values()) for names in table.values() for n in names)
"""Fields that mostly bear sizes: tried before others. They decide nothing."""
PAIRS = 200
"""So many pairs of values that no shape shows are tried."""
Suggestion = tuple[Path, Any, float]
"""A value to try for a leaf, and the ratio to the value before that it comes from; 0 for others."""


@dataclass(frozen=True)
class Target:
    """What the planned program is.

    shapes: of all that the result's checkpoint holds. ties: names that are one tensor. log: of the planned
    program on `inputs`. layers: for each container whose layers change, the source layer of each new one.
    """

    shapes: Mapping[str, Shape]
    ties: frozenset[frozenset[str]]
    log: Log
    inputs: Mapping[str, Any]
    layers: Mapping[str, tuple[int, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Solved:
    """A config with which the class is the planned program.

    fields: what changes, by its spelling: (before, after). literals: (operator, planned, of the class) for
    real numbers in which the class differs all the same; weights must make up for them.
    """

    config: dict[str, Any]
    fields: Mapping[str, tuple[Any, Any]]
    literals: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = ()


@dataclass(frozen=True)
class Unsolved:
    """The config that comes closest, and what differs with it.

    sizes: (tensor, axis, planned, of the class), where both have the tensor. names: tensors that only one
    of them has. failed: what the class said of it, where it could not be built or run.
    """

    config: dict[str, Any]
    fields: Mapping[str, tuple[Any, Any]]
    sizes: tuple[tuple[str, int, int, int], ...] = ()
    names: tuple[str, ...] = ()
    failed: str = ""


@dataclass(frozen=True)
class Trial:
    """A config that was built, and how close it is."""

    values: Values
    shapes: Mapping[str, Shape] = field(default_factory=dict)
    ties: frozenset[frozenset[str]] = frozenset()
    log: Log | None = None
    failed: str = ""

    @cached_property
    def features(self) -> dict[Feature, int]:
        """Its sizes."""
        return features(self.shapes)


def solve(config: Mapping[str, Any], target: Target, build: Build) -> Solved | Unsolved:
    """The config of the planned program, changed as little as possible."""
    return _Search(config, target, build).run()


class _Search:
    def __init__(self, config: Mapping[str, Any], target: Target, build: Build) -> None:
        self.given, self.target, self.build = dict(config), target, build
        self.config = complete(build(self.given), self.given)
        self.leaves = dict(leaves(self.config))
        self.wanted = features(target.shapes)
        self.seen: dict[Any, Trial] = {}
        self.order = count()
        self.still: set[Path] = set()
        self.source = self.trial({})
        pairs = ((self.wanted[f], n) for f, n in self.source.features.items() if f in self.wanted)
        self.ratios = {new / old for new, old in pairs if new != old and old}

    # ------------------------------------------------------------------ trials

    def trial(self, values: Values, logged: bool = True) -> Trial:
        """Build the class with other values; the log only of what has a chance."""
        values = {p: v for p, v in values.items() if p not in self.leaves or v != self.leaves[p]}
        key = repr(sorted(values.items(), key=repr))
        known = self.seen.get(key)
        if known is not None and (known.log is not None or known.failed or not logged):
            return known
        self.seen[key] = made = self._try(values, logged)
        return made

    def _try(self, values: Values, logged: bool) -> Trial:
        try:
            module = self.build(changed(self.config, values), constants=logged)
        except Exception as error:  # noqa: BLE001 - a constructor may refuse with anything
            return Trial(values, failed=f"{type(error).__name__}: {error}")
        shapes, ties = shapes_of(module), ties_of(module)
        if not logged:
            return Trial(values, shapes, ties)
        try:
            return Trial(values, shapes, ties, operator_log(module, self.target.inputs))
        except Exception as error:  # noqa: BLE001 - and so may forward
            return Trial(values, shapes, ties, None, f"{type(error).__name__}: {error}")

    def score(self, trial: Trial) -> float:
        """How close a trial is, at most 2."""
        if not trial.shapes:
            return -1.0
        overlap = trial.log.overlap(self.target.log) if trial.log else 0.0
        return agreement(self.wanted, trial.features) + overlap

    def fits(self, trial: Trial) -> bool:
        """Whether all sizes are as wanted."""
        return dict(trial.shapes) == dict(self.target.shapes)

    def solves(self, trial: Trial) -> bool:
        """Whether it is the planned program, but for real literals."""
        if not self.fits(trial) or trial.ties != self.target.ties or trial.log is None:
            return False
        return trial.log.structure == self.target.log.structure

    # ------------------------------------------------------------------ the search

    def run(self) -> Solved | Unsolved:
        """Best first by proposals from sizes; then what no size shows, from the best of those."""
        best, found = self.by_sizes()
        if not found:
            best = self.unseen(best)
        if self.solves(best):
            return self.solved(self.fewest(self.exact(best)))
        return self.unsolved(best)

    def by_sizes(self) -> tuple[Trial, bool]:
        """The best trial that sizes lead to, and whether it solves."""
        heap: list[tuple[float, int, Trial]] = []
        best, queued = self.source, set()

        def push(trial: Trial) -> None:
            nonlocal best
            key = repr(sorted(trial.values.items(), key=repr))
            if key not in queued:
                queued.add(key)
                heappush(heap, (-self.score(trial), next(self.order), trial))
                best = max(best, trial, key=self.score)

        push(self.source)
        for _ in range(ROUNDS):
            if self.solves(best) or not heap:
                break
            _, _, trial = heappop(heap)
            for values in self.proposals(trial):
                push(self.trial({**trial.values, **values}))
                if self.solves(best):
                    break
        return best, self.solves(best)

    def proposals(self, trial: Trial) -> Iterator[Values]:
        """New values from what sizes do when a number changes: the most telling together, then alone."""
        wrong = {f for f, n in self.wanted.items() if trial.features.get(f, n) != n}
        votes: dict[tuple[Path, str], set[Feature]] = {}
        values: dict[tuple[Path, str], Any] = {}
        for path, proposed in self.moving(trial) if wrong else ():
            for feature in proposed.keys() & wrong:
                vote = path, repr(proposed[feature])
                values[vote] = proposed[feature]
                votes.setdefault(vote, set()).add(feature)
        ranked = sorted(votes, key=lambda vote: (-len(votes[vote]), repr(vote)))
        together: dict[Path, Any] = {}
        for vote in ranked:
            if votes[vote] & wrong and vote[0] not in together:
                together[vote[0]] = values[vote]
                wrong -= votes[vote]
        if len(together) > 1:
            yield from self.with_lists(trial, together)
        for vote in ranked[:PROPOSALS]:
            yield from self.with_lists(trial, {vote[0]: values[vote]})

    def moving(self, trial: Trial) -> Iterator[tuple[Path, dict[Feature, Any]]]:
        """For each leaf that sizes follow: the value that would give each of them as wanted."""
        for path, before in self.leaves.items():
            if path not in self.still:
                proposed = self.following(trial, path, trial.values.get(path, before))
                if proposed:
                    yield path, proposed

    def following(self, trial: Trial, path: Path, value: Any) -> dict[Feature, Any]:
        """The value of one leaf that would give each size that follows it as wanted."""
        for probe in probes(value):
            there = self.probed(trial, path, value, probe)
            if not there.shapes:
                continue
            moved = {
                f: (n, there.features[f])
                for f, n in trial.features.items()
                if f in self.wanted and there.features.get(f, n) != n
            }
            if not moved:
                if not trial.values:
                    self.still.add(path)
                return {}
            base = 0.0 if value is None else value
            step = probe - base
            if value is None:
                return {f: self.whole(None, probe * self.wanted[f] / new) for f, (_, new) in moved.items()}
            slopes = {f: (new - old) / step for f, (old, new) in moved.items()}
            return {
                f: made
                for f, slope in slopes.items()
                if (made := self.whole(value, base + (self.wanted[f] - moved[f][0]) / slope)) is not None
            }
        return {}

    def probed(self, trial: Trial, path: Path, value: Any, probe: Any) -> Trial:
        """The trial with another number; with lists of its length too, where the class insists."""
        there = self.trial({**trial.values, path: probe}, logged=False)
        if there.shapes or not isinstance(value, int):
            return there
        lists = self.lists(trial, path[:-1], value, tuple(min(i, value - 1) for i in range(probe)))
        return self.trial({**trial.values, path: probe, **lists}, logged=False) if lists else there

    @staticmethod
    def whole(value: Any, proposed: float) -> Any:
        """A proposal as a value of the leaf's kind, or None."""
        if isinstance(value, float):
            return proposed
        return round(proposed) if proposed > 0 and abs(proposed - round(proposed)) < 1e-6 else None

    def with_lists(self, trial: Trial, values: Values) -> Iterator[Values]:
        """Values that change a number of layers, with the lists that go along, and without."""
        followed: dict[Path, Any] = {}
        for path, new in values.items():
            old = trial.values.get(path, self.leaves[path])
            if isinstance(old, int) and isinstance(new, int):
                followed |= self.lists(trial, path[:-1], old, self.lineage(trial, old, new))
        yield values
        if followed:
            yield {**values, **followed}

    def lineage(self, trial: Trial, old: int, new: int) -> tuple[int, ...]:
        """Which layer each of a new number of them was: as the target says of a container of this length."""
        known = layer_counts(trial.shapes)
        for container, layers in self.target.layers.items():
            if known.get(container) == old and len(layers) == new:
                return layers
        return tuple(min(i, old - 1) for i in range(new))

    def lists(self, trial: Trial, place: Path, old: int, lineage: tuple[int, ...]) -> dict[Path, Any]:
        """Lists beside a number of layers, as long as it was: with the entries of the new layers."""
        beside = value_at(changed(self.config, trial.values), place)
        return {
            (*place, key): [value[i] for i in lineage]
            for key, value in beside.items()
            if isinstance(value, list) and len(value) == old
        }

    # ------------------------------------------------------------------ what no shape shows

    def unseen(self, best: Trial) -> Trial:
        """The best trial with other values of what no shape shows: one by one, then in pairs."""
        for usual in (True, False):
            better = self.turned(best, usual)
            while better is not best and not self.solves(best):
                best, better = better, self.turned(better, usual)
            if self.solves(best):
                break
        return best

    def turned(self, best: Trial, usual: bool) -> Trial:
        """A better trial than the best, or the best: of usual fields alone, or of all."""
        telling: list[Suggestion] = []
        better = best
        for suggestion in self.candidates(best):
            if usual and suggestion[0][-1] not in USUAL:
                continue
            made = self.varied(better, suggestion)
            if made.shapes != better.shapes or made.log != better.log:
                telling.append(suggestion)
            better = max(better, made, key=self.score)
            if self.solves(better):
                return better
        return self.paired(best, telling) if better is best else better

    def varied(self, best: Trial, *suggestions: Suggestion) -> Trial:
        """The trial with other values, with its log if its shapes stay."""
        values = {**best.values, **{path: value for path, value, _ in suggestions}}
        made = self.trial(values, logged=False)
        return self.trial(values) if made.shapes == best.shapes else made

    def candidates(self, best: Trial) -> Iterator[Suggestion]:
        """Values that the target's sizes and literals suggest, each with its ratio to the old one."""
        literals = self.literals(best)
        for path, before in self.leaves.items():
            value = best.values.get(path, before)
            if isinstance(value, bool):
                yield path, not value, 0.0
                continue
            made = ((scaled(value, ratio), ratio) for ratio in sorted(self.ratios))
            yield from ((path, new, ratio) for new, ratio in made if new is not None)
            if isinstance(value, float):
                yield from ((path, new, 0.0) for new in literals.get(rounded(value), ()))

    def literals(self, best: Trial) -> dict[float, tuple[float, ...]]:
        """For each real literal of the log that the target has not: those that stand there instead."""
        found: dict[float, dict[float, None]] = {}
        for mine, wanted in zip(best.log.entries if best.log else (), self.target.log.entries, strict=False):
            if mine.structure == wanted.structure:
                for a, b in zip(mine.real, wanted.real, strict=False):
                    if a != b:
                        found.setdefault(a, {})[b] = None
        return {a: tuple(b) for a, b in found.items()}

    def paired(self, best: Trial, telling: list[Suggestion]) -> Trial:
        """The best of two values changed at once, among those that do something alone; alike ones first."""
        pairs = [(a, b) for a, b in combinations(telling, 2) if a[0] != b[0]]
        pairs.sort(key=lambda pair: pair[0][2] != pair[1][2])
        for a, b in pairs[:PAIRS]:
            best = max(best, self.varied(best, a, b), key=self.score)
            if self.solves(best):
                break
        return best

    def exact(self, best: Trial) -> Trial:
        """The same with the real literals of the target, as far as fields hold them."""
        while best.log != self.target.log:
            tried = [self.varied(best, s) for s in self.candidates(best)]
            better = max([best, *tried], key=self.score)
            if better is best:
                return best
            best = better
        return best

    def fewest(self, best: Trial) -> Trial:
        """The same program from fewer changed fields."""
        for path in best.values:
            fewer = self.trial({p: value for p, value in best.values.items() if p != path})
            if self.solves(fewer) and fewer.log == best.log:
                best = fewer
        return best

    # ------------------------------------------------------------------ answers

    def solved(self, trial: Trial) -> Solved:
        """The source's config with the values of a trial."""
        assert trial.log is not None
        pairs = zip(self.target.log.entries, trial.log.entries, strict=True)
        literals = tuple(dict.fromkeys((a.operator, a.real, b.real) for a, b in pairs if a.real != b.real))
        return Solved(self.written(trial), self.fields(trial), literals)

    def written(self, trial: Trial) -> dict[str, Any]:
        """The config as its file is to say it: the source's fields and the changed ones."""
        short = changed(self.given, trial.values) if self.reaches(trial.values) else None
        if short is not None:
            module = self.build(short, constants=True)
            if (
                dict(shapes_of(module)) == dict(trial.shapes)
                and operator_log(module, self.target.inputs) == trial.log
            ):
                return short
        return changed(self.config, trial.values)

    def reaches(self, values: Values) -> bool:
        """Whether the file has the lists that paths go into."""
        try:
            for path in values:
                if isinstance(path[-1], int):
                    value_at(self.given, path)
        except (KeyError, IndexError, TypeError):
            return False
        return True

    def fields(self, trial: Trial) -> dict[str, tuple[Any, Any]]:
        """What a trial changes."""
        return {spelled(path): (value_at(self.config, path), new) for path, new in trial.values.items()}

    def unsolved(self, trial: Trial) -> Unsolved:
        """What the closest trial lacks."""
        both = self.wanted.keys() & trial.features.keys()
        sizes = tuple(
            (name, axis, self.wanted[name, axis], trial.features[name, axis])
            for name, axis in sorted(both)
            if axis != LAYERS and self.wanted[name, axis] != trial.features[name, axis]
        )
        names = tuple(sorted(self.target.shapes.keys() ^ trial.shapes.keys()))
        return Unsolved(changed(self.config, trial.values), self.fields(trial), sizes, names, trial.failed)


def complete(module: nn.Module, given: Mapping[str, Any]) -> dict[str, Any]:
    """A config with all fields that its class has, defaults too."""
    known: Any = getattr(module, "config", None)
    fields = {} if known is None else known.to_dict()
    return {**fields, **{name: value for name, value in given.items() if not isinstance(value, dict)}}


def probes(value: Any) -> list[Any]:
    """Values to see what sizes do; constructors take not every one."""
    if isinstance(value, (bool, list)):
        return []
    if value is None:
        return [64, 48]
    if isinstance(value, float):
        return [value * 2, value * 1.5, value + 0.25]
    return [value * 2, value + 1, value * 3, value + 2] if value else [1]
