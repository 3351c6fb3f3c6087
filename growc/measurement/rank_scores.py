"""The scores by which a recipe ranks units and layers, from measurements and from files.

Needs: a compilation, the last `measure importance` above a statement, its ranking or order. Gives: scores of
the source's units and layers. Layers of the compilation may have moved since.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.diagnostic import GrowError
from growc.passes.ranking.unit_scores import MeasuredScores, counterparts
from growc.recipe.layer_orders import statistic_of
from growc.recipe.ranking_rules import RANKINGS
from growc.recipe.statistics import COSINE, IMPORTANCE, LOSS, REAP, Statistic
from growc.system.ranks import Ranks

if TYPE_CHECKING:
    from growc.errors.source import Span
    from growc.passes.compilation import Analysis, Request
    from growc.passes.ranking.rankings import By
    from growc.plans.scores import Scores
    from growc.recipe.syntax_tree import LayerOrder, Measure


@dataclass(frozen=True)
class Scoring:
    """The scores of models of this machine, measured where a statement asks for them.

    remade: the file that onnxruntime runs for a model on disk. analysed: the analysis of such a model. ranks:
    the processes that share the measuring.
    """

    remade: Callable[[Path], Path]
    analysed: Callable[[Path], Analysis]
    ranks: Ranks

    def units(self, c: Request, statement: Measure | None, by: By | None) -> MeasuredScores | None:
        """Return the scores of units for a statement (None: their importance); None if there are none."""
        moved = any(run.history.moved for run in c.layers.runs)
        source = c.first if moved else c
        known = counterparts(c.axes, source.axes) if moved else None
        if by is not None and by.ranking.file is not None and RANKINGS[by.ranking.name].gradients:
            from growc.measurement.gradients import taylor_tables

            with placed_at(by.ranking.span):
                tables = taylor_tables(
                    source,
                    by.ranking.file.path,
                    keeps=c.keeps,
                    progress=c.progress,
                    ranks=self.ranks,
                    analysed=self.analysed,
                )
            return MeasuredScores(tables, known, "no weight makes or reads them", exactly=True)
        if by is not None and by.ranking.file is not None:
            from growc.measurement.given_scores import few, given_tables

            tables, missing = given_tables(source, by.axis, by.ranking.file)
            return MeasuredScores(tables, known, f"`{by.ranking.file.value}` has no {few(missing)}")
        statistic = IMPORTANCE if by is None else statistic_of(by.ranking) or IMPORTANCE
        if statement is None:
            return None
        from growc.measurement.probes import tables_of

        scores = self.measured(source, c, statement, statistic)
        why = "no tensor shows what they give" if statistic == REAP else "nothing reads them"
        return MeasuredScores(tables_of(source, scores, statistic), known, why)

    def layers(self, c: Request, statement: Measure | None, order: LayerOrder) -> list[list[float | None]]:
        """Return the scores for an order of the layers of each run of the source, which is `c`."""
        if order.file is not None:
            from growc.measurement.given_scores import given_layers

            return given_layers(c, order.file)
        from growc.measurement.importance import calibration
        from growc.measurement.layer_losses import layer_losses
        from growc.measurement.probes import layer_scores, turns

        statistic = statistic_of(order) or IMPORTANCE
        assert statement is not None, "what is measured stands in the recipe"
        if statistic == LOSS:
            with placed_at(order.span):
                return layer_losses(
                    c,
                    *calibration(statement),
                    keeps=c.keeps,
                    progress=c.progress,
                    ranks=self.ranks,
                    remade=self.remade,
                    analysed=self.analysed,
                )
        scores = self.measured(c, c, statement, statistic)
        if statistic == COSINE:
            return turns(c, scores)
        by_run: list[list[float | None]] = [[] for _ in c.layers.runs]
        for score in layer_scores(c, scores):
            by_run[score.run].append(score.ratio)
        return by_run

    def measured(self, source: Analysis, c: Request, statement: Measure, statistic: Statistic) -> Scores:
        """Return the scores of the source for a statement, measured once in a compilation, kept or not."""
        from growc.measurement.importance import calibration, measure

        data, samples = calibration(statement)
        key = data, samples, statistic
        if key not in c.model.scores:
            with placed_at(statement.file.span):
                c.model.scores[key] = measure(
                    source,
                    data,
                    samples,
                    statistic,
                    keeps=c.keeps,
                    progress=c.progress,
                    ranks=self.ranks,
                    remade=self.remade,
                )
        return c.model.scores[key]


@contextmanager
def placed_at(span: Span) -> Iterator[None]:
    """In this context, an error without a place has this one. Raises GrowError, with the same codes."""
    try:
        yield
    except GrowError as error:
        raise GrowError(*(replace(d, span=d.span or span) for d in error.diagnostics)) from error
