"""Check of the graph for training against the source in training mode, without randomness."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from growc.dialects.torch.emit.grown_module import GrownModule
from growc.dialects.torch.run.cases import Case
from growc.dialects.torch.run.run_module import Inputs, outputs
from growc.modules.compare import CaseOutputs, WithWiderRun, compared, named, verify_modules
from growc.verification.difference import compare
from growc.verification.verify import Verification

IN_TRAINING = "In training, without chance"

ALIKE = 1e-4
"""The largest relative difference of two runs of one module that counts as equal."""


def in_training(source: nn.Module, result: GrownModule, cases: Sequence[Case]) -> Verification | str:
    """Measure the difference of a result from its expectation in training, or return why it was not measured.

    A result that is not exact is compared with itself in evaluation, if the source computes the same in both
    modes. A graph that computes something else is dropped, since the source may draw numbers that torch does
    not see.
    """
    if True not in result.graphs:
        return result.missing
    sized = cases[:2]  # in training not every source accepts other sizes, such as one row
    if _draws(source, sized[0].source):
        return _dropped(result, "the source draws numbers that torch does not see")
    if result.plan.certificate.exact:
        measured = verify_modules(source, result, sized, result.descent, train=True)
    elif _in_both([one.source for one in sized], source).refutes_exact():
        return "the source computes something else than in evaluation"
    else:
        measured = _in_both([one.result for one in sized], result)
    if measured.refutes_exact():
        return _dropped(result, f"what was captured is something else, by {measured.relative:.1e}")
    return measured


def _dropped(result: GrownModule, reason: str) -> str:
    del result.graphs[True]
    result.missing = f"in training {reason}"
    return result.missing


def _draws(source: nn.Module, inputs: Inputs) -> bool:
    """Whether two runs in training differ by more than the order of additions explains."""
    pairs = zip(*(outputs(source, inputs, train=True) for _ in range(2)), strict=True)
    return any(not compare(a, b).relative <= ALIKE for a, b in pairs)


def _in_both(cases: Sequence[Inputs], module: nn.Module) -> Verification:
    """Measure the difference of a module in training from itself in evaluation."""
    twice = WithWiderRun(module, ())

    def run(case: Case) -> CaseOutputs:
        expected, wider = twice(case.source)
        return CaseOutputs(expected, named(outputs(module, case.source, train=True), ()), [wider])

    return compared([Case(one, one) for one in cases], run)
