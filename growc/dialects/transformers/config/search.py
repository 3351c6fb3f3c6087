"""Which config gives a class the planned sizes: found by building the class, not by names of fields.

Needs: the source's config, `Target` (shapes, ties and operator log of the planned program), and a function
that builds the class on meta. Gives: `Solved`, or `Unsolved` with what stands in the way.

Shapes are not enough: the number of heads shows in none of them, so that most configs with the right shapes
are wrong ones. A config is taken only where shapes, ties and the log are equal.

1. Every field of the config is changed, one at a time; what sizes do then says which value would give the
   wanted ones. Of these proposals, alone and together, the best by shapes and common log is taken up next.
2. Where all shapes are as wanted and the log is not, the numbers of the log say the same of fields that no
   shape shows, and truth values are turned.
3. Lists as long as the layers were follow the lineage of the layers.
4. Where no config does, one is taken that differs only in what adds nothing yet, since it ends in zeros.

Where a class refuses a number alone, what it fills by itself goes along, or all that were equal to it. Where
that leads nowhere, another number goes along in proportion: a class may insist on a product.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from growc.dialects.transformers.config.fields import Path, Values, changed, value_at
from growc.dialects.transformers.config.near_misses import (
    Fields,
    Unsolved,
    fields_of,
    leads_of,
    unsolved,
)
from growc.dialects.transformers.config.proposals import Proposals
from growc.dialects.transformers.config.shapes import Feature, shapes_of
from growc.dialects.transformers.config.trials import Build, Known, Target, Trial, Trials
from growc.dialects.transformers.log.entry import same_logs
from growc.dialects.transformers.log.record import operator_log

ROUNDS = 24
"""So many configs are taken up and gone on from."""


@dataclass(frozen=True)
class Solved:
    """A config with which the class is the planned program, but for real literals, which weights make up for.

    leads: for axes of tensors that nothing reads and whose size changes, the axes that change with them.
    """

    config: dict[str, object]
    fields: Fields
    leads: Mapping[Feature, tuple[Feature, ...]] = field(default_factory=dict)


def solve(
    config: Mapping[str, object],
    target: Target,
    build: Build,
    known: Known | None = None,
    decided: Values | None = None,
) -> Solved | Unsolved:
    """The config of the planned program, changed as little as possible. `decided`: fields with these values.

    known: what was built before for targets with the same inputs; more comes to it.
    """
    known = {} if known is None else known
    trials = Trials(config, target, build, known, decided)
    found = _searched(trials)
    if isinstance(found, Unsolved) and trials.refused:
        paired = _searched(Trials(config, target, build, known, decided, paired=True))
        return paired if isinstance(paired, Solved) else found
    return found


def _searched(trials: Trials) -> Solved | Unsolved:
    """What a search comes to."""
    proposals = Proposals(trials)
    best = explored(trials, proposals)
    if trials.solves(best):
        return _solved(trials, fewest(trials, best))
    idle = [trial for trial in trials.seen.values() if trials.idles(trial)]
    if idle:
        return _solved(trials, min(idle, key=lambda t: (len(t.values), -trials.score(t))))
    return unsolved(trials, proposals, best)


def explored(trials: Trials, proposals: Proposals) -> Trial:
    """The best trial that sizes and logs lead to."""
    order = count()
    heap: list[tuple[float, int, Trial]] = [(0.0, next(order), trials.start)]
    best, queued = trials.start, {trials.start.key: False}
    for _ in range(ROUNDS):
        if not heap or (trials.solves(best) and (queued[best.key] or trials.exact(best))):
            break
        trial = heappop(heap)[2]
        queued[trial.key] = True
        for values in proposals.of(trial):
            made = trials.propose(values)
            if made.key not in queued:
                queued[made.key] = False
                heappush(heap, (-trials.score(made), next(order), made))
                best = max(best, made, key=trials.score)
            if trials.solves(best) and (trials.exact(best) or not trials.solves(trial)):
                break
    return best


def fewest(trials: Trials, best: Trial) -> Trial:
    """The same program from fewer changed fields."""
    for path in best.values:
        fewer = trials.of({p: value for p, value in best.values.items() if p != path})
        same = fewer.log is not None and best.log is not None and same_logs(fewer.log, best.log)
        if same and trials.solves(fewer):
            best = fewer
    return best


# ------------------------------------------------------------------------------------------- answers


def _solved(trials: Trials, trial: Trial) -> Solved:
    return Solved(_written(trials, trial), fields_of(trials, trial), _unread(trials, trial))


def _written(trials: Trials, trial: Trial) -> dict[str, object]:
    """The config as its file is to say it: the source's fields and the changed ones, if that is enough."""
    whole = changed(trials.config, trial.values)
    if not all(_within(trials.given, path) for path in trial.values):
        return whole
    short = changed(trials.given, trial.values)
    module = trials.build(short, constants=True)
    if dict(shapes_of(module)) != dict(trial.shapes) or trial.log is None:
        return whole
    log = operator_log(module, trials.target.inputs, trials.target.fixed)
    return short if same_logs(trial.log, log) else whole


def _within(config: Mapping[str, object], path: Path) -> bool:
    """Whether a config has the list that a path leads into."""
    try:
        return not isinstance(path[-1], int) or value_at(config, path) is not None
    except (KeyError, IndexError, TypeError):
        return False


def _unread(trials: Trials, trial: Trial) -> dict[Feature, tuple[Feature, ...]]:
    """For axes that the program does not read and the class changes, those that change with them."""
    before = trials.source.features
    free = {f for f, n in trial.features.items() if f[0] not in trial.read and before.get(f, n) != n}
    return leads_of(trials, trial, free) if free else {}
