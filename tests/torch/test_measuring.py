"""How far two modules lie apart: on what a result is meant to hold, and by the same rules as two files."""

from __future__ import annotations

import torch
from torch import nn

import growc
from growc.algebra.indexmap import IndexMap
from growc.dialects.torch.run.cases import Case, PortMapping
from growc.modules.compare import verify_modules
from growc.passes.finish.interface import Ports


class Rows(nn.Module):
    """A linear layer some of whose results are given, in this order."""

    def __init__(self, *order: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 4)
        self.order = list(order)

    def forward(self, x):
        return self.layer(x)[:, self.order]


class Spectrum(nn.Module):
    def __init__(self, factor: float = 1.0) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 8)
        self.factor = factor

    def forward(self, x):
        return torch.fft.rfft(self.layer(x)) * self.factor


class Rounded(nn.Module):
    """Whole numbers that the last bit of a sum decides, and numbers that it does not."""

    def __init__(self, by: float) -> None:
        super().__init__()
        self.by = by

    def forward(self, x):
        return torch.sign(x + self.by - self.by - x).long(), x


class Single(nn.Module):
    """It insists on single precision, and writes to a tensor that it makes."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(6, 4)

    def forward(self, x):
        made = torch.zeros(3, 4, dtype=torch.float32)
        made[:, 1:] = self.layer(x).to(torch.float32)[:, 1:]
        return made @ torch.ones(4, 2)


def inputs():
    return (torch.randn(3, 6, generator=torch.Generator().manual_seed(1)),), {}


CASES = [Case(inputs(), inputs())]


def grown(*junk: bool) -> PortMapping:
    """Of two units there are three now; some of them may be anything."""
    state = IndexMap.of(2, [0, 1, 0], junk=junk or None)
    ports = Ports({("y", 1): state}, {"y": ("x", (1,))})
    return PortMapping(ports=ports, output_names=("y",), returns=("y",))


def test_units_that_may_be_anything_are_not_compared():
    source, result = Rows(0, 1), Rows(0, 1, 3)
    assert verify_modules(source, result, CASES, grown(False, False, True)).relative < 1e-6
    assert verify_modules(source, result, CASES, grown()).refutes_exact()


def test_an_output_without_the_units_of_the_source_is_refuted():
    found = verify_modules(Rows(0, 1), Rows(0, 1), CASES, grown())
    assert found.refutes_exact()
    assert "no place" in found.outputs["y"].note


def test_complex_outputs_are_compared_as_numbers():
    args, _ = inputs()
    assert growc.verify(Spectrum(), Spectrum(1 + 1e-7), inputs=args).relative < 1e-6
    assert growc.verify(Spectrum(), Spectrum(1.01), inputs=args).refutes_exact()


def test_whole_numbers_that_rounding_decides_refute_nothing():
    args, _ = inputs()
    found = growc.verify(Rounded(1000.0), Rounded(3000.0), inputs=args)
    assert found.outputs["output 0"].misplaced
    assert set(found.unstable) == {"output 0"}
    assert not found.refutes_exact()


def test_a_module_that_insists_on_its_types_rounds_all_the_same():
    module = Single()
    with torch.no_grad():
        module.layer.weight[:] = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)) / 3
    measured = verify_modules(module, module, CASES)
    assert 1e-9 < measured.rounding < 1e-6
    assert measured.relative == 0


def test_modules_of_16_bits_are_compared_in_single_precision():
    args, _ = inputs()
    source, near, far = Single().bfloat16(), Single().bfloat16(), Single().bfloat16()
    with torch.no_grad():
        source.layer.weight[:] = torch.randn(4, 6, generator=torch.Generator().manual_seed(2)) / 3
        near.layer.weight[:] = source.layer.weight
        far.layer.weight[:] = source.layer.weight * 1.1
    given = (tuple(x.bfloat16() for x in args), {})
    cases = [Case(given, given)]
    assert verify_modules(source, near, cases).relative < 1e-6
    measured = verify_modules(source, far, cases)
    assert 1e-4 < measured.rounding < 1e-2 < measured.relative < 0.2
