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
4. Where no config does, one is taken that differs only in what adds nothing yet, since it ends in zeros.

Where a class refuses a number alone, what it fills by itself goes along, or all that were equal to it. Where
that leads nowhere, another number goes along in proportion: a class may insist on a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count
from typing import Any

from growc.dialects.torch.entries import same_logs
from growc.dialects.torch.gate import parting
from growc.dialects.torch.leaves import Path, changed, spelled, value_at
from growc.dialects.torch.oplog import operator_log
from growc.dialects.torch.proposals import Proposals
from growc.dialects.torch.shapes import LAYERS, Feature, shapes_of
from growc.dialects.torch.trials import Build, Target, Trial, Trials
from growc.dialects.torch.unseen import Unseen

__all__ = ["Build", "Solved", "Target", "Tied", "Unsolved", "solve"]

ROUNDS = 24
"""So many configs are taken up and gone on from."""

STUCK = 2
"""So many configs are mended that have all sizes and do not run."""

OTHERS = 2
"""So many more configs are named to which the plan can be brought."""

Fields = Mapping[str, tuple[Any, Any]]
"""What changes in a config, by its spelling: (before, after)."""


@dataclass(frozen=True)
class Solved:
    """A config with which the class is the planned program.

    literals: (operator, planned, of the class) for real numbers in which the class differs all the same;
    weights must make up for them. leads: for axes of tensors that nothing reads and whose size changes, the
    axes that change with them.
    """

    config: dict[str, Any]
    fields: Fields
    literals: tuple[tuple[str, tuple[float, ...], tuple[float, ...]], ...] = ()
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)


@dataclass(frozen=True)
class Tied:
    """A field that would give a planned size, and the axes that would have this field's size with it.

    axes: (tensor, axis, planned, with the field so).
    """

    field: str
    value: Any
    size: tuple[str, int, int]
    axes: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Unsolved:
    """The config that comes closest, and what differs with it.

    sizes: (tensor, axis, planned, of the class), where both have the tensor. names: tensors that only one
    of them has. failed: what the class said of it, where it could not be built or run.
    operators: where they part, if all shapes are as planned. follows: whether all
    that differs are axes that the plan leaves as they are and the class does not: they can follow. leads: for
    each of these, the axes that the same fields resize as they are planned. refused: fields that sizes
    suggest first, and what the class says of them. others: where axes can follow, the configs that come next,
    where other axes do.
    """

    config: dict[str, Any]
    fields: Fields
    sizes: tuple[tuple[str, int, int, int], ...] = ()
    names: tuple[str, ...] = ()
    failed: str = ""
    operators: str = ""
    follows: bool = False
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)
    tied: tuple[Tied, ...] = ()
    refused: tuple[Fields, str] | None = None
    others: tuple[Unsolved, ...] = ()


def solve(config: Mapping[str, Any], target: Target, build: Build) -> Solved | Unsolved:
    """The config of the planned program, changed as little as possible."""
    trials = Trials(config, target, build)
    found = _searched(trials)
    if isinstance(found, Unsolved) and trials.refused:
        trials.pair()
        paired = _searched(trials)
        return paired if isinstance(paired, Solved) else found
    return found


def _searched(trials: Trials) -> Solved | Unsolved:
    """What a search comes to."""
    proposals, unseen = Proposals(trials), Unseen(trials)
    best = by_sizes(trials, proposals)
    for start in starts(trials, best):
        best = max(best, unseen.improved(start), key=trials.score)
        if trials.solves(best):
            break
    if trials.solves(best):
        return _solved(trials, fewest(trials, unseen.exact(best)))
    idle = [trial for trial in trials.seen.values() if trials.idles(trial)]
    if idle:
        return _solved(trials, min(idle, key=lambda t: (len(t.values), -trials.score(t))))
    return _unsolved(trials, proposals, best)


def by_sizes(trials: Trials, proposals: Proposals) -> Trial:
    """The best trial that sizes lead to."""
    order = count()
    heap: list[tuple[float, int, Trial]] = [(0.0, next(order), trials.source)]
    best, queued = trials.source, {trials.source.key}
    for _ in range(ROUNDS):
        if trials.solves(best) or not heap:
            break
        trial = heappop(heap)[2]
        for values in proposals.of(trial):
            made = trials.of({**trial.values, **values})
            trials.refusals += [] if made.shapes else [made]
            if made.key not in queued:
                queued.add(made.key)
                heappush(heap, (-trials.score(made), next(order), made))
                best = max(best, made, key=trials.score)
            if trials.solves(best):
                break
    return best


