"""Operators that write in place, and those that compute the same value without a write."""

from __future__ import annotations

import torch
from torch import nn

import growc
from growc.dialects.torch.capture.functionalize import NoOperatorError, without_write

NO_VALUE = {"as_strided_", "copy_", "resize_as_", "set_", "t_", "transpose_", "unsqueeze_"}
"""Writes that reshape their tensor, or take another type: no operator without a write has their arguments."""


def test_every_operator_that_writes_in_place_has_one_that_does_not():
    lost = set()
    for name in dir(torch.ops.aten):
        packet = getattr(torch.ops.aten, name)
        writes = name.endswith("_") and not name.startswith("_") and hasattr(packet, "overloads")
        for overload in packet.overloads() if writes else ():
            target = getattr(packet, overload)
            try:
                if target._schema.is_mutable:
                    assert without_write(target)._schema.arguments[0].alias_info is None
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
