"""The profile of a model's layers: how much each of them and of its branches adds to the stream, and what it
costs to remove or to double it (weight subcloning, figure 2).

Needs: a model, inputs to measure on. Gives: a `Profile`. Each layer is removed and doubled in a model of its
own, by the surgery that recipes do, and that model is run beside the source. What was found is kept with the
scores: what was interrupted goes on from there.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from growc.errors.brief import brief
from growc.errors.diagnostic import GrowError
from growc.errors.json_data import Json, items, record, whole
from growc.errors.progress import Progress
from growc.measurement.prediction import Loss
from growc.passes.finish.interface import logits, ports_of
from growc.passes.layers.layer_runs import Depth, Move, Past
from growc.plans.scores import Scores, read_scores, write_scores
from growc.reports.calibration import Outcome, Reference, reference
from growc.system.workshop import scratch_folder

if TYPE_CHECKING:
    from growc.measurement.importance import LayerScore
    from growc.passes.compilation import Analysis, Result


ONLY = "it is the only layer"


@dataclass(frozen=True)
class Trial:
    """What one change costs, or why it cannot be made."""

    outcome: Outcome | None
    reason: str = ""


@dataclass(frozen=True)
class LayerProfile:
    """One layer: what it adds, and what it costs when it is removed, and when it stands twice in a row."""

    __repr__ = brief

    scope: str
    score: LayerScore
    removed: Trial
    doubled: Trial


@dataclass(frozen=True)
class Profile:
    """All layers, run by run; `loss`: the source's own, where it predicts tokens."""

    __repr__ = brief

    samples: int
    loss: Loss | None
    layers: tuple[LayerProfile, ...]


def profile(
    c: Analysis,
    data: Path,
    samples: int | None,
    scores: Sequence[LayerScore],
    progress: Progress,
    book: Book,
    lenient: bool = False,
) -> Profile:
    """Remove and double every layer of an analysed ONNX file, whose layers' scores are these.

    `book`: what every change costs is read from there, and written. `lenient`: masks that are not among the
    inputs are open.
    """
    rows = []
    with ExitStack() as stack:
        total, done = 2 * len(scores), 0
        known = logits(c)

        @cache
        def opened() -> Reference:
            return stack.enter_context(reference(c.path, data, samples, known, lenient))

        for score in scores:
            trials = []
            for phrase, order in changes(score, len(c.layers.runs[score.run].layers)).items():
                found = book.trial(score.run, phrase)
                if found is None:
                    each = sum(opened().rows)
                    tell = _from(progress, phrase, done * each, total * each)
                    tell(0)
                    found = tried(c.path, score.run, order, opened(), tell)
                    book.keep(score.run, phrase, found)
                trials.append(found)
                done += 1
            rows.append(LayerProfile(c.layers.runs[score.run].scope, score, trials[0], trials[1]))
        count, loss = book.source(opened)
        return Profile(count, loss, tuple(rows))


def changes(score: LayerScore, count: int) -> dict[str, list[int]]:
    """What is done to a layer, in words, and the order of layers that makes."""
    k = score.layer
    return {
        f"without layer {k}": [*range(k), *range(k + 1, count)],
        f"layer {k} twice": [*range(k + 1), *range(k, count)],
    }


@dataclass
class Book:
    """Trials that were kept with the scores of the same measurement."""

    path: Path | None = None
    scores: Scores | None = None

    @staticmethod
    def of(path: Path, mark: str) -> Book:
        """That of the scores in a file; an empty one where they have another fingerprint."""
        scores = read_scores(path)
        return Book(path, scores) if scores is not None and scores.fingerprint == mark else Book()

    @property
    def entries(self) -> dict[str, Json]:
        """What is kept, as JSON."""
        return {} if self.scores is None else self.scores.profile

    def trial(self, run: int, phrase: str) -> Trial | None:
        """What a change costs, if that is known."""
        found = self.entries.get(f"{run}: {phrase}")
        return None if found is None else record(Trial, found)

    def keep(self, run: int, phrase: str, trial: Trial) -> None:
        """What a change costs is known from now on."""
        self.write(f"{run}: {phrase}", asdict(trial))

    def write(self, key: str, entry: Json) -> None:
        """One entry more."""
        if self.scores is not None and self.path is not None:
            self.scores.profile[key] = entry
            write_scores(self.path, self.scores)

    def source(self, opened: Callable[[], Reference]) -> tuple[int, Loss | None]:
        """How many samples there are, and the source's own loss."""
        if "source" not in self.entries:
            count, loss = sum(opened().rows), opened().loss
            self.write("source", [count, None if loss is None else asdict(loss)])
            return count, loss
        known, entry = items(self.entries["source"])
        return whole(known), None if entry is None else record(Loss, entry)


def tried(
    model: Path, run: int, order: Sequence[int], source: Reference, tell: Callable[[int], None]
) -> Trial:
    """The model with the layers of one run in another order, beside the source."""
    from growc.formats.onnx_file import OnnxFile

    if not order:
        return Trial(None, ONLY)
    try:
        changed = ordered(model, run, order)
        with scratch_folder() as folder:
            target = folder / model.name
            [*_, result] = OnnxFile().write(changed, folder, target, lambda *_: None)
            return Trial(source.compared(result, ports_of(changed), tell))
    except GrowError as error:
        return Trial(None, error.diagnostics[0].message)


def ordered(model: Path, run: int, order: Sequence[int]) -> Result:
    """A model compiled with the layers of one run in another order."""
    from growc.formats.compiler import analysed
    from growc.passes import AFTER_DEPTH
    from growc.passes import run as run_passes
    from growc.passes.compilation import Request
    from growc.passes.lowering.lower_depth import rearranged
    from growc.passes.new_layers.zero_branches import Branches

    c = analysed(model)
    pasts = [Past.of(len(r.layers)) for r in c.layers.runs]
    pasts[run] = pasts[run].after(Move(0, tuple(order)), (False,) * len(order), (None,) * len(order))
    request = Request(**vars(c), first=c, edited=c)
    return run_passes(AFTER_DEPTH, rearranged(request, Depth(tuple(pasts)), Branches(c.axes, c.layers)))


def _from(progress: Progress, phrase: str, start: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(phrase, start + done, total)