def starts(trials: Trials, best: Trial) -> list[Trial]:
    """Where what no size shows is looked for: the best, and what has all sizes and does not run as it is."""
    if trials.solves(best):
        return []
    stuck = [t for t in trials.seen.values() if t.failed and t.shapes and not trials.wrong(t)]
    return [t for t in (best, *stuck[:STUCK]) if follows(trials, t)]


def follows(trials: Trials, trial: Trial) -> bool:
    """Whether what differs are axes alone that the plan leaves as they are."""
    if trial.read.keys() != trials.target.shapes.keys():
        return False
    return all(trials.source.features.get(f) == trials.wanted[f] for f in trials.wrong(trial))


def fewest(trials: Trials, best: Trial) -> Trial:
    """The same program from fewer changed fields."""
    for path in best.values:
        fewer = trials.of({p: value for p, value in best.values.items() if p != path})
        if trials.solves(fewer) and trials.same(fewer, best):
            best = fewer
    return best


# ------------------------------------------------------------------------------------------- answers


def _solved(trials: Trials, trial: Trial) -> Solved:
    assert trial.log is not None
    logs = trials.compared(trial, frozenset()) or trials.compared(trial, trials.target.zeros)
    assert logs is not None, "only what solves is an answer"
    pairs = zip(*(log.entries for log in logs), strict=True)
    literals = tuple(dict.fromkeys((a.operator, a.real, b.real) for a, b in pairs if a.real != b.real))
    return Solved(_written(trials, trial), _fields(trials, trial), literals, _unread(trials, trial))


def _written(trials: Trials, trial: Trial) -> dict[str, Any]:
    """The config as its file is to say it: the source's fields and the changed ones, if that is enough."""
    whole = changed(trials.config, trial.values)
    if not all(_within(trials.given, path) for path in trial.values):
        return whole
    short = changed(trials.given, trial.values)
    module = trials.build(short, constants=True)
    if dict(shapes_of(module)) != dict(trial.shapes) or trial.log is None:
        return whole
    return (
        short
        if same_logs(trial.log, operator_log(module, trials.target.inputs, trials.target.fixed))
        else whole
    )


def _within(config: Mapping[str, Any], path: Path) -> bool:
    """Whether a config has the list that a path leads into."""
    try:
        return not isinstance(path[-1], int) or value_at(config, path) is not None
    except (KeyError, IndexError, TypeError):
        return False


def _fields(trials: Trials, trial: Trial) -> Fields:
    return {spelled(path): (value_at(trials.config, path), new) for path, new in trial.values.items()}


def _unsolved(trials: Trials, proposals: Proposals, best: Trial) -> Unsolved:
    _even(trials, proposals, _plainest(trials, best)[0])
    others: dict[frozenset[Feature], Trial] = {}
    for other in _plainest(trials, best):
        others.setdefault(frozenset(trials.wrong(other)), other)
    first, *found = (_missed(trials, proposals, other) for other in [*others.values()][: OTHERS + 1])
    return replace(first, others=tuple(found))


def _missed(trials: Trials, proposals: Proposals, trial: Trial) -> Unsolved:
    """What differs with a config."""
    sizes = _sizes(trials, trial, trials.wrong(trial))
    names = tuple(sorted(trials.target.shapes.keys() ^ trial.read.keys()))
    following = bool(sizes) and follows(trials, trial)
    tied = () if following else _tied(trials, proposals, trial)
    leads = _leads(trials, trial, trials.wrong(trial)) if following else {}
    config = changed(trials.config, trial.values)
    parts = "" if sizes or names or trial.log is None else parting(trials.target.log, trial.log)
    refused = next(((_fields(trials, t), t.failed) for t in trials.refusals if len(t.values) == 1), None)
    fields = _fields(trials, trial)
    return Unsolved(config, fields, sizes, names, trial.failed, parts, following, leads, tied, refused)


def _plainest(trials: Trials, best: Trial) -> list[Trial]:
    """Configs where all that is left can follow, the one with the least of it first; else the best alone.

    Where the best config is none of these, less has to follow than was asked for.
    """
    tried = [t for t in trials.seen.values() if t.log is not None and follows(trials, t)]
    if not follows(trials, best):
        asked = len(_asked(trials))
        tried = [t for t in tried if len(trials.wrong(t)) < asked]
    return sorted(tried, key=lambda t: _left(trials, t)) or [best]


