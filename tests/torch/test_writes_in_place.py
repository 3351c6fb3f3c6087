"""Operators that write in place, and those that compute the same value without a write."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn
from torch._ops import OpOverload

import growc
from growc.dialects.torch.capture.functionalize import NoOperatorError, without_write

RESHAPING = {"as_strided_", "resize_", "resize_as_", "set_", "t_", "transpose_", "squeeze_", "unsqueeze_"}
RESHAPING |= {"swapaxes_", "swapdims_"}
NO_VALUE = RESHAPING | {"fill_diagonal_", "polygamma_", "requires_grad_"}
"""Writes that reshape their tensor, that no operator without a write has, or that takes arguments in turn."""


def _writes(target: OpOverload) -> bool:
    """Whether an operator writes to its first argument."""
    alias = target._schema.arguments[0].alias_info
    return alias is not None and alias.is_write


def test_every_operator_that_writes_in_place_has_one_that_does_not():
    lost = set()
    for full in torch._C._dispatch_get_all_op_names():
        name, _, overload = full.removeprefix("aten::").partition(".")
        if not full.startswith("aten::") or not name.endswith("_") or name.startswith("_"):
            continue
        target = getattr(getattr(torch.ops.aten, name), overload or "default")
        try:
            if _writes(target):
                assert not _writes(without_write(target))
        except NoOperatorError:
            lost.add(name)
    assert lost == NO_VALUE


def test_a_dropout_in_place_is_in_the_graph_for_training():
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(inplace=True), nn.Dropout(0.5, inplace=True), nn.Linear(8, 3)
    )
    inputs = torch.randn(5, 4)
    grown = growc.apply(module.eval(), "widen ffn to 16 with cyclic copy", inputs, check=False)
    grown.train()
    assert not torch.equal(grown(inputs), grown(inputs))
    assert torch.equal(grown.eval()(inputs), grown(inputs))


class Written(nn.Module):
    """A network with a write to some of its units."""

    def __init__(self, write: Callable[[Tensor], object]) -> None:
        super().__init__()
        self.up, self.down, self.write = nn.Linear(5, 20), nn.Linear(20, 3), write

    def forward(self, x: Tensor) -> Tensor:
        units = torch.relu(self.up(x))
        self.write(units)
        return self.down(units)


WRITES: dict[str, Callable[[Tensor], object]] = {
    "first": lambda units: units[..., :4].mul_(0.5),
    "last": lambda units: units[..., -4:].mul_(0.5),
    "middle": lambda units: units[..., 4:-6].mul_(0.5),
    "narrowed": lambda units: units.narrow(-1, 4, 5).mul_(0.5),
}


@pytest.mark.parametrize("write", WRITES.values(), ids=WRITES)
def test_a_write_to_some_units_is_a_write_to_their_copies(write: Callable[[Tensor], object]) -> None:
    torch.manual_seed(0)
    module, inputs = Written(write).eval(), torch.randn(2, 6, 5)
    grown = growc.apply(module, 'widen axis 0 of "up.weight" to 40 with cyclic copy\nexpect exact', inputs)
    other = torch.randn(3, 2, 5)
    torch.testing.assert_close(grown(other), module(other), rtol=1e-4, atol=1e-5)


def test_a_part_of_a_symbolic_length_grows() -> None:
    class Shifted(Written):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x.narrow(1, 1, x.shape[1] - 1))

    torch.manual_seed(0)
    module = Shifted(lambda units: None).eval()
    grown = growc.apply(module, "widen ffn to 40 with cyclic copy\nexpect exact", torch.randn(2, 6, 5))
    other = torch.randn(3, 9, 5)
    torch.testing.assert_close(grown(other), module(other), rtol=1e-4, atol=1e-5)
