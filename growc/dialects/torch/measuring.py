"""How far two modules lie apart, measured in torch: the r of the contract, and a module's own rounding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import torch
from torch import nn

from growc.dialects.torch.cases import Case, Descent
from growc.dialects.torch.running import Inputs, Otherwise, is_narrow, outputs
from growc.difference import OutputReport
from growc.graph import Array
from growc.ports import Ports
from growc.rounding import Rounding
from growc.session import Feeds
from growc.verification import Verification, compare_outputs, summed_up

IN_SINGLE = "compared in single precision, with the weights as they are stored"


class Ways(NamedTuple):
    """One case computed in several ways: as it should be, so once more with wider numbers, and as it is."""

    expected: Feeds
    wider: Feeds
    found: Feeds


def verify_modules(
    source: nn.Module,
    result: nn.Module,
    cases: Sequence[Case],
    descent: Descent | None = None,
    *,
    train: bool = False,
) -> Verification:
    """Run both modules, and compare what they give. Both are left in their modes."""
    known = descent or Descent()
    return compare_in(source, result, cases, known.ports, known.gives, known.returns, train=train)


def compare_in(
    source: nn.Module,
    result: nn.Module,
    cases: Sequence[Case],
    ports: Ports,
    gives: Sequence[str],
    returns: Sequence[str],
    *,
    train: bool = False,
) -> Verification:
    """The same, where the names of the outputs of both are known, and how they follow from each other.

    Modules of 16 bits compute in single precision, with the same weights: 16 bits hide nearly all.
    """
    narrow = is_narrow(source)
    kind = torch.float32 if narrow else torch.float64
    expected, found = (
        Otherwise(one, kind).outputs if narrow else partial(outputs, one) for one in (source, result)
    )
    wider = Otherwise(source, kind, thirds=narrow).outputs

    def run(case: Case) -> Ways:
        return Ways(
            named(expected(case.source, train=train), gives),
            named(wider(case.source, train=train), gives),
            named(found(case.result, train=train), returns),
        )

    measured = compared(cases, run, ports)
    return replace(measured, notes=(*measured.notes, IN_SINGLE)) if narrow else measured


def compared(cases: Sequence[Case], run: Callable[[Case], Ways], ports: Ports | None = None) -> Verification:
    """What comes of running all cases. `ports` say where the expected outputs stand in what is found."""
    known, notes = ports or Ports(), list[str]()
    maps, rounding = known.output_maps(), Rounding()
    reports: dict[str, list[OutputReport]] = {}
    for case in cases:
        ways = run(case)
        rounding.add(ways.expected, ways.wider)
        for name, report in compare_outputs(ways.expected, ways.found, maps, known.renamed, notes, ()):
            reports.setdefault(name, []).append(report)
    return summed_up(reports, rounding, len(cases), notes)


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
