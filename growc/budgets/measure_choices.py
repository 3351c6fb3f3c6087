"""Measure choices of sizes: each is written into a folder for temporary files, run, and removed.

Needs: planned choices, and the recipe's last `measure importance`. Gives: the cost of each on its samples:
the loss if the model has one, else the KL divergence, else r.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.progress import Progress, quiet
from growc.errors.source import Span
from growc.formats.protocol import form_of
from growc.reports.calibration import Outcome, calibrated
from growc.system.workshop import scratch_folder

if TYPE_CHECKING:
    from growc.passes.compilation import Result


@dataclass(frozen=True)
class MeasuredCost:
    """The measured cost of a choice, smaller is better; and its text."""

    cost: float
    text: str


def measured(c: Result, span: Span, progress: Progress = quiet) -> MeasuredCost:
    """The cost of a plan on calibration data. Raises GrowError (G214, G309, G403) if it cannot be
    measured.
    """
    if not c.path.exists():
        message = "this version measures candidates of models on disk, and this one is in memory"
        remedy = "leave `candidates` out: the scores alone decide then"
        raise GrowError(Diagnostic("G309", message, span, help=remedy))
    with scratch_folder() as folder:
        target = folder / f"candidate{c.path.suffix}"
        inner = folder / "made"
        inner.mkdir()
        files = form_of(c.path).write(c, inner, target, progress)
        outcome, reason = calibrated(c, files[-1], None, progress)
    if outcome is None:
        raise GrowError(Diagnostic("G403", f"candidates cannot be measured: {reason}", span))
    return _of(outcome)


def _of(outcome: Outcome) -> MeasuredCost:
    if outcome.after is not None and outcome.before is not None:
        return MeasuredCost(outcome.after.mean, f"loss {outcome.after.mean:.4f}")
    if outcome.kl is not None:
        return MeasuredCost(outcome.kl, f"KL {outcome.kl:.4f}")
    return MeasuredCost(outcome.relative, f"r {outcome.relative:.1e}")
