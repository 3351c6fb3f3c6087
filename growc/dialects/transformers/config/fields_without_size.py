"""Values of a config that no size shows, such as the number of heads: found by the operator log.

Needs: `Trials`, and a trial whose sizes are right. Gives: the trial that comes closest with other values.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations
from typing import Any

from growc.dialects.transformers.config.fields import Path, scaled
from growc.dialects.transformers.config.trials import Trial, Trials
from growc.dialects.transformers.log.entry import rounded, same_logs
from growc.resolve.config_fields import FIELDS, SCOPED

PAIRS, LIMIT = 200, 160
"""So many pairs of values are tried at once, and so many values and pairs in all by their logs."""
USUAL = frozenset(n for table in (FIELDS, *SCOPED.values()) for names in table.values() for n in names)
"""Fields that mostly bear sizes: tried before others. They decide nothing."""
Suggestion = tuple[Path, Any, float]
"""A value to try, and its ratio to the value before, which is that of some size; 0 where it is another."""


class Unseen:
    """Tries values in the ratios that wanted sizes have to the source's."""

    def __init__(self, trials: Trials) -> None:
        self.trials, self.left = trials, LIMIT
        before = trials.source.features
        pairs = ((trials.wanted[f], n) for f, n in before.items() if f in trials.wanted)
        self.ratios = sorted({new / old for new, old in pairs if new != old and old})

    def improved(self, best: Trial) -> Trial:
        """The best trial with other values: one by one, then in pairs; of usual fields, then of all."""
        for usual in (True, False):
            better = self.turned(best, usual)
            while better is not best and not self.trials.solves(best):
                best, better = better, self.turned(better, usual)
            if self.trials.solves(best):
                break
        return best

    def turned(self, best: Trial, usual: bool) -> Trial:
        """A better trial than the best, or the best."""
        telling: list[Suggestion] = []
        better = best
        for suggestion in self.suggestions(best):
            if usual and suggestion[0][-1] not in USUAL:
                continue
            made = self.varied(better, suggestion)
            if made.shapes != better.shapes or made.log != better.log:
                telling.append(suggestion)
            better = max(better, made, key=self.trials.score)
            if self.trials.solves(better):
                return better
        return self.paired(best, telling) if better is best else better

    def varied(self, best: Trial, *suggestions: Suggestion) -> Trial:
        """The trial with other values, with its log if its shapes stay."""
        values = {**best.values, **{path: value for path, value, _ in suggestions}}
        made = self.trials.of(values, logged=False)
        if made.shapes != best.shapes or not self.left:
            return made
        self.left -= 1
        return self.trials.of(values)

    def suggestions(self, best: Trial) -> Iterator[Suggestion]:
        """What sizes and literals suggest for each number; truth values are turned."""
        literals = self.literals(best)
        for path, before in self.trials.leaves.items():
            value = best.values.get(path, before)
            if isinstance(value, bool):
                yield path, not value, 0.0
                continue
            made = ((scaled(value, ratio), ratio) for ratio in self.ratios)
            yield from ((path, new, ratio) for new, ratio in made if new is not None)
            if isinstance(value, float):
                yield from ((path, new, 0.0) for new in literals.get(rounded(value), ()))

    def literals(self, best: Trial) -> dict[float, tuple[float, ...]]:
        """For each real literal of the log that the target has not: those that stand there instead."""
        found: dict[float, dict[float, None]] = {}
        mine = best.log.entries if best.log else ()
        for entry, wanted in zip(mine, self.trials.target.log.entries, strict=False):
            if entry.structure == wanted.structure:
                for a, b in zip(entry.real, wanted.real, strict=False):
                    if a != b:
                        found.setdefault(a, {})[b] = None
        return {a: tuple(b) for a, b in found.items()}

    def paired(self, best: Trial, telling: list[Suggestion]) -> Trial:
        """The best of two values changed at once, among those that do something alone; alike ones first."""
        pairs = [(a, b) for a, b in combinations(telling, 2) if a[0] != b[0]]
        pairs.sort(key=lambda pair: pair[0][2] != pair[1][2])
        for a, b in pairs[:PAIRS]:
            best = max(best, self.varied(best, a, b), key=self.trials.score)
            if self.trials.solves(best):
                break
        return best

    def exact(self, best: Trial) -> Trial:
        """The same with the real literals of the target, as far as fields hold them."""
        while best.log is None or not same_logs(self.trials.target.log, best.log):
            tried = [self.varied(best, s) for s in self.suggestions(best)]
            better = max([best, *tried], key=self.trials.score)
            if better is best:
                return best
            best = better
        return best