def _left(trials: Trials, trial: Trial) -> tuple[bool, int, int]:
    """How much is left to follow. Where all of it grows as something does that was asked for, few axes are
    better than few changes; else a change may have met a size by chance.
    """
    wrong, uneven = trials.wrong(trial), _uneven(trials, trial)
    counts = (len(wrong), len(trial.values))
    return (False, *counts) if wrong and not uneven else (True, *counts[::-1])


def _uneven(trials: Trials, trial: Trial) -> set[Feature]:
    """What is left to follow and grows as nothing does that was asked for."""
    ratios = set(_asked(trials).values())
    pairs = ((f, trial.features[f], trials.wanted[f]) for f in trials.wrong(trial))
    return {f for f, there, n in pairs if not any(there * old == n * new for new, old in ratios)}


def _even(trials: Trials, proposals: Proposals, trial: Trial) -> None:
    """Try configs where more fields grow as something does that was asked for: a size that is the difference
    of two fields grows as both if both do.
    """
    uneven = _uneven(trials, trial) if follows(trials, trial) else set()
    moving = proposals.moving(trial) if uneven else ()
    paths = [p for p, moved in moving if p not in trial.values and not uneven.isdisjoint(moved)]
    numbers = [(p, trials.leaves[p]) for p in paths if type(trials.leaves[p]) is int]
    ratios = sorted(set(_asked(trials).values()))
    values = {(p, n * new // old) for p, n in numbers for new, old in ratios if n * new % old == 0}
    for path, value in values:
        trials.of({**trial.values, path: value})


def _asked(trials: Trials) -> dict[Feature, tuple[int, int]]:
    """Axes that the plan resizes: (planned, before)."""
    before = trials.source.features
    return {f: (n, before[f]) for f, n in trials.wanted.items() if before.get(f, n) != n}


def _unread(trials: Trials, trial: Trial) -> dict[Feature, tuple[Feature, ...]]:
    """For axes that the program does not read and the class changes, those that change with them."""
    before = trials.source.features
    free = {f for f, n in trial.features.items() if f[0] not in trial.read and before.get(f, n) != n}
    return _leads(trials, trial, free) if free else {}


def _leads(trials: Trials, trial: Trial, wrong: set[Feature]) -> dict[Feature, tuple[Feature, ...]]:
    """For every wrong axis, the right ones that change with it: by each changed field, with the others or
    alone, as the class takes it. Where a field moves wrong ones alone, they are led as each other.
    """
    found: dict[Feature, set[Feature]] = {}
    together: list[set[Feature]] = []
    for path, value in trial.values.items():
        without = {p: v for p, v in trial.values.items() if p != path}
        for values, others in ((trial.values, without), ({path: value}, {})):
            there, here = (trials.of(v, logged=False).features for v in (values, others))
            moved = {f for f in there.keys() & here.keys() if there[f] != here[f]}
            if moved:
                for one in wrong & moved:
                    found.setdefault(one, set()).update(moved - wrong)
                together += [] if moved - wrong else [moved]
                break
    for moved in together:
        leaders = set[Feature]().union(*(found[one] for one in moved))
        found.update((one, leaders) for one in moved if not found[one])
    return {one: tuple(sorted(leads)) for one, leads in found.items()}


def _sizes(trials: Trials, trial: Trial, among: set[Feature]) -> tuple[tuple[str, int, int, int], ...]:
    return tuple(
        (name, axis, trials.wanted[name, axis], trial.features[name, axis])
        for name, axis in sorted(among)
        if axis != LAYERS
    )


def _tied(trials: Trials, proposals: Proposals, trial: Trial) -> tuple[Tied, ...]:
    """Fields that would give the wrong sizes, with what else they would change that no other field holds."""
    wrong, found = trials.wrong(trial), []
    for path, proposed in proposals.moving(trial):
        for feature in sorted(proposed.keys() & wrong)[:1]:
            there = trials.of({**trial.values, path: proposed[feature]}, logged=False)
            if feature in trials.wrong(there) or not there.shapes:
                continue
            others = proposals.moving(there)
            held = {f for other, values in others if other != path for f in values}
            axes = _sizes(trials, there, trials.wrong(there) - held)
            size = (*feature, trials.wanted[feature])
            found.append(Tied(spelled(path), proposed[feature], size, axes))
    return tuple(found)
