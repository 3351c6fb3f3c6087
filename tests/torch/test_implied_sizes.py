"""Calls of which a part is a size of their tensors: a module says nothing of it, and grows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import growc

pytestmark = pytest.mark.filterwarnings("ignore:The tensor attributes")
"""Recurrent layers keep tensors as attributes beside their parameters."""
X = torch.randn(2, 5, 4, generator=torch.Generator().manual_seed(0))


class Recurrent(nn.Module):
    """A network of two recurrent layers on a stream."""

    def __init__(self, cells: type[nn.RNNBase], *, both: bool) -> None:
        super().__init__()
        self.embed, self.norm = nn.Linear(4, 6), nn.LayerNorm(6)
        self.cells = cells(6, 8, num_layers=2, batch_first=True, bidirectional=both)
        self.out, self.head = nn.Linear(16 if both else 8, 6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        """Three numbers for each step."""
        x = self.embed(x)
        return self.head(x + self.out(self.cells(self.norm(x))[0]))


class Biased(nn.Module):
    """Biases of queries and values, and none of keys: zeros like the others stand in their place."""

    def __init__(self, made: str) -> None:
        super().__init__()
        self.qkv, self.out, self.head = nn.Linear(4, 36, bias=False), nn.Linear(12, 4), nn.Linear(4, 3)
        self.q_bias, self.v_bias = (nn.Parameter(torch.randn(12)) for _ in range(2))
        self.made = made

    def forward(self, x: Tensor) -> Tensor:
        """Three numbers for each step."""
        none = {
            "zeros_like": lambda: torch.zeros_like(self.q_bias),
            "full_like": lambda: torch.full_like(self.v_bias, 0.25),
            "new_zeros": lambda: self.q_bias.new_zeros(self.q_bias.shape),
            "ones": lambda: torch.ones(self.q_bias.shape[0]),
        }[self.made]()
        qkv = nn.functional.linear(x, self.qkv.weight, torch.cat([self.q_bias, none, self.v_bias]))
        q, k, v = qkv.reshape(*x.shape[:2], 3, 4, 3).permute(2, 0, 3, 1, 4).unbind(0)
        made = torch.softmax(q @ k.transpose(-1, -2), -1) @ v
        return self.head(x + self.out(made.transpose(1, 2).flatten(2)))


def assert_exact(module: nn.Module, recipe: str) -> nn.Module:
    made: nn.Module = growc.apply(module, f"{recipe}\nexpect exact", example_inputs=(X,))
    with torch.no_grad():
        torch.testing.assert_close(made(X), module(X), rtol=1e-5, atol=1e-5)
    return made


@pytest.mark.sampled(4)
@pytest.mark.parametrize("cells", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize(
    ("recipe", "shape"),
    [
        ("widen hidden to 2 * hidden with neighbor copy", (None, 12)),
        ('widen axis 1 of "cells.weight_hh_l0" to 16 with neighbor copy', (16, None)),
        ('widen axis 1 of "cells.weight_hh_l1" to 12 with zero fill with zero outputs', (12, None)),
    ],
    ids=["stream", "first layer", "last layer"],
)
def test_recurrent_layers_grow(cells: type[nn.RNNBase], both: bool, recipe: str, shape: tuple) -> None:
    torch.manual_seed(0)
    made = assert_exact(Recurrent(cells, both=both).eval(), recipe)
    gates = 4 if cells is nn.LSTM else 3
    units, reads = shape
    found = made.state_dict()["cells.weight_ih_l0"].shape
    assert found == (gates * (units or 8), reads or 6)


def test_gates_are_no_positions() -> None:
    found = growc.inspect(Recurrent(nn.LSTM, both=False).eval(), example_inputs=(X,))
    assert set(found.roles.axes) == {"hidden"}


@pytest.mark.parametrize("made", ["zeros_like", "full_like", "new_zeros", "ones"])
def test_numbers_in_the_shape_of_a_parameter_grow_with_it(made: str) -> None:
    torch.manual_seed(0)
    grown = assert_exact(Biased(made).eval(), "widen heads to 2 * heads with neighbor copy")
    assert grown.state_dict()["q_bias"].shape == (24,)


class Rotated(nn.Module):
    """Tokens of two kinds, whose places inputs number in tensors without rows of a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 10), nn.Linear(10, 4)

    def forward(self, picture, text, picture_places, text_places):
        places = torch.cat([picture_places, text_places]).sin()
        return self.down(torch.relu(self.up(torch.cat([picture, text], 1) * places)))


def test_rows_of_another_number_are_no_batch():
    inputs = {
        "picture": torch.randn(2, 5, 6),
        "text": torch.randn(2, 3, 6),
        "picture_places": torch.randn(5, 6),
        "text_places": torch.randn(3, 6),
    }
    module = Rotated().eval()
    made = growc.apply(module, "widen ffn to 20 with neighbor copy", example_inputs=inputs)
    assert made.plan.certificate.exact
    assert torch.allclose(made(**inputs), module(**inputs), rtol=0, atol=1e-5)
