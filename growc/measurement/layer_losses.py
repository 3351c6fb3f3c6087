"""What it costs to leave a layer out: the loss of next tokens without it, more than with it (`by loss`).

Needs: the analysis of a model, inputs to measure on. Gives: a number for every layer. Each layer is removed
in a model of its own, by the surgery that recipes do, and that model is run. Losses are kept as other scores
are, one trial each: what was interrupted goes on from there.
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
from growc.passes.layers.layer_runs import Depth, Move, Past
from growc.plans.scores import Scores, cache_path, read_scores, write_scores
from growc.recipe.statistics import LOSS
from growc.system.ranks import Ranks
from growc.system.workshop import scratch_folder
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Session
from growc.verification.verify import grown_feeds

if TYPE_CHECKING:
    from growc.passes.compilation import Analysis, Result

Order = tuple[int, tuple[int, ...]]
"""A run of layers, and those of its layers that stand there, in order."""


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
    """How much the loss rises without each layer of every run; infinite where it cannot be left out.

    Raises GrowError: G313 where no output predicts the next token of an input, G403 where inputs do not fit.
    """
    subject = Subject(c.path, c.model.file(c.path), remade, data, samples, c.model.lenient)
    counts = [len(run.layers) for run in c.layers.runs]
    whole: list[Order] = [(run, tuple(range(count))) for run, count in enumerate(counts)][:1]
    every = [(run, _without(k, count)) for run, count in enumerate(counts) for k in range(count)]
    trials = [*whole, *every]
    scores = Scores(mark(c, data, samples, LOSS), len(trials), sums=[np.zeros(0)], counts=[np.zeros(0)])
    path = cache_path(c.path, LOSS) if c.path.exists() else None
    found = None if path is None else read_scores(path)
    if found is not None and found.fingerprint == scores.fingerprint:
        scores = found
    prediction = None if scores.done == len(trials) else _prediction(subject, analysed(subject.runs), counts)
    while prediction is not None and scores.done < len(trials):
        progress("leaving out layers", scores.done, len(trials))
        some = tuple(trials[scores.done : scores.done + ranks.size])
        for loss in ranks.each(LossOf(subject, prediction, some, analysed))[: len(some)]:
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
    """Which output predicts the next token of which input. Raises GrowError (G313) where none does."""
    assert [len(run.layers) for run in c.layers.runs] == counts, "the file has the layers of the model"
    with runnable(subject.runs) as copy, Session(copy) as session:
        case = subject.cases()[0]
        found = find_prediction(read_signature(subject.runs), session, case, logits(c))
    if found is None:
        message = "the loss without a layer is not known: no output predicts the next token of an input"
        raise GrowError(
            Diagnostic("G313", message, help="write another order, `by cosine` or `by importance`")
        )
    return found


@dataclass(frozen=True)
class LossOf:
    """The job of each process: one of some orders of layers, by its own number; None behind the last, and
    where the layers cannot stand so.
    """

    subject: Subject
    prediction: Prediction
    orders: tuple[Order, ...]
    analysed: Callable[[Path], Analysis]

    def __call__(self, rank: int, size: int) -> Loss | None:
        """The loss with the layers in an order."""
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
        """The loss of a result on all cases."""
        signature, total = read_signature(result), Loss()
        with runnable(result) as copy, Session(copy) as session:
            for case in self.subject.cases():
                feeds = grown_feeds(case, signature, ports.input_maps(), ports.renamed)
                total += self.prediction.loss(feeds, session.run(feeds))
        return total


@lru_cache(maxsize=1)
def _once(analysed: Callable[[Path], Analysis], model: Path) -> Analysis:
    return analysed(model)


@contextmanager
def made(c: Analysis, run: int, order: Sequence[int]) -> Iterator[tuple[Path, Ports]]:
    """An ONNX file with the layers of one run in another order, for a while, and what became of its inputs
    and outputs. Raises GrowError where they cannot stand so.
    """
    changed = ordered(c, run, order)
    with scratch_folder() as folder:
        yield (
            save(emitted(changed), folder, c.path.name, True, lambda name, count: None)[-1],
            ports_of(changed),
        )


def ordered(c: Analysis, run: int, order: Sequence[int]) -> Result:
    """A model compiled with the layers of one run in another order."""
    from growc.passes import AFTER_DEPTH
    from growc.passes import run as run_passes
    from growc.passes.compilation import Request
    from growc.passes.lowering.lower_depth import rearranged
    from growc.passes.new_layers.zero_branches import Branches

    pasts = [Past.of(len(r.layers)) for r in c.layers.runs]
    own = tuple((layer,) for layer in order)
    pasts[run] = pasts[run].after(Move(0, tuple(order)), (False,) * len(order), (None,) * len(order), own)
    request = Request(**vars(c), first=c, edited=c)
    return run_passes(AFTER_DEPTH, rearranged(request, Depth(tuple(pasts)), Branches(c.axes, c.layers)))
