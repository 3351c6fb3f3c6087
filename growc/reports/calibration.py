"""What surgery costs on calibration data: the source and a result of it, run on the same inputs.

Needs: both files, the inputs, how the result's inputs and outputs follow from the source's. Gives: an
`Outcome`: how near outputs that look like logits are as distributions, the loss of both where such an output
predicts the next token of an input, and r where no output looks like logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from growc.dialects.onnx.files.signature import read_signature
from growc.errors.brief import brief
from growc.errors.diagnostic import GrowError
from growc.errors.progress import Progress
from growc.measurement.importance import calibration
from growc.measurement.prediction import Loss, Prediction, find_prediction
from growc.passes.finish.interface import Ports, ports_of
from growc.recipe.syntax_tree import Measure
from growc.verification.difference import Closeness
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.ort_session import Feeds, Session
from growc.verification.verify import HELD_BYTES, Comparison, grown_feeds

if TYPE_CHECKING:
    from growc.passes.compilation import Result


NO_INPUTS = "no inputs are given, by `--inputs` or by `measure importance`"
NO_LOGITS = "no output looks like logits"
NO_TOKENS = "no output predicts the next token of an input"


@dataclass(frozen=True)
class Outcome:
    """closeness: of each output that looks like logits; relative: the largest r of those, or of all outputs
    where there are none; before, after: the loss of source and result, or why there is none.
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
        """The mean KL over all places of all outputs that look like logits."""
        rows = sum(c.rows for c in self.closeness.values())
        return sum(c.kl * c.rows for c in self.closeness.values()) / rows if rows else None


def calibrated(
    c: Result, result: Path, inputs: str | Path | None, progress: Progress
) -> tuple[Outcome | None, str]:
    """What a result costs on `inputs`, else on those of the recipe's last `measure importance`; or why that
    is not known.
    """
    from growc.formats.compiler import opened

    ports = ports_of(c)
    measures = [b.statement for b in c.statements if isinstance(b.statement, Measure)]
    if inputs is None and not measures:
        return None, NO_INPUTS if c.plan.reduces and ports.logits else ""
    data, samples = (Path(inputs), None) if inputs is not None else calibration(measures[-1])
    try:
        before, after = opened(c.path), opened(result)
        with reference(before.file(c.path), data, samples, ports.logits, before.lenient) as source:
            total = sum(source.rows)
            return source.compared(
                after.file(result), ports, lambda done: progress("comparing on samples", done, total)
            ), ""
    except GrowError as error:
        return None, "; ".join([error.diagnostics[0].message, *error.diagnostics[0].notes])


@dataclass
class Reference:
    """A source on its calibration data; what it gives out is kept as far as memory goes. `logits`: those
    outputs that look like them.
    """

    cases: Sequence[Feeds]
    session: Session
    prediction: Prediction | None
    logits: Collection[str]
    kept: list[Feeds] = field(default_factory=list)

    @property
    def rows(self) -> list[int]:
        """How many samples each case holds."""
        return [rows_of(case) for case in self.cases]

    def outputs(self, k: int) -> Feeds:
        """What the source gives out in case k, as far as it is compared."""
        if k < len(self.kept):
            return self.kept[k]
        found = self.session.run(self.cases[k])
        found = {name: a for name, a in found.items() if name in self.logits or not self.logits}
        held = sum(a.nbytes for outputs in self.kept for a in outputs.values())
        if k == len(self.kept) and held < HELD_BYTES:
            self.kept.append(found)
        return found

    @cached_property
    def loss(self) -> Loss | None:
        """The source's loss on all cases; None where it predicts nothing."""
        if self.prediction is None:
            return None
        losses = (self.prediction.loss(case, self.outputs(k)) for k, case in enumerate(self.cases))
        return sum(losses, Loss())

    def compared(
        self, result: Path, ports: Ports, tell: Callable[[int], None] = lambda done: None
    ) -> Outcome:
        """What a result of it costs; `tell` is called with the number of samples that are done."""
        inputs, input_maps, after = read_signature(result), ports.input_maps(), Loss()
        found = Comparison(ports.output_maps(), ports.renamed, self.logits)
        with runnable(result) as copy, Session(copy) as session:
            for k, case in enumerate(self.cases):
                tell(sum(self.rows[:k]))
                feeds = grown_feeds(case, inputs, input_maps, ports.renamed)
                grown = session.run(feeds)
                found.add(self.outputs(k), grown)
                if self.prediction is not None and self.prediction.output in grown:
                    after += self.prediction.loss(feeds, grown)
        near = {name: r.closeness for name, r in found.outputs.items() if r.closeness is not None}
        relative = max((r.relative for r in found.outputs.values()), default=0.0)
        before = self.loss
        reason = "" if before is not None else NO_TOKENS if self.logits else NO_LOGITS
        return Outcome(sum(self.rows), near, relative, before, None if before is None else after, reason)


@contextmanager
def reference(
    model: Path, data: Path, samples: int | None, logits: Collection[str], lenient: bool = False
) -> Iterator[Reference]:
    """A source, opened on its calibration data. `lenient`: masks that are not given are open."""
    ports = read_signature(model)
    cases = cases_in(data, ports, samples, lenient=lenient)
    with runnable(model) as copy, Session(copy) as session:
        yield Reference(cases, session, find_prediction(ports, session, cases[0], logits), logits)
