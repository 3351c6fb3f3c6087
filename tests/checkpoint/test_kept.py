"""Axes and layers that a class has no config for stay as they are, where others follow the statement."""

from __future__ import annotations

import pytest
import torch
import transformers
from torch import nn

import growc
from growc.errors.diagnostic import GrowError

PIXELS = {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(1))}
WIDER = "widen channels to 2 * channels with neighbor copy"
DEEPER = "stack layers to layers + 1 by last with zero outputs"
CAUSE = "no config of `DPTForDepthEstimation` was found that changes these"
AXES = f"5 of 25 spaces of `channels` (32) stay as they are: {CAUSE}"
RUNS = f"4 of 5 runs of `layers` stay as before: {CAUSE}"


@pytest.fixture(scope="module")
def depth() -> nn.Module:
    """A backbone with layers, and a neck whose blocks are of the class's code, as is the width of a head."""
    config = transformers.DPTConfig(
        hidden_size=32,
        num_hidden_layers=4,
        num_attention_heads=4,
        intermediate_size=64,
        image_size=32,
        patch_size=8,
        neck_hidden_sizes=[16, 24, 32, 48],
        fusion_hidden_size=16,
        backbone_out_indices=[0, 1, 2, 3],
        use_auxiliary_head=False,
    )
    torch.manual_seed(0)
    module = transformers.DPTForDepthEstimation(config).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module


def predicted(module: nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return module(**PIXELS).predicted_depth


def assert_same(result: nn.Module, module: nn.Module) -> None:
    wanted = predicted(module)
    torch.testing.assert_close(predicted(result), wanted, rtol=0, atol=1e-4 * float(wanted.abs().max()))


def test_axes_stay_that_the_class_has_of_its_own(depth):
    result = growc.apply(depth, f"{WIDER}\nexpect exact", PIXELS, check=False)
    assert type(result) is transformers.DPTForDepthEstimation
    assert AXES in result.plan.notes
    assert result.config.neck_hidden_sizes == [32, 48, 64, 96]
    assert result.head.head[2].weight.shape == (32, 16, 3, 3)
    assert_same(result, depth)


@pytest.mark.soak
@pytest.mark.parametrize(("recipe", "notes"), [(DEEPER, {RUNS}), (f"{WIDER}\n{DEEPER}", {RUNS, AXES})])
def test_runs_of_layers_stay_that_the_class_has_of_its_own(depth, recipe, notes):
    result = growc.apply(depth, f"{recipe}\nexpect exact", PIXELS, check=False)
    assert notes <= set(result.plan.notes)
    assert result.config.num_hidden_layers == 5
    assert_same(result, depth)


@pytest.mark.soak
def test_an_axis_named_by_address_does_not_stay(depth):
    recipe = 'widen axis 0 of "head.head.2.bias" to 64 with neighbor copy'
    with pytest.raises(GrowError, match="no config of `DPTForDepthEstimation` gives the planned sizes"):
        growc.plan(recipe, depth, example_inputs=PIXELS)
