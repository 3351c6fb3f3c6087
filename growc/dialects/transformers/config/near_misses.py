"""Near misses of a plan: the configs that come closest, and their differences from it.

From tried configs, none of which is the plan, follows an `Unsolved`. It decides which axes are made to follow
(growc.checkpoint.classes.dependent_axes), or it is reported as a refusal
(growc.dialects.transformers.config.refusal).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from growc.dialects.transformers.config.check_program import first_log_difference
from growc.dialects.transformers.config.fields import FieldPath, changed, spelled
from growc.dialects.transformers.config.proposals import Proposals
from growc.dialects.transformers.config.shapes import LAYERS, Feature
from growc.dialects.transformers.config.trials import ConfigTrial, ConfigTrials

OTHERS = 2
"""The number of further configs that are reported, to which the plan can be adapted."""

ChangedFields = Mapping[str, tuple[Any, Any]]
"""The changed fields of a config, by their written paths: (before, after)."""


@dataclass(frozen=True)
class TiedField:
    """A field that would give a planned size, and the axes that would change with it.

    size: (tensor, axis, planned). axes: (tensor, axis, planned, size with this field).
    """

    field: str
    value: Any
    size: tuple[str, int, int]
    axes: tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class Unsolved:
    """The config that comes closest to the plan, and its differences.

    sizes: (tensor, axis, planned, in the class), for tensors that both have.
    names: tensors that only one of them has.
    failed: the error of the class, if it could not be built or run.
    operators: the first difference of operators, if all shapes are as planned.
    follows: whether all differences are axes that the plan keeps and the class changes. These can follow.
    leads: for each of these axes, the axes that the same fields resize as planned.
    refused: fields that sizes suggest first, and the error of the class for them.
    others: if axes can follow, the next closest configs, in which other axes do.
    decided: fields that the caller decides, with the values that the plan needs.
    """

    config: dict[str, object]
    fields: ChangedFields
    sizes: tuple[tuple[str, int, int, int], ...] = ()
    names: tuple[str, ...] = ()
    failed: str = ""
    operators: str = ""
    follows: bool = False
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)
    tied: tuple[TiedField, ...] = ()
    refused: tuple[ChangedFields, str] | None = None
    others: tuple[Unsolved, ...] = ()
    decided: ChangedFields = field(default_factory=dict)


def follows(trials: ConfigTrials, trial: ConfigTrial) -> bool:
    """Whether the only differences are axes that the plan keeps."""
    return trial.read.keys() == trials.target.shapes.keys() and _leaves(trials, trial)


def _leaves(trials: ConfigTrials, trial: ConfigTrial) -> bool:
    """Whether the plan keeps all sizes that differ."""
    return all(trials.before[f] == trials.wanted[f] for f in trials.wrong(trial))


def unsolved(trials: ConfigTrials, proposals: Proposals, best: ConfigTrial) -> Unsolved:
    """Return the outcome of a search that found no config."""
    right_shapes = [t for t in trials.seen.values() if t.log is not None and t.read == trials.target.shapes]
    best = max([trials.of(best.values, logged=True), *right_shapes], key=trials.score)
    _even(trials, proposals, next(_plainest(trials, best)))
    others: dict[frozenset[Feature], ConfigTrial] = {}
    for other in _plainest(trials, best):
        others.setdefault(frozenset(trials.wrong(other)), other)
        if len(others) > OTHERS:
            break
    first, *further = (_missed(trials, proposals, other) for other in others.values())
    return replace(first, others=tuple(further))


def _missed(trials: ConfigTrials, proposals: Proposals, trial: ConfigTrial) -> Unsolved:
    """Return the differences of a config from the plan."""
    sizes = _sizes(trials, trial, trials.wrong(trial))
    names = tuple(sorted(trials.target.shapes.keys() ^ trial.read.keys()))
    following = bool(sizes) and follows(trials, trial)
    tied = () if following else _tied(trials, proposals, trial)
    leads = leads_of(trials, trial, trials.wrong(trial)) if following else {}
    config = changed(trials.config, trial.values)
    parts = "" if sizes or names or trial.log is None else first_log_difference(trials.target.log, trial.log)
    refused = next(((fields_of(trials, t), t.failed) for t in trials.proposed if t.refused), None)
    fields = fields_of(trials, trial)
    return Unsolved(config, fields, sizes, names, trial.failed, parts, following, leads, tied, refused)


def _plainest(trials: ConfigTrials, best: ConfigTrial) -> Iterator[ConfigTrial]:
    """Yield configs in which all differences can follow, or else only the best config.

    Those with the fewest differences come first. If the best config is none of these, fewer axes must follow
    than the plan resizes.
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


def _left(trials: ConfigTrials, trial: ConfigTrial) -> tuple[bool, int, int]:
    """Return a rank for how much is left to follow.

    If all of it grows in a ratio that was asked for, few axes count before few changes. Otherwise a change
    may have met a size by chance, and few changes count first.
    """
    wrong, uneven = trials.wrong(trial), _uneven(trials, trial)
    counts = (len(wrong), len(trial.values))
    return (False, *counts) if wrong and not uneven else (True, *counts[::-1])


