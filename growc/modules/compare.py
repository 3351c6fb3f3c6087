"""How far two modules lie apart, measured in torch: the r of the contract, and a module's own rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from growc.algebra.indexmap import Array
from growc.dialects.torch.run.cases import Case, Descent
from growc.dialects.torch.run.run_module import Inputs, Otherwise, is_narrow, moved_module, outputs
from growc.passes.finish.interface import Ports
from growc.verification.ort_session import Feeds
from growc.verification.rounding import NARROW_SLACK, SLACK, Rounding
from growc.verification.verify import Comparison, Verification

IN_SINGLE = "In single precision, with the weights as they are stored"


Run = Callable[..., list[Array]]
"""A module in one way to run it: its outputs, by its inputs and the mode."""


class Ways(NamedTuple):
    """One case computed in several ways: as it should be, as it is, and in other ways as it should be."""

    expected: Feeds
    found: Feeds
    others: Sequence[Feeds]


def verify_modules(
    source: nn.Module,
    result: nn.Module,
    cases: Sequence[Case],
    descent: Descent | None = None,
    *,
    train: bool = False,
) -> Verification:
    """Run both modules, and compare what they give. Both are left in their modes.

    Modules of 16 bits are run in single precision beside: 16 bits hide nearly all.
    """
    known = descent or Descent()

    def measured(before: Run, after: Run, others: Sequence[Run], slack: int) -> Verification:
        def run(case: Case) -> Ways:
            return Ways(
                named(before(case.source, train=train), known.gives),
                named(after(case.result, train=train), known.returns),
                [named(other(case.source, train=train), known.gives) for other in others],
            )

        return compared(cases, run, known.ports, slack)

    def single(module: nn.Module) -> Run:
        return Otherwise(module, torch.float32, rounds=True).outputs

    narrow, moved = is_narrow(source), moved_module(source)
    others: list[Run] = [partial(outputs, moved)] + ([] if narrow else [Otherwise(source).outputs])
    slack = NARROW_SLACK if narrow else SLACK
    found = measured(partial(outputs, source), partial(outputs, result), others, slack)
    if not narrow:
        return found
    beside = measured(single(source), single(result), [single(moved)], slack)
    return replace(found, beside={IN_SINGLE: beside})


def compared(
    cases: Sequence[Case], run: Callable[[Case], Ways], ports: Ports | None = None, slack: int = SLACK
) -> Verification:
    """What comes of running all cases. `ports` say where the expected outputs stand in what is found."""
    known = ports or Ports()
    found = Comparison(known.output_maps(), known.renamed, rounding=Rounding(slack=slack))
    for case in cases:
        ways = run(case)
        for other in ways.others:
            found.rounding.add(ways.expected, other)
        found.add(ways.expected, ways.found)
    return found.summed_up()


class Twice:
    """A module as it is, and with wider numbers."""

    def __init__(self, module: nn.Module, names: Sequence[str], *, train: bool = False) -> None:
        self.module, self.names, self.train = module, names, train
        self.wider = Otherwise(module)

    def __call__(self, inputs: Inputs) -> tuple[Feeds, Feeds]:
        """The outputs of both, by name."""
        wider = self.wider.outputs(inputs, train=self.train)
        return named(outputs(self.module, inputs, train=self.train), self.names), named(wider, self.names)


def named(found: Sequence[Array], names: Sequence[str]) -> Feeds:
    """Outputs by their names, as far as these are known."""
    return {names[k] if k < len(names) else f"output {k}": one for k, one in enumerate(found)}
