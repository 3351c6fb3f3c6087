"""A grown module records gradients where its source does."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import growc


class Refined(nn.Module):
    """Two steps of which a training sees the last one alone, as in recurrent reasoning."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(6, 8), nn.Linear(8, 6)
        self.register_buffer("angles", torch.rand(6))

    def step(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.down(torch.tanh(self.up(x)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.no_grad():
            turned = self.angles.cos()
        with torch.no_grad():
            x = self.step(x)
        h = self.step(x)
        with torch.no_grad():
            size = h.abs().mean()
        return h * turned / size


@pytest.mark.parametrize("recording", [True, False])
def test_a_grown_part_without_gradients_records_none(recording):
    torch.manual_seed(0)
    module, x = Refined(), torch.randn(4, 6)
    with torch.set_grad_enabled(recording):
        result = growc.apply(module, "widen ffn to 2 * ffn with neighbor copy\nexpect exact", {"x": x})
    for one in (module, result):
        one(x).square().sum().backward()
    torch.testing.assert_close(result.down.bias.grad, module.down.bias.grad, rtol=1e-4, atol=1e-6)
    halves = module.up.weight.grad.repeat_interleave(2, 0) / 2
    torch.testing.assert_close(result.up.weight.grad, halves, rtol=1e-4, atol=1e-6)
    calls = [str(node.target) for node in result.graphs[False].nodes]
    assert calls.count("aten.detach.default") == 2


class Chosen(nn.Module):
    """A part that records no gradients hands its own input back: converted to the type that it has."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.score = nn.Linear(6, 8), nn.Linear(8, 6), nn.Linear(6, 6)

    @torch.no_grad()
    def chosen(self, x: torch.Tensor) -> torch.Tensor:
        scores = self.score(nn.functional.dropout(x.to(torch.float32), 0.5, self.training))
        return scores.topk(3, -1).indices

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.down(torch.tanh(self.up(x)))
        mask = torch.ones_like(x).scatter(-1, self.chosen(x), 0.0)
        return x * mask


def test_an_input_handed_back_without_gradients_keeps_its_own():
    torch.manual_seed(0)
    module, x = Chosen().eval(), torch.randn(4, 6)
    result = growc.apply(module, "widen ffn to 2 * ffn with neighbor copy\nexpect exact", {"x": x})
    for one in (module, result):
        one(x).square().sum().backward()
    assert module.down.bias.grad.abs().max() > 0.1
    torch.testing.assert_close(result.down.bias.grad, module.down.bias.grad, rtol=1e-4, atol=1e-6)


def test_all_steps_would_give_other_gradients():
    torch.manual_seed(0)
    module, x = Refined(), torch.randn(4, 6)
    module(x).square().sum().backward()
    own = module.down.bias.grad.clone()
    module.zero_grad()
    h = module.step(module.step(x))
    (h * module.angles.cos() / h.abs().mean().detach()).square().sum().backward()
    assert not torch.allclose(own, module.down.bias.grad, rtol=0.05)
