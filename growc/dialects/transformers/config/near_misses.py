"""What stands in the way of a plan: the configs that come closest, and what differs with them.

Needs: configs that were tried, none of which is the plan. Gives: `Unsolved`, from which axes are made to
follow (growc.checkpoint.classes.dependent_axes), or a refusal is said
(growc.dialects.transformers.config.refusal).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from growc.dialects.transformers.config.check_program import parting
from growc.dialects.transformers.config.fields import Path, changed, spelled
from growc.dialects.transformers.config.proposals import Proposals
from growc.dialects.transformers.config.shapes import LAYERS, Feature
from growc.dialects.transformers.config.trials import Trial, Trials

OTHERS = 2
"""So many more configs are named to which the plan can be brought."""

Fields = Mapping[str, tuple[Any, Any]]
"""What changes in a config, by its spelling: (before, after)."""


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
    where other axes do. decided: fields that the caller decides, and the values that the plan asks for.
    """

    config: dict[str, object]
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
    decided: Fields = field(default_factory=dict)


def follows(trials: Trials, trial: Trial) -> bool:
    """Whether what differs are axes alone that the plan leaves as they are."""
    return trial.read.keys() == trials.target.shapes.keys() and _leaves(trials, trial)


def _leaves(trials: Trials, trial: Trial) -> bool:
    """Whether the plan leaves all sizes that differ as they are."""
    return all(trials.before[f] == trials.wanted[f] for f in trials.wrong(trial))


def unsolved(trials: Trials, proposals: Proposals, best: Trial) -> Unsolved:
    """What a search that found no config comes to."""
    whole = [t for t in trials.seen.values() if t.log is not None and t.read == trials.target.shapes]
    best = max([trials.of(best.values, logged=True), *whole], key=trials.score)
    _even(trials, proposals, next(_plainest(trials, best)))
    others: dict[frozenset[Feature], Trial] = {}
    for other in _plainest(trials, best):
        others.setdefault(frozenset(trials.wrong(other)), other)
        if len(others) > OTHERS:
            break
    first, *found = (_missed(trials, proposals, other) for other in others.values())
    return replace(first, others=tuple(found))


def _missed(trials: Trials, proposals: Proposals, trial: Trial) -> Unsolved:
    """What differs with a config."""
    sizes = _sizes(trials, trial, trials.wrong(trial))
    names = tuple(sorted(trials.target.shapes.keys() ^ trial.read.keys()))
    following = bool(sizes) and follows(trials, trial)
    tied = () if following else _tied(trials, proposals, trial)
    leads = leads_of(trials, trial, trials.wrong(trial)) if following else {}
    config = changed(trials.config, trial.values)
    parts = "" if sizes or names or trial.log is None else parting(trials.target.log, trial.log)
    refused = next(((fields_of(trials, t), t.failed) for t in trials.proposed if t.refused), None)
    fields = fields_of(trials, trial)
    return Unsolved(config, fields, sizes, names, trial.failed, parts, following, leads, tied, refused)


def _plainest(trials: Trials, best: Trial) -> Iterator[Trial]:
    """Configs where all that is left can follow, the one with the least of it first; else the best alone.

    Where the best config is none of these, less has to follow than was asked for.
    """
    if best.log is not None and best.read == trials.target.shapes:
        yield best
        return
    most = len(trials.wanted) if follows(trials, best) else len(_asked(trials)) - 1
    fits = (t for t in trials.proposed if t.shapes and _leaves(trials, t) and len(trials.wrong(t)) <= most)
    ordered = sorted({t.key: t for t in fits}.values(), key=lambda t: _left(trials, t))
    logged = (trials.of(trial.values, logged=True) for trial in ordered)
    following = (trial for trial in logged if trial.log is not None and follows(trials, trial))
    yield next(following, best)
    yield from following


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
    made = ((p, n * new // old) for p, n in numbers for new, old in ratios if n * new % old == 0)
    for path, value in dict.fromkeys(made):
        trials.propose({**trial.values, path: value}, trial)


def _asked(trials: Trials) -> dict[Feature, tuple[int, int]]:
    """Axes that the plan resizes: (planned, before)."""
    before = trials.source.features
    return {f: (n, before[f]) for f, n in trials.wanted.items() if before.get(f, n) != n}


def leads_of(trials: Trials, trial: Trial, wrong: set[Feature]) -> dict[Feature, tuple[Feature, ...]]:
    """For every wrong axis, the right ones that change with it: by each changed field, with the others or
    alone, as the class takes it, and by all fields together that it takes in neither way. Where a field moves
    wrong ones alone, they are led as each other.
    """
    found: dict[Feature, set[Feature]] = {}
    together: list[set[Feature]] = []
    alone = {path: _moved(trials, trial, [path]) for path in trial.values}
    bound = [path for path, moved in alone.items() if not moved]
    for moved in (*alone.values(), _moved(trials, trial, bound)):
        for one in wrong & moved:
            found.setdefault(one, set()).update(moved - wrong)
        together += [] if moved - wrong or not moved else [moved]
    for moved in together:
        leaders = set[Feature]().union(*(found[one] for one in moved))
        found.update((one, leaders) for one in moved if not found[one])
    return {one: tuple(sorted(leads)) for one, leads in found.items()}


def _moved(trials: Trials, trial: Trial, paths: Sequence[Path]) -> set[Feature]:
    """The axes that change with some changed fields and no more: beside the others, or else alone."""
    those = {p: v for p, v in trial.values.items() if p in paths}
    rest = {p: v for p, v in trial.values.items() if p not in paths}
    for values, others in ((trial.values, rest), (those, {})):
        made = [(trials.of(asked, logged=False), asked) for asked in (values, others)]
        if any(built.values.keys() - asked.keys() - trials.decided.keys() for built, asked in made):
            continue  # the class refuses these alone
        there, here = (built.features for built, _ in made)
        if moved := {f for f in there.keys() & here.keys() if there[f] != here[f]}:
            return moved
    return set()


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


def fields_of(trials: Trials, trial: Trial) -> Fields:
    """The fields of a config that are others than in the source's."""
    return {spelled(path): (trials.value(path), new) for path, new in trial.values.items()}
