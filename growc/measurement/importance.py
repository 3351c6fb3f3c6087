"""Measuring importance: the mean of |activation| of every unit, and of ‖f(x)‖/‖x + f(x)‖ of every layer, over
calibration inputs (weight subcloning).

Needs: the analysis of a model, and a file of inputs. Gives: `Scores`. onnxruntime runs the model in batches,
and sums are taken inside the graph, so that memory does not grow with the number of samples. What has been
measured is kept beside the model under a fingerprint of model, data and number of samples: a measurement that
was interrupted goes on where it stopped, and comes to the same numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Floats
from growc.algebra.space import Space, factors, find
from growc.dialects.onnx.files.probes import Mask, Probe, probed, shown
from growc.dialects.onnx.files.signature import Role, read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress
from growc.measurement.shared import Subject, SumCase, Sums
from growc.passes.ranking.activation_sites import Activations, Measured, Reading, counterparts
from growc.passes.ranking.layer_ratios import Ratio, find_blocks
from growc.plans.scores import Scores, cache_path, fingerprint, read_scores, write_scores
from growc.recipe.expression import evaluate
from growc.recipe.syntax_tree import Measure
from growc.system.ranks import ALONE, Ranks
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session

if TYPE_CHECKING:
    from growc.ir.graph import Value
    from growc.passes.axes.infer import Axes
    from growc.passes.compilation import Analysis, Request

Measuring = Callable[..., "Scores"]
"""`measure`, with the processes that share it."""

SAVED_EVERY = 10.0
"""Seconds between two states that a measurement can go on from."""


def measure(
    c: Analysis,
    data: Path,
    samples: int | None = None,
    *,
    kept: Path | None = None,
    keeps: bool = True,
    progress: Progress = lambda phrase, done, total: None,
    ranks: Ranks = ALONE,
    remade: Callable[[Path], Path] = Path,
) -> Scores:
    """Measure all units and layers of a model, or read what was measured before.

    `kept` is where the scores are kept: `NAME.importance.npz` beside the model unless it says so, nowhere of
    a module in memory. They are read from there, and, if `keeps`, written there. ranks: who runs the cases;
    `remade` makes the file that onnxruntime runs of a model, on another machine. Raises GrowError: G403 where
    the inputs do not fit or onnxruntime cannot run the model, G309 where what is to be measured stands inside
    of an operator.
    """
    file = c.model.file(c.path)
    cases = cases_in(data, read_signature(file), samples, lenient=c.model.lenient)
    scores = Scores(mark(c, data, samples), len(cases))
    path = kept or (cache_path(c.path) if c.path.exists() else None)
    found = None if path is None else read_scores(path)
    if found is not None and found.fingerprint == scores.fingerprint:
        scores = found
    if scores.done < len(cases):
        subject = Subject(c.path, file, remade, data, samples, c.model.lenient)
        _run(subject, tuple(_probes(c)), cases, scores, path if keeps else None, progress, ranks)
    return scores


def mark(c: Analysis, data: Path, samples: int | None) -> str:
    """The fingerprint of a measurement."""
    return fingerprint(c.model.files(c.path), data, samples)


@dataclass(frozen=True)
class LayerScore:
    """‖f(x)‖/‖x + f(x)‖ of a layer, and of its branches, each with its kind; None where nothing shows it."""

    run: int
    layer: int
    ratio: float | None
    branches: tuple[tuple[str, float | None], ...]


def layer_scores(c: Analysis, scores: Scores) -> list[LayerScore]:
    """What was measured of the layers of the source, run by run."""
    blocks = find_blocks(c.axes, c.layers, c.roles)
    first, visible = len(Activations(c.axes).readings), shown(c.model.file(c.path))
    means = iter(scores.means[first:])

    def of(ratio: Ratio | None) -> float | None:
        return None if ratio is None or not _is_shown(ratio, visible) else float(next(means))

    return [LayerScore(b.run, b.layer, of(b.ratio), tuple((k, of(r)) for k, r in b.branches)) for b in blocks]


def measured(c: Request, statement: Measure, *, measure: Measuring) -> Measured:
    """What a `measure importance` finds, for a compilation whose layers may have moved."""
    moved = any(run.history.moved for run in c.layers.runs)
    source = c.first if moved else c
    known = counterparts(c.axes, source.axes) if moved else None
    return Measured(Activations(source.axes), _scores(source, c, statement, measure).means, known)


def measured_layers(c: Request, statement: Measure, *, measure: Measuring) -> list[list[float | None]]:
    """What a `measure importance` finds of the layers of each run of the source, which `c` is."""
    found: list[list[float | None]] = [[] for _ in c.layers.runs]
    for score in layer_scores(c, _scores(c, c, statement, measure)):
        found[score.run].append(score.ratio)
    return found


def _scores(source: Analysis, c: Request, statement: Measure, measure: Measuring) -> Scores:
    """What a statement measures of the source: once in a compilation, whatever can be kept."""
    key = calibration(statement)
    if key not in c.model.scores:
        try:
            c.model.scores[key] = measure(source, *key, keeps=c.keeps, progress=c.progress)
        except GrowError as error:
            here = statement.file.span
            raise GrowError(*(replace(d, span=d.span or here) for d in error.diagnostics)) from error
    return c.model.scores[key]


def calibration(statement: Measure) -> tuple[Path, int | None]:
    """The file of a `measure importance`, and how many of its samples it takes."""
    samples = statement.samples
    return statement.file.path, None if samples is None else evaluate(samples, lambda axis: 0)


def _run(
    subject: Subject,
    probes: tuple[Probe, ...],
    cases: list[Feeds],
    scores: Scores,
    path: Path | None,
    progress: Progress,
    ranks: Ranks,
) -> None:
    """All batches that are not done yet, one in each process at a time; what is measured is kept where `path`
    says. Sums are added up in the order of the batches, whoever has run them.
    """
    rows = [rows_of(case) for case in cases]
    with runnable(subject.file) as copy, Session(copy, graph=probed(copy, probes)) as session:
        start = last = time.monotonic()
        try:
            while scores.done < len(cases):
                progress("measuring samples", sum(rows[: scores.done]), sum(rows))
                job = SumCase(subject, probes, scores.done)
                for found in filter(None, ranks.each(job, partial(job.own, session, cases))):
                    _add(scores, found)
                    scores.samples += rows[scores.done]
                    scores.done += 1
                if path is not None and time.monotonic() - last > SAVED_EVERY:
                    write_scores(path, scores)
                    last = time.monotonic()
        finally:
            scores.seconds = time.monotonic() - start
            if path is not None:
                write_scores(path, scores)


def _add(scores: Scores, sums: Sums) -> None:
    """One batch more."""
    for totals, found in zip((scores.sums, scores.counts), sums, strict=True):
        totals[:] = [np.add(a, b) for a, b in zip(totals, found, strict=True)] if totals else found


def named_scores(c: Analysis, scores: Scores) -> Iterator[tuple[str, Floats]]:
    """(`ffn.0`, one number for each unit) of every axis that has a name and is measured, and for `layers` one
    for each layer.
    """
    activations, means = Activations(c.axes), scores.means
    for name, found in c.roles.axes.items():
        for k, axis in enumerate(found):
            atoms = [find(s) for s in axis.spaces]  # none of the one head that all share
            if atoms and all(s.kind == "atom" and s in activations.of_atom for s in atoms):
                yield f"{name}.{k}", activations.scores(means, axis.spaces)
    layers = layer_scores(c, scores)
    for k in range(len(c.layers.runs)):
        ratios = [score.ratio for score in layers if score.run == k]
        if None not in ratios:
            yield f"layers.{k}", np.array(ratios, dtype=np.float64)


# Where activations are


def masks_of(c: Analysis) -> list[Value]:
    """The model's inputs that say which places count."""
    ports = read_signature(c.model.file(c.path))
    names = {port.name for port in ports if port.role is Role.MASK and len(port.dims) > 1}
    return [value for value in c.graph.inputs if value.name in names]


