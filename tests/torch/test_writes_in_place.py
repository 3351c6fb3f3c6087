"""Operators that write in place, and those that compute the same value without a write."""

from __future__ import annotations

import torch
from torch import nn
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
