"""The profile of a model's layers: how much each of them and of its branches adds to the stream, and what it
costs to remove or to double it (weight subcloning, figure 2).

Needs: a model, inputs to measure on. Gives: a `Profile`. Each layer is removed and doubled in a model of its
own, by the surgery that recipes do, and that model is run beside the source.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from growc.calibration import Outcome, Reference
from growc.depth import Depth, Move, Past
from growc.diagnostic import GrowError
from growc.ports import logits, ports_of
from growc.prediction import Loss

if TYPE_CHECKING:
    from growc.compilation import Compilation
    from growc.importance import LayerScore

Progress = Callable[[str, int, int], None]

ONLY = "it is the only layer"


@dataclass(frozen=True)
class Trial:
    """What one change costs, or why it cannot be made."""

    outcome: Outcome | None
    reason: str = ""


@dataclass(frozen=True)
class LayerProfile:
    """One layer: what it adds, and what it costs when it is removed, and when it stands twice in a row."""

    scope: str
    score: LayerScore
    removed: Trial
    doubled: Trial


@dataclass(frozen=True)
class Profile:
    """All layers, run by run; `loss`: the source's own, where it predicts tokens."""

    samples: int
    loss: Loss | None
    layers: tuple[LayerProfile, ...]


def profile(
    c: Compilation, data: Path, samples: int | None, scores: Sequence[LayerScore], progress: Progress
) -> Profile:
    """Remove and double every layer of an analysed model, whose layers' scores are these."""
    rows = []
    with Reference(c.path, data, samples, logits(c)) as reference:
        total, done = 2 * len(scores) * sum(reference.rows), 0
        for score in scores:
            count, k = len(c.layers.runs[score.run].layers), score.layer
            orders = {
                f"without layer {k}": [*range(k), *range(k + 1, count)],
                f"layer {k} twice": [*range(k + 1), *range(k, count)],
            }
            trials = []
            for phrase, order in orders.items():
                progress(phrase, done, total)
                trials.append(
                    tried(c.path, score.run, order, reference, _from(progress, phrase, done, total))
                )
                done += sum(reference.rows)
            rows.append(LayerProfile(c.layers.runs[score.run].scope, score, trials[0], trials[1]))
        return Profile(sum(reference.rows), reference.whole_loss, tuple(rows))


def tried(
    model: Path, run: int, order: Sequence[int], reference: Reference, tell: Callable[[int], None]
) -> Trial:
    """The model with the layers of one run in another order, beside the source."""
    from growc.dialects.onnx.form import OnnxFile

    if not order:
        return Trial(None, ONLY)
    try:
        changed = ordered(model, run, order)
        with TemporaryDirectory(prefix="growc-") as folder:
            target = Path(folder) / model.name
            [*_, result] = OnnxFile().write(changed, Path(folder), target, lambda *_: None)
            return Trial(reference.compared(result, ports_of(changed), tell))
    except GrowError as error:
        return Trial(None, error.diagnostics[0].message)


def ordered(model: Path, run: int, order: Sequence[int]) -> Compilation:
    """A model compiled with the layers of one run in another order."""
    from growc.api import inspect
    from growc.passes import AFTER_DEPTH, rearranged
    from growc.passes import run as run_passes

    c = inspect(model)
    pasts = [Past.of(len(r.layers)) for r in c.layers.runs]
    pasts[run] = pasts[run].after(Move(0, tuple(order)), (False,) * len(order))
    return run_passes(AFTER_DEPTH, rearranged(c, Depth(tuple(pasts))))


def _from(progress: Progress, phrase: str, start: int, total: int) -> Callable[[int], None]:
    return lambda done: progress(phrase, start + done, total)
