"""Measurement of units and layers over calibration inputs, by one of growc.recipe.statistics.

For `importance`, it is the mean of |activation| of every unit, and of ‖f(x)‖/‖x + f(x)‖ of every layer.

Needs: the analysis of a model, and a file of inputs. Gives: `Scores`. onnxruntime runs the model in batches,
and sums are taken inside the graph, so that memory does not grow with the number of samples. Measurements are
kept beside the model under a fingerprint of model, data and number of samples. An interrupted measurement
continues where it stopped, with the same results.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.dialects.onnx.files.probe_model import ProbedTensor, probed
from growc.dialects.onnx.files.signature import read_signature
from growc.errors.progress import Progress
from growc.measurement.probes import probes_of
from growc.measurement.shared import Subject, SumCase, Sums
from growc.plans.scores import Scores, cache_path, fingerprint, read_scores, write_scores
from growc.recipe.expression import evaluate
from growc.recipe.statistics import IMPORTANCE, Statistic
from growc.recipe.syntax_tree import Measure
from growc.system.ranks import ALONE, Ranks
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, measuring

if TYPE_CHECKING:
    from growc.passes.compilation import Analysis

SAVED_EVERY = 10.0
"""Seconds between two saved states from which a measurement can continue."""


def measure(
    c: Analysis,
    data: Path,
    samples: int | None = None,
    statistic: Statistic = IMPORTANCE,
    *,
    kept: Path | None = None,
    keeps: bool = True,
    progress: Progress = lambda phrase, done, total: None,
    ranks: Ranks = ALONE,
    remade: Callable[[Path], Path] = Path,
) -> Scores:
    """Measure all units and layers of a model, or read what was measured before.

    `kept` is the file of the scores; by default it is `NAME.importance.npz` beside the model, and none for a
    module in memory. Scores are read from it, and, if `keeps`, written to it. ranks: the processes that run
    the cases. `remade` makes the file that onnxruntime runs of a model on another machine. Raises GrowError:
    G403 if the inputs do not fit or onnxruntime cannot run the model, G309 if a value to be measured is
    inside an operator.
    """
    file = c.model.file(c.path)
    cases = cases_in(data, read_signature(file), samples, open_masks=c.model.open_masks)
    scores = Scores(mark(c, data, samples, statistic), len(cases))
    path = kept or (cache_path(c.path, statistic) if c.path.exists() else None)
    cached = None if path is None else read_scores(path)
    if cached is not None and cached.fingerprint == scores.fingerprint:
        scores = cached
    if scores.done < len(cases):
        subject = Subject(c.path, file, remade, data, samples, c.model.open_masks)
        probes, place = tuple(probes_of(c, statistic)), path if keeps else None
        _run(subject, probes, cases, scores, statistic, place, progress, ranks)
    return scores


def mark(c: Analysis, data: Path, samples: int | None, statistic: Statistic = IMPORTANCE) -> str:
    """Return the fingerprint of a measurement."""
    return fingerprint(c.model.files(c.path), data, samples, statistic)


def calibration(statement: Measure) -> tuple[Path, int | None]:
    """Return the file of a `measure importance`, and how many of its samples it takes."""
    samples = statement.samples
    return statement.file.path, None if samples is None else evaluate(samples, lambda axis: 0)


def _run(
    subject: Subject,
    probes: tuple[ProbedTensor, ...],
    cases: list[Feeds],
    scores: Scores,
    statistic: Statistic,
    path: Path | None,
    progress: Progress,
    ranks: Ranks,
) -> None:
    """Run all batches that are not done yet, one in each process at a time, and save the sums in `path`.

    Sums are added up in the order of the batches, whichever process has run them.
    """
    rows = [rows_of(case) for case in cases]
    with runnable(subject.file) as copy, measuring(copy, probed(copy, probes)) as session:
        start = last = time.monotonic()
        try:
            while scores.done < len(cases):
                progress("measuring samples", sum(rows[: scores.done]), sum(rows))
                job = SumCase(subject, probes, scores.done)
                for sums in filter(None, ranks.each(job, partial(job.own, session, cases))):
                    _add(scores, sums, statistic)
                    scores.samples += rows[scores.done]
                    scores.done += 1
                if path is not None and time.monotonic() - last > SAVED_EVERY:
                    write_scores(path, scores)
                    last = time.monotonic()
        finally:
            scores.seconds = time.monotonic() - start
            if path is not None:
                write_scores(path, scores)


def _add(scores: Scores, sums: Sums, statistic: Statistic) -> None:
    """Add the sums of one batch."""
    joined = np.maximum if statistic.largest else np.add
    for totals, new, with_ in zip((scores.sums, scores.counts), sums, (joined, np.add), strict=True):
        totals[:] = [with_(a, b) for a, b in zip(totals, new, strict=True)] if totals else new
