"""Modules whose forward decides by the values of an argument, as one of pictures does by their sizes."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import growc
from growc.dialects.torch.capture.export import export
from growc.errors.diagnostic import GrowError

WIDER = "widen ffn to 2 * ffn with neighbor copy\nexpect exact"
SIZES = torch.tensor([[2, 3], [1, 4]])
NOTE = "the result is for these values of `sizes`, by which forward decides: [[2, 3], [1, 4]]"


class Pictures(nn.Module):
    """Each picture attends to itself; `sizes` has rows and columns of each, `scale` a number for each."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(8, 12), nn.Linear(12, 8)

    def forward(self, x: Tensor, sizes: Tensor, scale: Tensor) -> Tensor:
        counts = sizes[:, 0] * sizes[:, 1]
        ends = nn.functional.pad(counts.cumsum(0), (1, 0))
        places = torch.zeros(len(x), dtype=torch.int64)
        for number, (start, end) in enumerate(zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True)):
            places[start:end] = number
        x = x * scale[places, None]
        if sizes.max() > 3:
            x = x / 2
        parts = torch.split(x, counts.tolist())
        x = torch.cat([(part @ part.T).softmax(-1) @ part for part in parts])
        return x + self.down(torch.relu(self.up(x)))


class Overwritten(Pictures):
    """Numbers that an argument without values is written into have none."""

    def forward(self, x: Tensor, sizes: Tensor, scale: Tensor) -> Tensor:
        counts = torch.zeros(2, dtype=torch.int64)
        counts[:] = sizes[:, 0] * sizes[:, 1]
        counts[1:] += (scale[1:] > 1e9).to(torch.int64)
        if counts.sum() > 5:
            x = x + 1.0
        return x + self.down(torch.relu(self.up(x)))


def drawn(kind: type[nn.Module]) -> tuple[nn.Module, dict[str, Tensor]]:
    torch.manual_seed(0)
    module = kind().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.5)
    return module, {"x": torch.randn(10, 8), "sizes": SIZES, "scale": torch.tensor([1, 2])}


def test_a_result_is_for_the_values_that_its_source_decides_by():
    module, inputs = drawn(Pictures)
    result = growc.apply(module, WIDER, inputs)
    assert NOTE in result.plan.notes
    for other in ({}, {"scale": torch.tensor([3, 1])}, {"x": torch.randn(10, 8)}):
        with torch.no_grad():
            ours, theirs = (one(**inputs | other) for one in (result, module))
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-4)


def test_a_result_refuses_other_values():
    module, inputs = drawn(Pictures)
    result = growc.apply(module, WIDER, inputs)
    module(**inputs | {"sizes": SIZES.flip(0)})
    with pytest.raises(TypeError, match=r"with \[\[2, 3\], \[1, 4\]\] for `sizes`: its forward decides"):
        result(**inputs | {"sizes": SIZES.flip(0)})


def test_a_result_trains_for_the_captured_values():
    module, inputs = drawn(Pictures)
    result = growc.apply(module, WIDER, inputs, check=False).train()
    for one in (module, result):
        one(**inputs).square().mean().backward()
    torch.testing.assert_close(result.down.bias.grad, module.down.bias.grad, rtol=1e-4, atol=1e-6)


def test_an_overwritten_argument_has_no_value_to_decide_by():
    module, inputs = drawn(Overwritten)
    captured = export(module, (), inputs, deciding=True)
    assert set(captured.values) == {"sizes", "scale"}


def test_nothing_is_decided_by_inputs_that_growc_makes_up():
    module, inputs = drawn(Pictures)
    with pytest.raises(GrowError, match="cannot be traced"):
        export(module, (), inputs)
