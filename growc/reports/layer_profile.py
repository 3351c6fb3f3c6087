"""The profile of a model's layers: each one's part of the stream, and the cost of removing or doubling it.

The source is figure 2 of weight subcloning. A layer's part is that which it and its branches add to the
stream.

Needs: a model, and inputs to measure on. Gives: a `Profile`. Each layer is removed and doubled in a model of
its own, by the surgery that recipes do. That model is run beside the source. Outcomes are kept with the
scores, so that an interrupted profile continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.diagnostic import GrowError
from growc.errors.display import Shown
from growc.errors.json_data import Json, items, record, whole
from growc.errors.progress import Progress
from growc.errors.short_repr import brief
from growc.measurement.layer_losses import made
from growc.measurement.prediction import Loss
from growc.measurement.shared import Runnable, Subject
from growc.passes.finish.interface import logits
from growc.plans.scores import Scores, read_scores, write_scores
from growc.reports.calibration import CalibratedSource, Outcome, lasting_reference, reference
from growc.system.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from growc.measurement.probes import LayerScore
    from growc.passes.compilation import Analysis


ONLY = "it is the only layer"


@dataclass(frozen=True)
class LayerTrial:
    """The cost of one change, or the reason why it cannot be made."""

    outcome: Outcome | None
    reason: str = ""


@dataclass(frozen=True)
class LayerProfile:
    """One layer: its score, and the cost of removing it and of doubling it in place."""

    __repr__ = brief

    scope: str
    score: LayerScore
    removed: LayerTrial
    doubled: LayerTrial


@dataclass(frozen=True)
class Profile(Shown):
    """All layers, run by run. loss: the source's own, if it predicts tokens."""

    __repr__ = brief

    samples: int
    loss: Loss | None
    layers: tuple[LayerProfile, ...]


def profile(
    c: Analysis,
    subject: Subject,
    scores: Sequence[LayerScore],
    progress: Progress,
    book: TrialCache,
    ranks: Ranks = ALONE,
) -> Profile:
    """Remove and double every layer of an analysed ONNX file.

    scores: those of its layers. subject: the model that was analysed, and the data. book: holds the costs of
    changes that are known, and records new ones. ranks: the processes that try changes; each change is tried
    by one.
    """
    known = logits(c)
    all_changes = [
        (score, phrase, tuple(order))
        for score in scores
        for phrase, order in changes(score, len(c.layers.runs[score.run].layers)).items()
    ]
    new = [change for change in all_changes if book.trial(change[0].run, change[1]) is None]
    with ExitStack() as stack:

        @cache
        def opened() -> CalibratedSource:
            return stack.enter_context(reference(subject, known))

        for at in range(0, len(new), ranks.size):
            batch = new[at : at + ranks.size]
            each, done = sum(opened().rows), len(all_changes) - len(new) + at
            tell = _from(progress, batch[0][1], done * each, len(all_changes) * each)
            tell(0)
            job = TryChange(subject, known, tuple((score.run, order) for score, _, order in batch))
            trials = ranks.each(job, partial(job.own, opened(), tell))
            for (score, phrase, _), trial in zip(batch, trials, strict=False):
                assert trial is not None
                book.keep(score.run, phrase, trial)
        rows = []
        for score in scores:
            count = len(c.layers.runs[score.run].layers)
            removed, doubled = (book.trial(score.run, phrase) for phrase in changes(score, count))
            assert removed is not None
            assert doubled is not None
            rows.append(LayerProfile(c.layers.runs[score.run].scope, score, removed, doubled))
        count, loss = book.source(opened)
        return Profile(count, loss, tuple(rows))


@dataclass(frozen=True)
class TryChange:
    """The job of each process: it tries the change at its rank. None if there is no such change.

    changes: a run of layers and the new order of its layers, for each change.
    """

    subject: Subject
    logits: frozenset[str]
    changes: tuple[tuple[int, tuple[int, ...]], ...]

    def __call__(self, rank: int, size: int) -> LayerTrial | None:
        """The cost of a change."""
        return self.own(lasting_reference(self.subject, self.logits), lambda done: None, rank, size)

    def own(
        self, source: CalibratedSource, tell: Callable[[int], None], rank: int, size: int
    ) -> LayerTrial | None:
        """The cost of a change, with a source that is open."""
        if rank >= len(self.changes):
            return None
        run, order = self.changes[rank]
        return tried(self.subject.runs, run, order, source, tell)


def changes(score: LayerScore, count: int) -> dict[str, list[int]]:
    """The changes of a layer, each in words with the order of layers that results."""
    k = score.layer
    return {
        f"without layer {k}": [*range(k), *range(k + 1, count)],
        f"layer {k} twice": [*range(k + 1), *range(k, count)],
    }


@dataclass
class TrialCache:
    """Trials that are kept with the scores of the same measurement."""

    path: Path | None = None
    scores: Scores | None = None
    tried: dict[str, LayerTrial] = field(default_factory=dict)

    @staticmethod
    def of(path: Path, mark: str) -> TrialCache:
        """The book of the scores in a file; an empty one if they have another fingerprint."""
        scores = read_scores(path)
        return TrialCache(path, scores) if scores is not None and scores.fingerprint == mark else TrialCache()

    @property
    def entries(self) -> dict[str, Json]:
        """The kept entries, as JSON."""
        return {} if self.scores is None else self.scores.profile

    def trial(self, run: int, phrase: str) -> LayerTrial | None:
        """The cost of a change, if known."""
        key = f"{run}: {phrase}"
        entry = self.entries.get(key)
        return self.tried.get(key) if entry is None else record(LayerTrial, entry)

    def keep(self, run: int, phrase: str, trial: LayerTrial) -> None:
        """Keep the cost of a change."""
        self.tried[f"{run}: {phrase}"] = trial
        self.write(f"{run}: {phrase}", asdict(trial))

    def write(self, key: str, entry: Json) -> None:
        """Write one more entry."""
        if self.scores is not None and self.path is not None:
            self.scores.profile[key] = entry
            write_scores(self.path, self.scores)

    def source(self, opened: Callable[[], CalibratedSource]) -> tuple[int, Loss | None]:
        """The number of samples, and the source's own loss."""
        if "source" not in self.entries:
            count, loss = sum(opened().rows), opened().loss
            self.write("source", [count, None if loss is None else asdict(loss)])
            return count, loss
        samples, entry = items(self.entries["source"])
        return whole(samples), None if entry is None else record(Loss, entry)


def tried(
    model: Path, run: int, order: Sequence[int], source: CalibratedSource, tell: Callable[[int], None]
) -> LayerTrial:
    """The cost of another order of the layers of one run."""
    from growc.formats.compiler import analysed

    if not order:
        return LayerTrial(None, ONLY)
    try:
        with made(analysed(model), run, order) as (result, ports):
            return LayerTrial(source.compared(Runnable(result, result, Path), ports, tell))
    except GrowError as error:
        return LayerTrial(None, error.diagnostics[0].message)


def _from(progress: Progress, phrase: str, start: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(phrase, start + done, total)
