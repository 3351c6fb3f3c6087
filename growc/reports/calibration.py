"""The cost of surgery on calibration data: the source and a result of it, run on the same inputs.

Needs: both files, the inputs, and the maps from the source's inputs and outputs to the result's. Gives: an
`Outcome`. It states how close outputs that look like logits are as distributions. It has the loss of both
models if such an output predicts the next token of an input. It has r of all outputs if no output looks like
logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from growc.dialects.onnx.files.signature import read_signature
from growc.errors.diagnostic import GrowError
from growc.errors.display import Shown
from growc.errors.progress import Progress
from growc.errors.short_repr import brief
from growc.measurement.importance import calibration
from growc.measurement.prediction import Loss, Prediction, find_prediction
from growc.measurement.shared import Runnable, Subject, lasting
from growc.passes.finish.interface import Ports, ports_of
from growc.recipe.syntax_tree import Measure
from growc.system.ranks import ALONE, Ranks
from growc.verification.difference import Closeness
from growc.verification.feeds import rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session, measuring
from growc.verification.verify import HELD_BYTES, Comparison, grown_feeds

if TYPE_CHECKING:
    from growc.passes.compilation import Result


NO_INPUTS = "no inputs are given, by `--inputs` or by `measure importance`"
NO_LOGITS = "no output looks like logits"
NO_TOKENS = "no output predicts the next token of an input"


@dataclass(frozen=True)
class Outcome(Shown):
    """The comparison of a result with its source.

    samples: their number. closeness: of each output that looks like logits. relative: the largest r of those
    outputs, or of all outputs if there are none. before, after: the loss of source and result; None if there
    is none, and `reason` says why.
    """

    __repr__ = brief

    samples: int
    closeness: Mapping[str, Closeness]
    relative: float
    before: Loss | None = None
    after: Loss | None = None
    reason: str = ""

    @property
    def kl(self) -> float | None:
        """The mean KL divergence over all places of all outputs that look like logits; None if there
        are none.
        """
        rows = sum(c.rows for c in self.closeness.values())
        return sum(c.kl * c.rows for c in self.closeness.values()) / rows if rows else None


def calibrated(
    c: Result, result: Path, inputs: str | Path | None, progress: Progress, ranks: Ranks = ALONE
) -> tuple[Outcome | None, str]:
    """The cost of a result, or the reason why it is unknown.

    inputs: by default, those of the recipe's last `measure importance`. ranks: the processes that run both
    models.
    """
    from growc.formats.compiler import lowered, opened

    ports = ports_of(c)
    measures = [b.statement for b in c.statements if isinstance(b.statement, Measure)]
    if inputs is None and not measures:
        return None, NO_INPUTS if c.plan.reduces and ports.logits else ""
    data, samples = (Path(inputs), None) if inputs is not None else calibration(measures[-1])
    try:
        before, after = opened(c.path), opened(result)
        subject = Subject(c.path, before.file(c.path), lowered, data, samples, before.open_masks)
        with reference(subject, ports.logits) as source:
            total = sum(source.rows)

            def tell(done: int) -> None:
                progress("comparing on samples", done, total)

            grown = Runnable(result, after.file(result), lowered)
            return source.compared(grown, ports, tell, ranks), ""
    except GrowError as error:
        return None, "; ".join([error.diagnostics[0].message, *error.diagnostics[0].notes])


@dataclass
class CalibratedSource:
    """A source with its calibration data. Its outputs are kept as far as memory allows.

    logits: the outputs that look like logits.
    """

    subject: Subject
    cases: Sequence[Feeds]
    session: Session
    prediction: Prediction | None
    logits: Collection[str]
    kept: list[Feeds] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """The number of samples in each case."""
        return [rows_of(case) for case in self.cases]

    def outputs(self, k: int) -> Feeds:
        """The source's outputs in case k that are compared."""
        if k < len(self.kept):
            return self.kept[k]
        outputs = self.session.run(self.cases[k])
        outputs = {name: a for name, a in outputs.items() if name in self.logits or not self.logits}
        held_bytes = sum(a.nbytes for outputs in self.kept for a in outputs.values())
        if k == len(self.kept) and held_bytes < HELD_BYTES:
            self.kept.append(outputs)
        return outputs

    @cached_property
    def loss(self) -> Loss | None:
        """The source's loss on all cases; None if no output predicts tokens."""
        if self.prediction is None:
            return None
        losses = (self.prediction.loss(case, self.outputs(k)) for k, case in enumerate(self.cases))
        return sum(losses, Loss())

    def compared(
        self,
        result: Runnable,
        ports: Ports,
        tell: Callable[[int], None] = lambda done: None,
        ranks: Ranks = ALONE,
    ) -> Outcome:
        """The cost of a result of this source.

        tell: called with the number of samples done. ranks: the processes that run the cases; each case is
        run by one.
        """
        compared = Compared(_comparison(ports, self.logits))
        with runnable(result.file) as copy, measuring(copy) as session:
            for first in range(0, len(self.cases), ranks.size):
                tell(sum(self.rows[:first]))
                job = CompareCase(self.subject, self.logits, result, ports, first)
                for case_result in filter(None, ranks.each(job, partial(job.own, self, session, copy))):
                    compared.add(case_result)
        closeness = {
            name: r.closeness for name, r in compared.comparison.outputs.items() if r.closeness is not None
        }
        relative = max((r.relative for r in compared.comparison.outputs.values()), default=0.0)
        if self.prediction is None:
            reason = NO_TOKENS if self.logits else NO_LOGITS
            return Outcome(sum(self.rows), closeness, relative, reason=reason)
        return Outcome(sum(self.rows), closeness, relative, compared.before, compared.after)

    def beside(self, session: Session, result: Path, ports: Ports, k: int) -> Compared:
        """The comparison of source and result in case k."""
        compared = Compared(_comparison(ports, self.logits))
        feeds = grown_feeds(self.cases[k], read_signature(result), ports.input_maps(), ports.renamed)
        expected, grown = self.outputs(k), session.run(feeds)
        compared.comparison.add(expected, grown)
        if self.prediction is not None:
            compared.before = self.prediction.loss(self.cases[k], expected)
            if self.prediction.output in grown:
                compared.after = self.prediction.loss(feeds, grown)
        return compared


