"""Measurements that several processes share. Each process keeps the model open between jobs.

A job tells which file it runs. If that file is on another machine (a program that was lowered from a
checkpoint), the process makes its own from the model.
"""

from __future__ import annotations

import atexit
from contextlib import ExitStack
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from growc.algebra.indexmap import Floats
from growc.dialects.onnx.files.probe_model import ProbedTensor, counted, probed
from growc.dialects.onnx.files.signature import read_signature
from growc.verification.feeds import cases_in
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session, measuring

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

Sums = tuple[list[Floats], list[Floats]]
"""For each probe, its sums, and how many numbers they add up."""


lasting = ExitStack()
"""Contexts that stay open until the process ends."""
atexit.register(lasting.close)


@dataclass(frozen=True)
class Runnable:
    """A model, and the file of it that onnxruntime runs. remade: the function that makes such a file."""

    model: Path
    file: Path
    remade: Callable[[Path], Path]

    @property
    def runs(self) -> Path:
        """The file on this machine."""
        return self.file if self.file.exists() else _made_here(self.remade, self.model)


@lru_cache(maxsize=2)
def _made_here(remade: Callable[[Path], Path], model: Path) -> Path:
    return remade(model)


@dataclass(frozen=True)
class Subject(Runnable):
    """A model that is measured on data. open_masks: masks that are not given are open."""

    data: Path
    samples: int | None
    open_masks: bool

    def cases(self) -> list[Feeds]:
        """Return the data in batches."""
        return cases_in(self.data, read_signature(self.runs), self.samples, open_masks=self.open_masks)


@dataclass(frozen=True)
class SumCase:
    """The job of each process: the case with its own number, counted from `first`; None behind the last."""

    subject: Subject
    probes: tuple[ProbedTensor, ...]
    first: int

    def __call__(self, rank: int, size: int) -> Sums | None:
        """Return the sums of one case."""
        return self.own(*_probing(self.subject, self.probes), rank, size)

    def own(self, session: Session, cases: Sequence[Feeds], rank: int, size: int) -> Sums | None:
        """Return the sums of one case, with a model that is open."""
        number = self.first + rank
        return _summed(session, cases[number], self.probes) if number < len(cases) else None


@lru_cache(maxsize=1)
def _probing(subject: Subject, probes: tuple[ProbedTensor, ...]) -> tuple[Session, list[Feeds]]:
    """Return a model with its probes, open until the process ends, and its cases."""
    copy = lasting.enter_context(runnable(subject.runs))
    return lasting.enter_context(measuring(copy, probed(copy, probes))), subject.cases()


def _summed(session: Session, case: Feeds, probes: Sequence[ProbedTensor]) -> Sums:
    """Return the sums and counts of the probes of a model for a case."""
    outputs = session.run(case)
    sums: list[Floats] = []
    counts: list[Floats] = []
    for k, probe in enumerate(probes):
        name = f"growc.probe.{k}"
        if probe.routed:
            sums.append(outputs[f"{name}.sum"].astype(np.float64))
            counts.append(outputs[f"{name}.count"].astype(np.float64))
            continue
        weight = float(outputs[f"{name}.weight"]) if probe.masks else 1.0
        sums.append(outputs[f"{name}.sum"].astype(np.float64))
        counts.append(np.array(counted(probe, outputs[f"{name}.shape"].tolist(), weight)))
    return sums, counts