def _probes(c: Analysis) -> list[Probe]:
    """For every reading and then for every ratio that the file shows."""
    masks, visible = masks_of(c), shown(c.model.file(c.path))
    blocks = find_blocks(c.axes, c.layers, c.roles)
    ratios = [r for b in blocks for r in b.ratios if _is_shown(r, visible)]
    readings = Activations(c.axes).readings
    found = [_probe(r, c.axes, masks, visible) for r in readings]
    return [*found, *(_quotient(r, c.axes, masks) for r in ratios)]


def _is_shown(ratio: Ratio, visible: Collection[str]) -> bool:
    return {ratio.whole.name, ratio.part.name} <= set(visible)


def _quotient(ratio: Ratio, axes: Axes, masks: Sequence[Value]) -> Probe:
    value = ratio.whole
    found = _weights(value, axes, masks)
    return Probe(value.name, value.rank, ratio.units, found, ratio.part.name, ratio.taken)


def _probe(reading: Reading, axes: Axes, masks: Sequence[Value], visible: Collection[str]) -> Probe:
    value = reading.value
    if value.producer is not None and value.name not in visible:
        message = f"an activation inside of `{value.producer.name or value.producer.kind}` cannot be measured"
        raise GrowError(Diagnostic("G309", message, help="measure a model without fused operators"))
    less = "" if reading.less is None else reading.less.name
    units = 0 if reading.numbered is None else reading.numbered.size[0]
    rank = value.rank + (units > 0)
    return Probe(value.name, rank, reading.kept, _weights(value, axes, masks), units=units, less=less)


def _weights(value: Value, axes: Axes, masks: Sequence[Value]) -> tuple[Mask, ...]:
    """The masks that say which places of a tensor count."""
    found = (_aligned(mask, value, axes) for mask in masks)
    return tuple(m for m in found if m is not None)


def _aligned(mask: Value, value: Value, axes: Axes) -> Mask | None:
    """Where the axes of a mask stand in a tensor; None where not all of them do, or it cannot be told."""
    wanted = [find(s) for s in axes.of(mask)]
    spaces = [find(s) for s in axes.of(value)]
    for place, space in enumerate(spaces):
        parts = factors(space)
        if len(parts) == len(wanted) > 1 and all(map(_same, parts, wanted)):
            return Mask(mask.name, (place,), merged=True)
    places = [[i for i, s in enumerate(spaces) if _same(s, w)] for w in wanted]
    if any(len(found) != 1 for found in places):
        return None
    return Mask(mask.name, tuple(found[0] for found in places))


def _same(a: Space, b: Space) -> bool:
    """Whether two axes go over the same: one space, or the same symbol (equal sizes at all sample points)."""
    return a is b or (not a.static and a.size == b.size)
