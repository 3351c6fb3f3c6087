"""The rule for operations against torch's own counter."""

from __future__ import annotations

import sys
from dataclasses import replace

import pytest
import torch
from graphs import ROOT
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode

sys.path.append(str(ROOT))

from benchmarks.savings.flops import forward_flops, step_flops
from benchmarks.savings.model import Shape, model_of
from benchmarks.savings.objectives import Inherited, Plain, Staged
from benchmarks.savings.tables import Inherit, TwoStage

GPT = Shape(layers=2, width=24, heads=2, head_dim=8, ffn=40, length=16)
VIT = replace(GPT, kind="vit", inputs=4, outputs=10)


def batch(shape):
    if shape.kind == "gpt":
        return torch.randint(256, (3, shape.length)), torch.randint(256, (3, shape.length))
    return torch.randn(3, shape.length, shape.inputs), torch.randint(10, (3,))


def counted(objective, shape, step=0):
    """The operations of a step: as the counter sees them, and as the objective says."""
    with sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        loss, said = objective.loss(batch(shape), step)
        loss.backward()
    return counter.get_total_flops(), said


@pytest.mark.parametrize("shape", [GPT, VIT], ids=["gpt", "vit"])
def test_a_step_costs_what_the_counter_sees(shape):
    seen, said = counted(Plain(model_of(shape, 0), shape), shape)
    assert seen == said == 3 * step_flops(shape)


@pytest.mark.parametrize("shape", [GPT, VIT], ids=["gpt", "vit"])
def test_a_forward_pass_costs_what_the_counter_sees(shape):
    inputs, _ = batch(shape)
    with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), FlopCounterMode(display=False) as counter:
        model_of(shape, 0)(inputs)
    assert counter.get_total_flops() == 3 * forward_flops(shape)


def test_a_step_of_a_sub_model_costs_what_the_counter_sees():
    model = model_of(GPT, 0)
    staged = Staged(model, GPT, TwoStage(1, 0.5), 12, batch(GPT)[0])
    found = {counted(staged, GPT) for _ in range(6)}
    assert len(found) == 2
    assert all(seen == said for seen, said in found)
    assert counted(staged, GPT, 6)[1] == 3 * step_flops(GPT)


def test_inheriting_costs_the_teachers_forward_pass_while_it_teaches():
    small = replace(GPT, layers=1, ffn=16)
    model = Inherited(model_of(GPT, 0), GPT, Inherit("small", decay=2.0), 10, model_of(small, 0), small)
    seen, said = counted(model, GPT)
    assert seen == said == 3 * (step_flops(GPT) + forward_flops(small))
    assert counted(model, GPT, 5) == (3 * step_flops(GPT), 3 * step_flops(GPT))
