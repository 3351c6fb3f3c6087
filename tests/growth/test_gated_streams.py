"""Streams that a gate weighs against their branches, and streams whose ends are shifted: both have names."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional

import growc

WIDTH, INSIDE, WORDS = 12, 20, 17


def shifted(x: torch.Tensor) -> torch.Tensor:
    """Half of the units come from the token before."""
    first, second = x.chunk(2, -1)
    return torch.cat([functional.pad(first, (0, 0, 1, -1)), second], -1)


class Highway(nn.Module):
    """The stream and a new value, weighed by a gate."""

    def __init__(self, against: bool) -> None:
        super().__init__()
        self.gate, self.against = nn.Linear(WIDTH, WIDTH), against

    def forward(self, new: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        gate = self.gate(stream).sigmoid()
        return new + gate * (stream - new) if self.against else gate * stream + (1 - gate) * new


class Cell(nn.GRUCell):
    """The stream is the state of a GRU."""

    def forward(self, new: torch.Tensor, stream: torch.Tensor) -> torch.Tensor:
        return super().forward(new.flatten(0, 1), stream.flatten(0, 1)).view_as(new)


class Network(nn.Module):
    """Layers of a feed-forward network on a stream."""

    def __init__(self, gates: list[nn.Module], shift: bool) -> None:
        super().__init__()
        self.table, self.gates, self.shift = nn.Embedding(WORDS, WIDTH), nn.ModuleList(gates), shift
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.ins = nn.ModuleList(nn.Linear(WIDTH, INSIDE) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(INSIDE, WIDTH) for _ in range(2))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        for k, (norm, first, second) in enumerate(zip(self.norms, self.ins, self.outs, strict=True)):
            given = norm(shifted(x) if self.shift else x)
            made = second(functional.gelu(first(given)))
            x = self.gates[k](made, x) if len(self.gates) else x + made
        return self.head(x)


KINDS = {
    "a gate": lambda: Network([Highway(False) for _ in range(2)], False),
    "a gate on the difference": lambda: Network([Highway(True) for _ in range(2)], False),
    "cells of a GRU": lambda: Network([Cell(WIDTH, WIDTH) for _ in range(2)], False),
    "shifted": lambda: Network([], True),
    "cells of a GRU, shifted": lambda: Network([Cell(WIDTH, WIDTH) for _ in range(2)], True),
}


@pytest.mark.parametrize("axis", ["hidden", "ffn"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_has_its_names_and_grows(kind, axis):
    torch.manual_seed(0)
    module = KINDS[kind]().double().eval()
    for parameter in module.parameters():
        parameter.data += 0.3 * torch.randn_like(parameter)
    ids = torch.randint(0, WORDS, (2, 7))
    made = growc.apply(module, f"widen {axis} to 2 * {axis} with neighbor copy", example_inputs={"ids": ids})
    assert made.plan.certificate.exact
    sizes = growc.inspect(made, example_inputs={"ids": ids}).roles.sizes(axis)
    assert sizes == [{"hidden": 2 * WIDTH, "ffn": 2 * INSIDE}[axis]]
    assert torch.allclose(made(ids), module(ids), rtol=0, atol=1e-9)


class Steps(nn.Module):
    """A recurrence over three steps, whose state is no stream."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.cell, self.head = (
            nn.Embedding(WORDS, WIDTH),
            nn.GRUCell(WIDTH, INSIDE),
            nn.Linear(INSIDE, 3),
        )

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        state = torch.zeros(ids.shape[0], INSIDE)
        for step in range(3):
            state = self.cell(self.table(ids[:, step]), state)
        return self.head(state)


def test_the_state_of_a_recurrence_grows():
    torch.manual_seed(0)
    module, ids = Steps().eval(), torch.randint(0, WORDS, (2, 3))
    names = growc.inspect(module, example_inputs={"ids": ids}).roles.axes
    [axis] = [name for name, found in names.items() if any(one.size == INSIDE for one in found)]
    made = growc.apply(module, f"widen {axis} to 2 * {axis} with neighbor copy", example_inputs={"ids": ids})
    assert torch.allclose(made(ids), module(ids), atol=1e-5)