def _comparison(ports: Ports, logits: Collection[str]) -> Comparison:
    return Comparison(ports.output_maps(), ports.renamed, logits)


@dataclass
class Compared:
    """The comparison on some cases, and the loss of source and result on them."""

    comparison: Comparison
    before: Loss = field(default_factory=Loss)
    after: Loss = field(default_factory=Loss)

    def add(self, other: Compared) -> None:
        """Add the comparison on further cases."""
        self.comparison.join(other.comparison)
        self.before += other.before
        self.after += other.after


@dataclass(frozen=True)
class CompareCase:
    """The job of each process: it compares the case numbered `first` plus its rank. None if there is no such
    case.
    """

    subject: Subject
    logits: Collection[str]
    result: Runnable
    ports: Ports
    first: int

    def __call__(self, rank: int, size: int) -> Compared | None:
        """The comparison of source and result in one case."""
        source = lasting_reference(self.subject, frozenset(self.logits))
        return self.own(source, *_running(self.result), rank, size)

    def own(
        self, source: CalibratedSource, session: Session, result: Path, rank: int, size: int
    ) -> Compared | None:
        """The comparison in one case, with models that are open."""
        number = self.first + rank
        return source.beside(session, result, self.ports, number) if number < len(source.cases) else None


@lru_cache(maxsize=1)
def lasting_reference(subject: Subject, logits: frozenset[str]) -> CalibratedSource:
    """A source that stays open until the process ends."""
    return lasting.enter_context(reference(subject, logits))


@lru_cache(maxsize=1)
def _running(result: Runnable) -> tuple[Session, Path]:
    copy = lasting.enter_context(runnable(result.runs))
    return lasting.enter_context(measuring(copy)), copy


@contextmanager
def reference(subject: Subject, logits: Collection[str]) -> Iterator[CalibratedSource]:
    """Open a source with its calibration data."""
    cases, file = subject.cases(), subject.runs
    with runnable(file) as copy, measuring(copy) as session:
        prediction = find_prediction(read_signature(file), session, cases[0], logits)
        yield CalibratedSource(subject, cases, session, prediction, logits)
