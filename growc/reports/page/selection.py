"""The choice of units and layers: their scores, the cut, and the agreement of layers (weight subcloning).

Needs: a finished compilation. Gives: a `Selection` for every `subclone` whose ranking has scores, and the
profile of layers if one was measured before.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial

import numpy as np

from growc.algebra.draws import Draws
from growc.algebra.indexmap import Floats, Ints
from growc.algebra.space import Space, find
from growc.errors.diagnostic import GrowError
from growc.formats.compiler import scoring_of
from growc.measurement.importance import calibration
from growc.measurement.probes import LayerScore, layer_scores
from growc.passes.compilation import Result
from growc.passes.ranking.magnitude import Magnitudes
from growc.passes.ranking.rankings import Rankings
from growc.plans.scores import Scores
from growc.recipe import syntax_tree as ast
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.statistics import IMPORTANCE
from growc.reports.layer_profile import LayerProfile, Profile, TrialCache, changes

POINTS = 128
"""The most scores drawn of one axis; of more, evenly spaced ones are drawn."""
SHOWN = 12
"""The most axes drawn of one statement."""


@dataclass(frozen=True)
class Ranked:
    """The scores of one axis.

    scores: highest first, thinned to POINTS. cut: the number of units, of `count`, that stay. share: their
    part of the sum of all scores.
    """

    scores: tuple[float, ...]
    count: int
    cut: int
    share: float


@dataclass(frozen=True)
class Selection:
    """One `subclone`.

    overlap: for each pair of its axes, the part of the kept units that they share. Of units drawn at random,
    they would share the part kept / count. more: the number of axes that are not drawn.
    """

    axis: str
    ranking: str
    ranked: tuple[Ranked, ...]
    overlap: tuple[tuple[float, ...], ...]
    more: int = 0


@dataclass(frozen=True)
class LayerChoice:
    """The layers of one run: the ratio that each adds to its stream (None: not measured), and whether it
    stays.
    """

    scope: str
    ratios: tuple[float | None, ...]
    kept: tuple[bool, ...]


@dataclass(frozen=True)
class Selections:
    """All selections of a recipe. profile: the cost of each layer, if it was measured."""

    units: tuple[Selection, ...] = ()
    layers: tuple[LayerChoice, ...] = ()
    profile: Profile | None = None


def selections_of(c: Result) -> Selections:
    """The selections of a finished compilation."""
    statements = [one.statement for one in c.statements]
    measures = [one for one in statements if isinstance(one, ast.Measure)]
    measured_scores = c.model.scores.get((*calibration(measures[-1]), IMPORTANCE)) if measures else None
    return Selections(tuple(_units(c)), _layers(c, measured_scores), _profile(c, measured_scores))


def _units(c: Result) -> Iterator[Selection]:
    scoring = scoring_of()
    rankings = Rankings(Magnitudes(c.axes, c.ties))
    seen: set[Space] = set()
    measure: ast.Measure | None = None
    for bound in c.statements:
        statement = bound.statement
        if isinstance(statement, ast.Measure):
            measure = statement
        stage = next((s for s in c.lowered.stages if s.number == bound.number), None)
        if stage is None:
            continue
        atoms = [atom for atom in stage.requests if find(atom) not in seen]
        seen.update(map(find, stage.requests))
        if isinstance(statement, ast.Subclone) and RANKINGS[statement.ranking.name].scores is not None:
            kept_units = [stage.requests[atom].map.index for atom in atoms]
            rankings.scores_for = cache(partial(scoring.units, c, measure))
            scored = [_scores(rankings, statement, atom) for atom in atoms]
            pairs = [(s, k) for s, k in zip(scored, kept_units, strict=True) if s is not None]
            if pairs:
                yield Selection(
                    stage.axis,
                    statement.ranking.name,
                    tuple(_ranked(s, k) for s, k in pairs[:SHOWN]),
                    overlap([k for _, k in pairs[:SHOWN]]),
                    max(0, len(pairs) - SHOWN),
                )


def _scores(rankings: Rankings, by: ast.Subclone, atom: Space) -> Floats | None:
    """The scores of the source's units; None if chance or nothing ranks them."""
    if RANKINGS[by.ranking.name].seeded:
        return None
    try:
        return rankings.scores(by, [atom], Draws.of(), of_source=True)
    except GrowError:
        return None


def _ranked(scores: Floats, kept: Ints) -> Ranked:
    order = np.sort(scores)[::-1]
    thinned = order[np.unique(np.linspace(0, len(order) - 1, POINTS).round().astype(np.int64))]
    total = float(scores.sum())
    share = float(scores[np.unique(kept[kept >= 0])].sum() / total) if total else 0.0
    return Ranked(tuple(map(float, thinned)), len(scores), len(kept), share)


def overlap(kept: Sequence[Ints]) -> tuple[tuple[float, ...], ...]:
    """For each pair of sets of units, the part of the smaller set that the other one has, too."""
    return tuple(tuple(len(np.intersect1d(a, b)) / max(1, min(len(a), len(b))) for b in kept) for a in kept)


def _layers(c: Result, measured_scores: Scores | None) -> tuple[LayerChoice, ...]:
    """The choices in runs that lose layers."""
    layer_scores = _known(c, measured_scores)
    choices = []
    for number, run in enumerate(c.depth.runs):
        kept = tuple(k in run.order for k in range(run.count))
        if not all(kept):
            ratios = {s.layer: s.ratio for s in layer_scores if s.run == number}
            scope = c.first.layers.runs[number].scope
            choices.append(LayerChoice(scope, tuple(ratios.get(k) for k in range(run.count)), kept))
    return tuple(choices)


def _known(c: Result, measured_scores: Scores | None) -> list[LayerScore]:
    return [] if measured_scores is None else layer_scores(c.first, measured_scores)


def _profile(c: Result, measured_scores: Scores | None) -> Profile | None:
    """The profile that `growc measure --layers` kept with the scores; None if a part of it is missing."""
    if measured_scores is None or not measured_scores.profile:
        return None
    book = TrialCache(None, measured_scores)
    rows = []
    for score in _known(c, measured_scores):
        run = c.first.layers.runs[score.run]
        trials = [book.trial(score.run, phrase) for phrase in changes(score, len(run.layers))]
        removed, doubled = trials
        if removed is None or doubled is None:
            return None
        rows.append(LayerProfile(run.scope, score, removed, doubled))
    return Profile(measured_scores.cases, None, tuple(rows)) if rows else None
