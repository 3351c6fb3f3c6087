"""Functions that torch.vmap maps are captured as calls on whole tensors, at open sizes."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc
from growc.dialects.torch.capture import batched_regions
from growc.dialects.torch.capture.export import export, run
from growc.errors.diagnostic import GrowError

WIDER = "widen ffn to 2 * ffn with neighbor copy\nexpect exact"


class Masked(nn.Module):
    """Attention under a mask that a function of single positions makes, as transformers makes some."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    @staticmethod
    def seen(row, query, key):
        return (key <= query + row) & (torch.div(query, 2, rounding_mode="trunc") - key < 4)

    def forward(self, x):
        seen = self.seen
        for axes in ((None, None, 0), (None, 0, None), (0, None, None)):
            seen = torch.vmap(seen, in_dims=axes)
        places = torch.arange(x.shape[1])
        mask = seen(torch.arange(x.shape[0]), places, places)
        x = x + (x @ x.transpose(1, 2)).masked_fill(~mask, -1e9).softmax(-1) @ x
        return x + self.down(torch.tanh(self.up(x)))


class Ensemble(nn.Module):
    """As many networks as its weights have, each with all rows."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Parameter(torch.randn(3, 6, 8)), nn.Parameter(torch.randn(3, 8, 6))

    def forward(self, x):
        return torch.vmap(lambda up, down: torch.tanh(x @ up) @ down)(self.up, self.down)


def test_a_mask_of_single_positions_is_captured_at_open_sizes():
    torch.manual_seed(0)
    module, x = Masked(), torch.randn(2, 5, 6)
    captured = export(module, (), {"x": x})
    assert not any("batch" in str(node.target) for node in captured.program.graph.nodes)
    longer = torch.randn(3, 9, 6)
    found = run(captured, module.state_dict().__getitem__, (), {"x": longer})
    torch.testing.assert_close(found, module(longer))
    result = growc.apply(module, WIDER, {"x": x})
    torch.testing.assert_close(result(longer), module(longer), rtol=1e-4, atol=1e-5)


def test_networks_that_are_mapped_are_captured_as_products_of_stacks():
    torch.manual_seed(0)
    module, x = Ensemble(), torch.randn(4, 6)
    captured = export(module, (), {"x": x})
    found = run(captured, module.state_dict().__getitem__, (), {"x": x})
    torch.testing.assert_close(found, module(x))
    result = growc.apply(module, WIDER, {"x": x})
    assert (result.up.shape, result.down.shape) == ((3, 6, 16), (3, 16, 6))
    torch.testing.assert_close(result(x), module(x), rtol=1e-4, atol=1e-5)


class Drawing(nn.Module):
    """It draws other noise for each row."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)

    def forward(self, x):
        x = torch.vmap(lambda row: row + torch.rand_like(row), randomness="different")(x)
        return self.down(torch.tanh(self.up(x)))


def test_random_numbers_for_each_row_are_drawn_for_all_at_once():
    captured = export(Drawing(), (), {"x": torch.randn(4, 6)})
    assert [str(node.target) for node in captured.program.graph.nodes].count("aten.rand_like.default") == 1


def test_a_region_that_torch_cannot_trace_is_refused_by_name(monkeypatch):
    monkeypatch.setattr(batched_regions, "traced", lambda *given: None)
    with pytest.raises(GrowError, match="cannot be traced by torch") as caught:
        export(Masked(), (), {"x": torch.randn(2, 5, 6)})
    assert "mapped by vmap from `_vmap_increment_nesting` on" in caught.value.diagnostics[0].notes[0]
