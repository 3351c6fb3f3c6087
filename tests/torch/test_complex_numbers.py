"""Complex numbers, and Fourier transforms: what they leave alone grows, and what they mix does not."""

from __future__ import annotations

import pytest
import torch
from complex_rows import CASES, F
from lowered import lowered, opaque
from torch import Tensor, nn

import growc
from growc.algebra.sinusoid import continued_rows, is_sinusoid
from growc.dialects.torch.capture.export import export
from growc.dialects.torch.operators.table import key_of

X = torch.randn(2, 6, 3, generator=torch.Generator().manual_seed(1))


class Between(nn.Module):
    """All functions between two linear layers, each by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> list[Tensor]:
        x = self.up(x)
        return [self.down(function(x, x * (1 + 2j))) for function in CASES.values()]


class Mixer(nn.Module):
    """x + Re(c · (fft(norm(x)) · W)), and a feed-forward block."""

    def __init__(self, dims: tuple[int, ...]) -> None:
        super().__init__()
        self.dims = dims
        self.start, self.norm, self.end = nn.Linear(3, 8), nn.LayerNorm(8), nn.Linear(8, 2)
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)
        self.matrix = nn.Parameter(torch.randn(8, 8, dtype=torch.complex64))
        self.register_buffer("factors", torch.randn(8, dtype=torch.complex64))

    def forward(self, x: Tensor) -> Tensor:
        x = self.start(x)
        z = F.fftn(self.norm(x).to(torch.complex64), dim=self.dims)
        x = x + (torch.einsum("bij,jk->bik", z, self.matrix) * self.factors).real
        return self.end(x + self.down(torch.relu(self.up(x))))


def seeded(module: nn.Module) -> nn.Module:
    torch.manual_seed(0)
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module.eval()


def difference(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        a, b = one(X), other(X)
    return float((a - b).abs().max() / a.abs().max())


@pytest.mark.soak
def test_axes_that_calls_on_complex_numbers_leave_alone_grow():
    module = seeded(Between())
    program = export(module, (X,), {}).program
    assert set(CASES) <= {key_of(n.target) for n in program.graph.nodes if n.op == "call_function"}
    assert not [name for name in opaque(lowered(module, {"x": X})) if "." in name]
    grown = growc.apply(module, 'widen axis 0 of "up.weight" to 7 with uniform copy\nexpect exact', (X,))
    assert grown.up.weight.shape == (7, 3)
    with torch.no_grad():
        for a, b in zip(module(X), grown(X), strict=True):
            assert (a - b).abs().max() < 1e-5 * a.abs().max()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("fill", ["cyclic copy", "cyclic copy split random"])
def test_complex_weights_take_copies_and_their_shares(fill):
    module = seeded(Mixer((1,)))
    grown = growc.apply(module, f"widen hidden to 16 with {fill}\nexpect exact", (X,))
    assert grown.matrix.dtype == torch.complex64
    assert grown.matrix.shape == (16, 16)
    assert grown.matrix.imag.abs().min() > 0
    assert difference(module, grown) < 1e-5


def test_a_transform_of_the_units_freezes_them_and_says_so():
    module = seeded(Mixer((1, 2)))
    with pytest.raises(growc.GrowError) as caught:
        growc.plan("widen hidden to 16 with cyclic copy", module, example_inputs=(X,))
    [said] = caught.value.diagnostics
    assert said.code == "G304"
    assert "mixes all entries of this axis: it is a Fourier transform" in said.message
    grown = growc.apply(module, "widen ffn to 20 with uniform copy\nexpect exact", (X,))
    assert difference(module, grown) < 1e-5


def test_a_table_of_rotations_goes_on():
    turns = torch.polar(torch.ones(24, 3), torch.outer(torch.arange(24.0), torch.tensor([1.0, 0.3, 0.1])))
    table = turns.numpy()
    assert is_sinusoid(table[:16])
    assert abs(continued_rows(table[:16], 24) - table[16:]).max() < 1e-4
