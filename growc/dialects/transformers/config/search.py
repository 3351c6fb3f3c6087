"""Which config gives a class the planned sizes: found by building the class, not by names of fields.

Needs: the source's config, `Target` (shapes, ties and operator log of the planned program), and a function
that builds the class on meta. Gives: `Solved`, or `Unsolved` with what stands in the way.

Each size and each number of the log is an equation in the fields of the config. One build for each field says
how the numbers follow it, and so which value would give those that are planned (`Proposals`). Shapes are not
enough: the number of heads shows in none of them, so that most configs with the right shapes are wrong ones.
So sizes are solved first; where all hold, the whole numbers of the log are, and then its real numbers. A log
is only taken where sizes hold.

The cost of a config: first the equations that do not hold, then the fields that change, then the numbers that
become less where sizes become more, for a ratio mostly stays as it is. Of all values that are proposed,
together and alone, the config that costs least is taken up next. It is an answer only where shapes, ties and
the log are equal; where none is, one may differ in what adds nothing yet, since it ends in zeros.

A class may refuse some values alone. Then more go along (`Trials`): what it fills by itself, numbers that
were equal, another number in proportion, or lists of layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from itertools import count, takewhile

from growc.dialects.transformers.config.fields import Values, changed, spelled, value_at
from growc.dialects.transformers.config.near_misses import (
    Fields,
    Unsolved,
    fields_of,
    leads_of,
    unsolved,
)
from growc.dialects.transformers.config.proposals import Proposals
from growc.dialects.transformers.config.shapes import Feature
from growc.dialects.transformers.config.trials import Build, Known, Target, Trial, Trials
from growc.dialects.transformers.log.entry import Log, same_logs

PATIENCE = 32
"""After so many stages of proposals that come no closer the search ends."""


@dataclass(frozen=True)
class Solved:
    """A config with which the class is the planned program, but for real literals, which weights make up for.

    log: of this class. leads: for axes of tensors that nothing reads and whose size changes, the axes that
    change with them.
    """

    config: dict[str, object]
    fields: Fields
    log: Log
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
    known = Known() if known is None else known
    trials = Trials(config, target, build, known, decided)
    found = _searched(trials)
    if isinstance(found, Unsolved) and any(trial.refused for trial in trials.seen.values()):
        paired = _searched(Trials(config, target, build, known, decided, paired=True))
        found = paired if isinstance(paired, Solved) else found
    if not decided or isinstance(found, Solved):
        return found
    free = solve(config, target, build, known)
    if isinstance(free, Unsolved):
        return found
    before = {path: (None, trials.value(path)) for path in decided}
    asked = {path: free.fields.get(spelled(path), before[path])[1] for path in decided}
    return replace(found, decided={spelled(p): (v, asked[p]) for p, v in decided.items() if v != asked[p]})


def _searched(trials: Trials) -> Solved | Unsolved:
    """What a search comes to."""
    proposals = Proposals(trials)
    best = explored(trials, proposals)
    if trials.solves(best):
        return _solved(trials, fewest(trials, best))
    zeros = trials.target.zeros
    idle = [trial for trial in trials.seen.values() if zeros and trials.solves(trial, zeros)]
    if idle:
        return _solved(trials, min(idle, key=lambda t: (len(t.values), -trials.score(t))))
    return unsolved(trials, proposals, best)


def explored(trials: Trials, proposals: Proposals) -> Trial:
    """The best trial that sizes and logs lead to: the best so far is gone on from, one stage at a time."""
    order, best, queued = count(), trials.start, {trials.start.key}
    heap = [(-trials.score(best), next(order), best, proposals.of(best))]
    last, rounds = 0, count()
    while heap and not trials.exact(best) and (now := next(rounds)) - last < PATIENCE:
        rank, _, trial, stages = heappop(heap)
        if (stage := next(stages, None)) is None:
            if trials.solves(trial):
                break
            continue
        heappush(heap, (rank, next(order), trial, stages))
        for values in stage:
            made = trials.propose(values, trial)
            if made.key not in queued:
                queued.add(made.key)
                heappush(heap, (-trials.score(made), next(order), made, proposals.of(made)))
                closer = trials.score(made) > trials.score(best)
                best, last = (made, now) if closer else (best, last)
            if trials.solves(best) and not trials.solves(trial):
                break
    return best


def fewest(trials: Trials, best: Trial) -> Trial:
    """The same program from fewer changed fields. Lists that the class fills by itself stay as it does."""
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


def _solved(trials: Trials, trial: Trial) -> Solved:
    """The config as its file is to say it: the source's fields and the changed ones, if that is enough."""
    assert trial.log is not None, "what is the planned program has a log"
    whole = changed(trials.config, trial.values)
    tops = [tuple(takewhile(lambda key: isinstance(key, str), path)) for path in trial.values]  # whole lists
    short = changed(trials.given, {top: value_at(whole, top) for top in tops})
    there = trials.built(short, logged=True)
    same = there.log is not None and same_logs(trial.log, there.log) and there.shapes == trial.shapes
    config, log = (short, there.log) if there.log is not None and same else (whole, trial.log)
    return Solved(config, fields_of(trials, trial), log, _unread(trials, trial))


def _unread(trials: Trials, trial: Trial) -> dict[Feature, tuple[Feature, ...]]:
    """For axes that the program does not read and the class changes, those that change with them."""
    before = trials.source.features
    free = {f for f, n in trial.features.items() if f[0] not in trial.read and before.get(f, n) != n}
    return leads_of(trials, trial, free) if free else {}
