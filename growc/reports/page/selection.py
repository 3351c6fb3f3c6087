"""How units and layers were chosen: their scores, the cut, and how far layers agree (weight subcloning).

Needs: a finished compilation. Gives: a `Selection` of every `subclone` whose ranking has scores, and the
profile of layers where one was measured before.
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
from growc.measurement.observed import LayerScore, layer_scores
from growc.passes.compilation import Result
from growc.passes.ranking.magnitude import Magnitudes
from growc.passes.ranking.rankings import Rankings
from growc.plans.scores import Scores
from growc.recipe import syntax_tree as ast
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.statistics import IMPORTANCE
from growc.reports.layer_profile import Book, LayerProfile, Profile, changes

POINTS = 128
"""The most scores of one axis that are drawn: of more units every so many-th."""
SHOWN = 12
"""The most axes of one statement that are drawn."""


@dataclass(frozen=True)
class Ranked:
    """One axis. scores: highest first, thinned to POINTS; cut: how many units of `count` stay; share: which
    part of the sum of all scores they have.
    """

    scores: tuple[float, ...]
    count: int
    cut: int
    share: float


@dataclass(frozen=True)
class Selection:
    """One `subclone`. overlap: of each pair of its axes, which part of the kept units they share; `kept` of
    `count` drawn at random would share kept / count. more: axes that are not drawn.
    """

    axis: str
    ranking: str
    ranked: tuple[Ranked, ...]
    overlap: tuple[tuple[float, ...], ...]
    more: int = 0


@dataclass(frozen=True)
class LayerChoice:
    """The layers of one run: what each adds to its stream (None: not measured), and whether it stays."""

    scope: str
    ratios: tuple[float | None, ...]
    kept: tuple[bool, ...]


@dataclass(frozen=True)
class Selections:
    """All of a recipe. profile: what each layer costs, where that was measured."""

    units: tuple[Selection, ...] = ()
    layers: tuple[LayerChoice, ...] = ()
    profile: Profile | None = None


def selections_of(c: Result) -> Selections:
    """Every choice of a finished compilation."""
    statements = [one.statement for one in c.statements]
    asked = [one for one in statements if isinstance(one, ast.Measure)]
    found = c.model.scores.get((*calibration(asked[-1]), IMPORTANCE)) if asked else None
    return Selections(tuple(_units(c)), _layers(c, found), _profile(c, found))


def _units(c: Result) -> Iterator[Selection]:
    scoring = scoring_of()
    rankings = Rankings(Magnitudes(c.axes, c.ties))
    seen: set[Space] = set()
    above: ast.Measure | None = None
    for bound in c.statements:
        statement = bound.statement
        if isinstance(statement, ast.Measure):
            above = statement
        stage = next((s for s in c.lowered.stages if s.number == bound.number), None)
        if stage is None:
            continue
        atoms = [atom for atom in stage.requests if find(atom) not in seen]
        seen.update(map(find, stage.requests))
        if isinstance(statement, ast.Subclone) and RANKINGS[statement.ranking.name].scores is not None:
            kept = [stage.requests[atom].map.index for atom in atoms]
            rankings.found = cache(partial(scoring.units, c, above))
            scored = [_scores(rankings, statement, atom) for atom in atoms]
            pairs = [(s, k) for s, k in zip(scored, kept, strict=True) if s is not None]
            if pairs:
                yield Selection(
                    stage.axis,
                    statement.ranking.name,
                    tuple(_ranked(s, k) for s, k in pairs[:SHOWN]),
                    overlap([k for _, k in pairs[:SHOWN]]),
                    max(0, len(pairs) - SHOWN),
                )


def _scores(rankings: Rankings, by: ast.Subclone, atom: Space) -> Floats | None:
    """The scores of the source's units; None where chance or nothing ranks them."""
    if RANKINGS[by.ranking.name].seeded:
        return None
    try:
        return rankings.scores(by, [atom], Draws.of(), of_source=True)
    except GrowError:
        return None


def _ranked(scores: Floats, kept: Ints) -> Ranked:
    order = np.sort(scores)[::-1]
    shown = order[np.unique(np.linspace(0, len(order) - 1, POINTS).round().astype(np.int64))]
    total = float(scores.sum())
    share = float(scores[np.unique(kept[kept >= 0])].sum() / total) if total else 0.0
    return Ranked(tuple(map(float, shown)), len(scores), len(kept), share)


def overlap(kept: Sequence[Ints]) -> tuple[tuple[float, ...], ...]:
    """Of each pair of sets of units, which part of the smaller one the other has too."""
    return tuple(tuple(len(np.intersect1d(a, b)) / max(1, min(len(a), len(b))) for b in kept) for a in kept)


def _layers(c: Result, found: Scores | None) -> tuple[LayerChoice, ...]:
    """Runs of which layers go."""
    known = _known(c, found)
    choices = []
    for number, past in enumerate(c.depth.runs):
        kept = tuple(k in past.order for k in range(past.count))
        if not all(kept):
            ratios = {s.layer: s.ratio for s in known if s.run == number}
            scope = c.first.layers.runs[number].scope
            choices.append(LayerChoice(scope, tuple(ratios.get(k) for k in range(past.count)), kept))
    return tuple(choices)


def _known(c: Result, found: Scores | None) -> list[LayerScore]:
    return [] if found is None else layer_scores(c.first, found)


def _profile(c: Result, found: Scores | None) -> Profile | None:
    """What `growc measure --layers` kept with the scores; None where a part of it is missing."""
    if found is None or not found.profile:
        return None
    book = Book(None, found)
    rows = []
    for score in _known(c, found):
        run = c.first.layers.runs[score.run]
        trials = [book.trial(score.run, phrase) for phrase in changes(score, len(run.layers))]
        removed, doubled = trials
        if removed is None or doubled is None:
            return None
        rows.append(LayerProfile(run.scope, score, removed, doubled))
    return Profile(found.cases, None, tuple(rows)) if rows else None
