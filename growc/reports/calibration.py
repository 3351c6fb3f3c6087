"""What surgery costs on calibration data: the source and a result of it, run on the same inputs.

Needs: both files, the inputs, how the result's inputs and outputs follow from the source's. Gives: an
`Outcome`: how near outputs that look like logits are as distributions, the loss of both where such an output
predicts the next token of an input, and r where no output looks like logits.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING

from growc.dialects.onnx.files.signature import read_signature
from growc.errors.brief import brief
from growc.errors.diagnostic import GrowError
from growc.errors.progress import Progress
from growc.measurement.importance import calibration
from growc.measurement.prediction import Loss, find_prediction
from growc.passes.finish.interface import Ports, ports_of
from growc.recipe.syntax_tree import Measure
from growc.verification.difference import OutputReport, worst
from growc.verification.feeds import cases_in, rows_of
from growc.verification.float_copies import runnable
from growc.verification.logit_distance import Closeness
from growc.verification.ort_session import Feeds, Session
from growc.verification.verify import HELD_BYTES, compare_output, grown_feeds

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
        with Reference(before.file(c.path), data, samples, ports.logits, before.lenient) as reference:
            total = sum(reference.rows)
            return reference.compared(
                after.file(result), ports, lambda done: progress("comparing on samples", done, total)
            ), ""
    except GrowError as error:
        return None, "; ".join([error.diagnostics[0].message, *error.diagnostics[0].notes])


class Reference:
    """A source on its calibration data; what it gives out is kept as far as memory goes. `logits`: those
    outputs that look like them; `lenient`: masks that are not given are open.
    """

    def __init__(
        self, model: Path, data: Path, samples: int | None, logits: Collection[str], lenient: bool = False
    ) -> None:
        self.model, self.logits = model, logits
        self.cases = cases_in(data, read_signature(model), samples, lenient=lenient)
        self.rows = [rows_of(case) for case in self.cases]
        self.kept: list[Feeds] = []
        self.losses: dict[int, Loss] = {}
        self.held = 0

    def __enter__(self) -> Reference:
        self._stack = ExitStack()
        copy = self._stack.enter_context(runnable(self.model))
        self.session = self._stack.enter_context(Session(copy))
        ports = read_signature(self.model)
        self.prediction = find_prediction(ports, self.session, self.cases[0], self.logits)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def outputs(self, k: int) -> Feeds:
        """What the source gives out in case k, as far as it is compared."""
        if k < len(self.kept):
            return self.kept[k]
        found = self.session.run(self.cases[k])
        found = {name: a for name, a in found.items() if name in self.logits or not self.logits}
        if k == len(self.kept) and self.held < HELD_BYTES:
            self.kept.append(found)
            self.held += sum(a.nbytes for a in found.values())
        return found

    def loss(self, k: int) -> Loss:
        """The source's loss in case k."""
        assert self.prediction is not None
        if k not in self.losses:
            self.losses[k] = self.prediction.loss(self.cases[k], self.outputs(k))
        return self.losses[k]

    @property
    def whole_loss(self) -> Loss | None:
        """The source's loss on all cases; None where it predicts nothing."""
        if self.prediction is None:
            return None
        return sum((self.loss(k) for k in range(len(self.cases))), Loss())

    def compared(
        self, result: Path, ports: Ports, tell: Callable[[int], None] = lambda done: None
    ) -> Outcome:
        """What a result of it costs; `tell` is called with the number of samples that are done."""
        inputs, input_maps, output_maps = read_signature(result), ports.input_maps(), ports.output_maps()
        reports: dict[str, list[OutputReport]] = {}
        after = Loss()
        with runnable(result) as copy, Session(copy) as session:
            for k, case in enumerate(self.cases):
                tell(sum(self.rows[:k]))
                feeds = grown_feeds(case, inputs, input_maps, ports.renamed, 0)
                grown, expected = session.run(feeds), self.outputs(k)
                for name, output in expected.items():
                    other = ports.renamed.get(name, name)
                    if other is not None:
                        report = compare_output(
                            output, grown.get(other), output_maps.get(name, ()), name in self.logits
                        )
                        reports.setdefault(name, []).append(report)
                if self.prediction is not None and self.prediction.output in grown:
                    after += self.prediction.loss(feeds, grown)
        return self._outcome({name: worst(found) for name, found in reports.items()}, after)

    def _outcome(self, reports: Mapping[str, OutputReport], after: Loss) -> Outcome:
        near = {name: r.closeness for name, r in reports.items() if r.closeness is not None}
        relative = max((r.relative for r in reports.values()), default=0.0)
        before = self.whole_loss
        reason = "" if before is not None else NO_TOKENS if self.logits else NO_LOGITS
        return Outcome(sum(self.rows), near, relative, before, None if before is None else after, reason)