def _uneven(trials: ConfigTrials, trial: ConfigTrial) -> set[Feature]:
    """Return the axes left to follow that grow in no ratio that was asked for."""
    ratios = set(_asked(trials).values())
    pairs = ((f, trial.features[f], trials.wanted[f]) for f in trials.wrong(trial))
    return {f for f, there, n in pairs if not any(there * old == n * new for new, old in ratios)}


def _even(trials: ConfigTrials, proposals: Proposals, trial: ConfigTrial) -> None:
    """Try configs in which more fields grow in a ratio that was asked for.

    A size that is the difference of two fields grows in that ratio if both fields do.
    """
    uneven = _uneven(trials, trial) if follows(trials, trial) else set()
    moving = proposals.moving(trial) if uneven else ()
    paths = [p for p, moved in moving if p not in trial.values and not uneven.isdisjoint(moved)]
    numbers = [(p, trials.settings[p]) for p in paths if type(trials.settings[p]) is int]
    ratios = sorted(set(_asked(trials).values()))
    changes = ((p, n * new // old) for p, n in numbers for new, old in ratios if n * new % old == 0)
    for path, value in dict.fromkeys(changes):
        trials.propose({**trial.values, path: value}, trial)


def _asked(trials: ConfigTrials) -> dict[Feature, tuple[int, int]]:
    """Return the axes that the plan resizes: (planned, before)."""
    before = trials.source.features
    return {f: (n, before[f]) for f, n in trials.wanted.items() if before.get(f, n) != n}


def leads_of(
    trials: ConfigTrials, trial: ConfigTrial, wrong: set[Feature]
) -> dict[Feature, tuple[Feature, ...]]:
    """Return, for every wrong axis, the right axes that change with it.

    Each changed field is tried with the other fields or alone, as the class accepts it. Fields that the class
    accepts in neither way are tried together. If a field moves only wrong axes, these share their leading
    axes.
    """
    leaders_of: dict[Feature, set[Feature]] = {}
    leaderless: list[set[Feature]] = []
    moved_by = {path: _moved(trials, trial, [path]) for path in trial.values}
    inseparable = [path for path, moved in moved_by.items() if not moved]
    for moved in (*moved_by.values(), _moved(trials, trial, inseparable)):
        for axis in wrong & moved:
            leaders_of.setdefault(axis, set()).update(moved - wrong)
        leaderless += [] if moved - wrong or not moved else [moved]
    for moved in leaderless:
        leaders = set[Feature]().union(*(leaders_of[axis] for axis in moved))
        leaders_of.update((axis, leaders) for axis in moved if not leaders_of[axis])
    return {axis: tuple(sorted(leads)) for axis, leads in leaders_of.items()}


def _moved(trials: ConfigTrials, trial: ConfigTrial, paths: Sequence[FieldPath]) -> set[Feature]:
    """Return the axes that some changed fields move: on top of the other fields, or else alone."""
    chosen = {p: v for p, v in trial.values.items() if p in paths}
    rest = {p: v for p, v in trial.values.items() if p not in paths}
    for values, others in ((trial.values, rest), (chosen, {})):
        builds = [(trials.of(changes, logged=False), changes) for changes in (values, others)]
        if any(built.values.keys() - changes.keys() - trials.decided.keys() for built, changes in builds):
            continue  # the class refuses these values alone
        with_fields, without_fields = (built.features for built, _ in builds)
        if moved := {
            f for f in with_fields.keys() & without_fields.keys() if with_fields[f] != without_fields[f]
        }:
            return moved
    return set()


def _sizes(
    trials: ConfigTrials, trial: ConfigTrial, among: set[Feature]
) -> tuple[tuple[str, int, int, int], ...]:
    return tuple(
        (name, axis, trials.wanted[name, axis], trial.features[name, axis])
        for name, axis in sorted(among)
        if axis != LAYERS
    )


def _tied(trials: ConfigTrials, proposals: Proposals, trial: ConfigTrial) -> tuple[TiedField, ...]:
    """Return the fields that would correct wrong sizes, with the other axes that they alone would change."""
    wrong, tied = trials.wrong(trial), []
    for path, proposed in proposals.moving(trial):
        for feature in sorted(proposed.keys() & wrong)[:1]:
            candidate = trials.of({**trial.values, path: proposed[feature]}, logged=False)
            if feature in trials.wrong(candidate) or not candidate.shapes:
                continue
            others = proposals.moving(candidate)
            determined = {f for other, values in others if other != path for f in values}
            axes = _sizes(trials, candidate, trials.wrong(candidate) - determined)
            size = (*feature, trials.wanted[feature])
            tied.append(TiedField(spelled(path), proposed[feature], size, axes))
    return tuple(tied)


def fields_of(trials: ConfigTrials, trial: ConfigTrial) -> ChangedFields:
    """Return the fields of a config that differ from the source's."""
    return {spelled(path): (trials.value(path), new) for path, new in trial.values.items()}
