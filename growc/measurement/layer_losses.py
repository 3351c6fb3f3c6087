"""The cost of leaving a layer out: how much the loss of next tokens rises without it (`by loss`).

Needs: the analysis of a model, inputs to measure on. Gives: a number for every layer. Each layer is removed
in a separate model, by the surgery that recipes do, and that model is run. Losses are kept as other scores
are, one trial each: an interrupted measurement continues from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.dialects.onnx.emit import emitted
from growc.dialects.onnx.files.save import save
from growc.dialects.onnx.files.signature import read_signature
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress
from growc.measurement.importance import mark
from growc.measurement.prediction import Loss, Prediction, find_prediction
from growc.measurement.shared import Subject
from growc.passes.finish.interface import Ports, logits, ports_of
from growc.passes.layers.layer_runs import DepthChange, Move, RunHistory
from growc.plans.scores import Scores, cache_path, read_scores, write_scores
from growc.recipe.statistics import LOSS
from growc.system.ranks import Ranks
from growc.system.workshop import scratch_folder
from growc.verification.float_copies import runnable
from growc.verification.ort_session import measuring
from growc.verification.verify import grown_feeds

if TYPE_CHECKING:
    from growc.passes.compilation import Analysis, Result

LayersInOrder = tuple[int, tuple[int, ...]]
"""A run of layers, and the layers of it that stand there, in order."""


def layer_losses(
    c: Analysis,
    data: Path,
    samples: int | None,
    *,
    keeps: bool,
    progress: Progress,
    ranks: Ranks,
    remade: Callable[[Path], Path],
    analysed: Callable[[Path], Analysis],
) -> list[list[float | None]]:
    """Return how much the loss rises without each layer of every run; infinite if it cannot be left out.

    Raises GrowError: G313 if no output predicts the next token of an input, G403 if inputs do not fit.
    """
    subject = Subject(c.path, c.model.file(c.path), remade, data, samples, c.model.open_masks)
    counts = [len(run.layers) for run in c.layers.runs]
    whole: list[LayersInOrder] = [(run, tuple(range(count))) for run, count in enumerate(counts)][:1]
    every = [(run, _without(k, count)) for run, count in enumerate(counts) for k in range(count)]
    trials = [*whole, *every]
    scores = Scores(mark(c, data, samples, LOSS), len(trials), sums=[np.zeros(0)], counts=[np.zeros(0)])
    path = cache_path(c.path, LOSS) if c.path.exists() else None
    cached = None if path is None else read_scores(path)
    if cached is not None and cached.fingerprint == scores.fingerprint:
        scores = cached
    prediction = None if scores.done == len(trials) else _prediction(subject, analysed(subject.runs), counts)
    while prediction is not None and scores.done < len(trials):
        progress("leaving out layers", scores.done, len(trials))
        batch = tuple(trials[scores.done : scores.done + ranks.size])
        for loss in ranks.each(LossOf(subject, prediction, batch, analysed))[: len(batch)]:
            total, tokens = (np.inf, 1) if loss is None else (loss.total, loss.tokens)
            scores.sums = [np.append(scores.sums[0], total)]
            scores.counts = [np.append(scores.counts[0], tokens)]
            scores.done += 1
        if path is not None and keeps:
            write_scores(path, scores)
    [means] = scores.values(LOSS)
    rises = iter((means[len(whole) :] - means[0]).tolist() if counts else [])
    return [[next(rises) for _ in range(count)] for count in counts]


def _without(layer: int, count: int) -> tuple[int, ...]:
    return (*range(layer), *range(layer + 1, count))


def _prediction(subject: Subject, c: Analysis, counts: Sequence[int]) -> Prediction:
    """Return which output predicts the next token of which input. Raises GrowError (G313) if none does."""
    assert [len(run.layers) for run in c.layers.runs] == counts, "the file has the layers of the model"
    with runnable(subject.runs) as copy, measuring(copy) as session:
        case = subject.cases()[0]
        prediction = find_prediction(read_signature(subject.runs), session, case, logits(c))
    if prediction is None:
        message = "the loss without a layer is not known: no output predicts the next token of an input"
        raise GrowError(
            Diagnostic("G313", message, help="write another order, `by cosine` or `by importance`")
        )
    return prediction


@dataclass(frozen=True)
class LossOf:
    """The job of each process: the order of layers with its own number.

    The result is None behind the last order, and if the layers cannot stand so.
    """

    subject: Subject
    prediction: Prediction
    orders: tuple[LayersInOrder, ...]
    analysed: Callable[[Path], Analysis]

    def __call__(self, rank: int, size: int) -> Loss | None:
        """Return the loss with the layers in an order."""
        if rank >= len(self.orders):
            return None
        run, order = self.orders[rank]
        if not order:
            return None
        try:
            with made(_once(self.analysed, self.subject.runs), run, order) as (result, ports):
                return self.of(result, ports)
        except GrowError as error:
            if error.diagnostics[0].code == "G403":
                raise
            return None

    def of(self, result: Path, ports: Ports) -> Loss:
        """Return the loss of a result on all cases."""
        signature, total = read_signature(result), Loss()
        with runnable(result) as copy, measuring(copy) as session:
            for case in self.subject.cases():
                feeds = grown_feeds(case, signature, ports.input_maps(), ports.renamed)
                total += self.prediction.loss(feeds, session.run(feeds))
        return total


@lru_cache(maxsize=1)
def _once(analysed: Callable[[Path], Analysis], model: Path) -> Analysis:
    return analysed(model)


@contextmanager
def made(c: Analysis, run: int, order: Sequence[int]) -> Iterator[tuple[Path, Ports]]:
    """Yield a temporary ONNX file with the layers of one run in another order, and the changes of its ports.

    Ports are inputs and outputs. Raises GrowError if the layers cannot stand so.
    """
    changed = ordered(c, run, order)
    with scratch_folder() as folder:
        yield (
            save(emitted(changed), folder, c.path.name, True, lambda name, count: None)[-1],
            ports_of(changed),
        )


def ordered(c: Analysis, run: int, order: Sequence[int]) -> Result:
    """Return a model compiled with the layers of one run in another order."""
    from growc.passes import AFTER_DEPTH
    from growc.passes import run as run_passes
    from growc.passes.compilation import Request
    from growc.passes.lowering.lower_depth import rearranged
    from growc.passes.new_layers.zero_branches import Branches

    pasts = [RunHistory.of(len(r.layers)) for r in c.layers.runs]
    own = tuple((layer,) for layer in order)
    pasts[run] = pasts[run].after(Move(0, tuple(order)), (False,) * len(order), (None,) * len(order), own)
    request = Request(**vars(c), first=c, edited=c)
    return run_passes(AFTER_DEPTH, rearranged(request, DepthChange(tuple(pasts)), Branches(c.axes, c.layers)))
