"""Comparison of two modules in torch: the r of the contract, and a module's own rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from growc.algebra.indexmap import Array
from growc.dialects.torch.run.cases import Case, PortMapping
from growc.dialects.torch.run.run_module import Inputs, WiderModule, is_narrow, moved_module, outputs
from growc.passes.finish.interface import Ports
from growc.verification.ort_session import Feeds
from growc.verification.rounding import NARROW_SLACK, SLACK, Rounding
from growc.verification.verify import Comparison, Verification

IN_SINGLE = "In single precision, with the weights as they are stored"


RunModule = Callable[..., list[Array]]
"""One way to run a module: returns its outputs for inputs and a mode."""


class CaseOutputs(NamedTuple):
    """The outputs of one case: expected, actual, and expected as computed in other ways."""

    expected: Feeds
    actual: Feeds
    others: Sequence[Feeds]


def verify_modules(
    source: nn.Module,
    result: nn.Module,
    cases: Sequence[Case],
    descent: PortMapping | None = None,
    *,
    train: bool = False,
) -> Verification:
    """Run both modules, and compare their outputs. Both keep their modes.

    16-bit modules are also run in single precision, because 16 bits hide nearly all differences.
    """
    known = descent or PortMapping()

    def measured(
        before: RunModule, after: RunModule, others: Sequence[RunModule], slack: int
    ) -> Verification:
        def run(case: Case) -> CaseOutputs:
            return CaseOutputs(
                named(before(case.source, train=train), known.output_names),
                named(after(case.result, train=train), known.returns),
                [named(other(case.source, train=train), known.output_names) for other in others],
            )

        return compared(cases, run, known.ports, slack)

    def single(module: nn.Module) -> RunModule:
        return WiderModule(module, torch.float32, rounds=True).outputs

    narrow, moved = is_narrow(source), moved_module(source)
    others: list[RunModule] = [partial(outputs, moved)] + ([] if narrow else [WiderModule(source).outputs])
    slack = NARROW_SLACK if narrow else SLACK
    verification = measured(partial(outputs, source), partial(outputs, result), others, slack)
    if not narrow:
        return verification
    in_single = measured(single(source), single(result), [single(moved)], slack)
    return replace(verification, beside={IN_SINGLE: in_single})


def compared(
    cases: Sequence[Case], run: Callable[[Case], CaseOutputs], ports: Ports | None = None, slack: int = SLACK
) -> Verification:
    """Return the comparison of all cases. `ports` maps the expected outputs to the actual ones."""
    port_map = ports or Ports()
    comparison = Comparison(port_map.output_maps(), port_map.renamed, rounding=Rounding(slack=slack))
    for case in cases:
        ways = run(case)
        for other in ways.others:
            comparison.rounding.add(ways.expected, other)
        comparison.add(ways.expected, ways.actual)
    return comparison.summed_up()


class WithWiderRun:
    """A module that is run as it is and with wider dtypes."""

    def __init__(self, module: nn.Module, names: Sequence[str], *, train: bool = False) -> None:
        self.module, self.names, self.train = module, names, train
        self.wider = WiderModule(module)

    def __call__(self, inputs: Inputs) -> tuple[Feeds, Feeds]:
        """Return the outputs of both runs, by name."""
        wider = self.wider.outputs(inputs, train=self.train)
        return named(outputs(self.module, inputs, train=self.train), self.names), named(wider, self.names)


def named(arrays: Sequence[Array], names: Sequence[str]) -> Feeds:
    """Return outputs by name. Those without a known name are numbered."""
    return {names[k] if k < len(names) else f"output {k}": one for k, one in enumerate(arrays)}
