"""Outputs in a class that gives torch no names for its parts, and modules moved to another type."""

from __future__ import annotations

import copy
from collections import OrderedDict

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import growc

WIDTH = 8


class Output(OrderedDict):
    """An output as libraries return it: a mapping with attributes."""


def unflattened(values, context):
    return Output(zip(context, values, strict=True))


@pytest.fixture
def registered():
    pytree.register_pytree_node(
        Output,
        lambda given: (list(given.values()), list(given)),
        unflattened,
        serialized_type_name="growc.tests.Output",
        to_dumpable_context=lambda context: context,
        from_dumpable_context=lambda context: context,
    )
    yield
    pytree._deregister_pytree_node(Output)


class Network(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)

    def forward(self, x):
        inner = torch.relu(self.up(x))
        return Output(sample=self.down(inner), mean=inner.mean(-1))


@pytest.mark.usefixtures("registered")
def test_outputs_of_a_class_without_names_keep_it():
    module, x = Network().double().eval(), torch.randn(2, 3, WIDTH, dtype=torch.float64)
    made = growc.apply(module, "widen ffn to 24 with neighbor copy", example_inputs={"x": x})
    assert made.plan.certificate.exact
    found, wanted = made(x=x), module(x)
    assert type(found) is Output
    assert list(found) == ["sample", "mean"]
    for name in wanted:
        assert torch.allclose(found[name], wanted[name], rtol=0, atol=1e-12)


class Attending(nn.Module):
    """A mask that is added, made in the type that the weights have while the module is captured."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(WIDTH, 2, batch_first=True)

    def forward(self, x):
        given = torch.cat([torch.zeros_like(x[:, :1]), x], 1)
        later = torch.ones(x.shape[1], given.shape[1], dtype=torch.bool).triu(2)
        return x + self.attention(x, given, given, attn_mask=later, need_weights=False)[0]


@pytest.mark.parametrize("kind", [torch.float64, torch.bfloat16])
def test_a_module_that_is_moved_to_another_type_has_its_masks_in_it(kind):
    torch.manual_seed(0)
    module, x = Attending().eval(), torch.randn(2, 16, WIDTH)
    made = growc.apply(module, "widen heads to 4 with neighbor copy", example_inputs={"x": x})
    source, grown = copy.deepcopy(module).to(kind), made.to(kind)
    with torch.no_grad():
        wanted, found = source(x.to(kind)), grown(x.to(kind))
    assert found.dtype == kind
    assert torch.allclose(found, wanted, rtol=0, atol=1e-12 if kind is torch.float64 else 5e-2)
