"""Search for the config that gives a class the planned sizes, by building the class, not by field names.

The search takes the source's config, a `Target` (shapes, ties and operator log of the planned program), and a
function that builds the class on meta. The result is `FittedConfig`, or `Unsolved` with the obstacles.

Each size and each number of the log is an equation in the fields of the config. One build per field shows how
the numbers follow it, and so which value would give the planned numbers (`Proposals`). Shapes are not enough.
The number of heads shows in none of them, so most configs with the right shapes are wrong. So sizes are
solved first. Once all sizes hold, the whole numbers of the log are solved, and then its real numbers. A log
is only recorded if the sizes hold.

The cost of a config counts equations that do not hold, then changed fields, then numbers that decrease while
sizes grow. Such a number is mostly a ratio, which stays as it is. Of all proposed values, together and alone,
the config of least cost is continued. A config is an answer only if shapes, ties and the log are equal. If
there is none, one may differ in branches that add nothing yet, because they end in zeros.

A class may refuse a value alone. Then further values change with it (`ConfigTrials`): fields that the class
fills itself, numbers that were equal, another number in proportion, or lists per layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, takewhile

from growc.dialects.transformers.config.fields import FieldPath, Values, changed, spelled, value_at
from growc.dialects.transformers.config.near_misses import (
    ChangedFields,
    Unsolved,
    fields_of,
    leads_of,
    unsolved,
)
from growc.dialects.transformers.config.proposals import Proposals
from growc.dialects.transformers.config.shapes import Feature
from growc.dialects.transformers.config.trials import Build, ConfigTrial, ConfigTrials, KnownSizes, Target
from growc.dialects.transformers.log.entry import Log, same_logs

PATIENCE = 32
"""The number of stages of proposals without progress after which the search ends."""


@dataclass(frozen=True)
class FittedConfig:
    """A config with which the class is the planned program, apart from real literals.

    Weights compensate for these. log: the operator log of this class. leads: for resized axes of unread
    tensors, the axes that change with them.
    """

    config: dict[str, object]
    fields: ChangedFields
    log: Log
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)


def solve(
    config: Mapping[str, object],
    target: Target,
    build: Build,
    known: KnownSizes | None = None,
    decided: Values | None = None,
) -> FittedConfig | Unsolved:
    """Return the config of the planned program, with as few changes as possible.

    decided: fields with fixed values. known: earlier builds for targets with the same inputs; new ones are
    added.
    """
    known = KnownSizes() if known is None else known
    trials = ConfigTrials(config, target, build, known, decided)
    outcome = _searched(trials)
    if isinstance(outcome, Unsolved) and any(trial.refused for trial in trials.seen.values()):
        paired = _searched(ConfigTrials(config, target, build, known, decided, paired=True))
        outcome = paired if isinstance(paired, FittedConfig) else outcome
    if isinstance(outcome, Unsolved) and (fields := _fields_of_wrong_sizes(trials)):
        by_layer = ConfigTrials(config, target, build, known, decided, by_layer=fields)
        solved = _searched(by_layer) if by_layer.settings.keys() > trials.settings.keys() else outcome
        outcome = solved if isinstance(solved, FittedConfig) else outcome
    if not decided or isinstance(outcome, FittedConfig):
        return outcome
    free = solve(config, target, build, known)
    if isinstance(free, Unsolved):
        return outcome
    before = {path: (None, trials.value(path)) for path in decided}
    planned = {path: free.fields.get(spelled(path), before[path])[1] for path in decided}
    return replace(
        outcome, decided={spelled(p): (v, planned[p]) for p, v in decided.items() if v != planned[p]}
    )


def _fields_of_wrong_sizes(trials: ConfigTrials) -> list[FieldPath]:
    """Return the fields that one planned size asks another value of than another does.

    Such a field would need a value for each layer.
    """
    proposals = Proposals(trials)
    wrong, several = proposals.sizes.wrong(trials.start), list[FieldPath]()
    for path in proposals.sized if wrong else ():
        estimates = proposals.following(trials.start, proposals.sizes, path)
        if len({repr(value) for place, value in estimates.items() if place in wrong}) > 1:
            several.append(path)
    return several


def _searched(trials: ConfigTrials) -> FittedConfig | Unsolved:
    """Return the outcome of a search."""
    proposals = Proposals(trials)
    best = explored(trials, proposals)
    if trials.solves(best):
        return _solved(trials, fewest(trials, best))
    zeros = trials.target.zeros
    idle = [trial for trial in trials.seen.values() if zeros and trials.solves(trial, zeros)]
    if idle:
        return _solved(trials, min(idle, key=lambda t: (len(t.values), -trials.score(t))))
    return unsolved(trials, proposals, best)


def explored(trials: ConfigTrials, proposals: Proposals) -> ConfigTrial:
    """Return the best trial that sizes and logs lead to.

    The best trial so far is continued, stage by stage.
    """
    order, best, queued = count(), trials.start, {trials.start.key}
    heap = [(-trials.score(best), next(order), best, proposals.of(best))]
    last, rounds = 0, count()
    while heap and not trials.exact(best) and (round_number := next(rounds)) - last < PATIENCE:
        rank, _, trial, stages = heappop(heap)
        if (stage := next(stages, None)) is None:
            if trials.solves(trial):
                break
            continue
        heappush(heap, (rank, next(order), trial, stages))
        for values in stage:
            proposed = trials.propose(values, trial)
            if proposed.key not in queued:
                queued.add(proposed.key)
                heappush(heap, (-trials.score(proposed), next(order), proposed, proposals.of(proposed)))
                closer = trials.score(proposed) > trials.score(best)
                best, last = (proposed, round_number) if closer else (best, last)
            if trials.solves(best) and not trials.solves(trial):
                break
    return best


def fewest(trials: ConfigTrials, best: ConfigTrial) -> ConfigTrial:
    """Return the same program from fewer changed fields.

    Lists that the class fills in the same way are dropped.
    """
    lists = {path: value for path, value in best.values.items() if isinstance(value, list)}
    others = {path: value for path, value in best.values.items() if path not in lists}
    filled = trials.filled(others, trials.own) if lists else {}
    for path in best.values:
        if path in lists and filled.get(path) == lists[path]:
            continue
        fewer = trials.of({p: value for p, value in best.values.items() if p != path})
        better = len(fewer.values) < len(best.values) and trials.score(fewer) >= trials.score(best)
        best = fewer if better and trials.solves(fewer) else best
    return best


# ------------------------------------------------------------------------------------------- answers


def _solved(trials: ConfigTrials, trial: ConfigTrial) -> FittedConfig:
    """Return the config to write: the source's fields and the changed ones, if these are enough."""
    assert trial.log is not None, "what is the planned program has a log"
    full = changed(trials.config, trial.values)
    tops = [
        tuple(takewhile(lambda key: isinstance(key, str), path)) for path in trial.values
    ]  # lists are written as a whole
    short = changed(trials.source_config, {top: value_at(full, top) for top in tops})
    rebuilt = trials.built(short, logged=True)
    equal = rebuilt.log is not None and same_logs(trial.log, rebuilt.log) and rebuilt.shapes == trial.shapes
    config, log = (short, rebuilt.log) if rebuilt.log is not None and equal else (full, trial.log)
    return FittedConfig(config, fields_of(trials, trial), log, _unread(trials, trial))


def _unread(trials: ConfigTrials, trial: ConfigTrial) -> dict[Feature, tuple[Feature, ...]]:
    """Return, for unread axes that the class resizes, the axes that change with them."""
    before = trials.source.features
    free = {f for f, n in trial.features.items() if f[0] not in trial.read and before.get(f, n) != n}
    return leads_of(trials, trial, free) if free else {}
