"""Groups of parameters and freezing follow the lineage of every entry."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from graphs import STREAM, save
from torch import nn

import growc
from growc.ir.graph import FLOATING
from growc.plans.lineage import lineage_of
from growc.training.param_groups import entry_kinds, freeze, param_groups


class Holder(nn.Module):
    """Parameters by the names of a plan."""

    def __init__(self, plan) -> None:
        super().__init__()
        for weight in plan.weights:
            if weight.dtype in FLOATING:
                self.register_parameter(weight.name, nn.Parameter(torch.ones(weight.after)))


@pytest.fixture
def grown(tmp_path):
    def grow(recipe: str):
        plan = growc.plan(recipe, save(tmp_path / "m.onnx", STREAM))
        return Holder(plan), lineage_of(plan)

    return grow


def test_entries_are_old_copied_or_new(grown):
    module, lineage = grown("widen ffn to 15 with tail copy\nwiden hidden to 16 with cyclic copy")
    kinds = entry_kinds(module, lineage)
    assert kinds["up_bias"].tolist() == [0] * 12 + [1] * 3
    expected = np.zeros((16, 15), int)
    expected[8:], expected[:, 12:] = 1, 1
    assert kinds["up_weight"].tolist() == expected.tolist()
    module, lineage = grown("widen ffn to 15 with zero fill with zero outputs")
    assert entry_kinds(module, lineage)["up_bias"].tolist() == [0] * 12 + [2] * 3


def test_groups_have_the_options_that_they_are_given(grown):
    module, lineage = grown("widen ffn to 15 with zero fill with zero outputs")
    groups = param_groups(module, lineage, old={"lr": 1e-5}, new={"lr": 1e-3, "weight_decay": 0.1})
    named = {group["name"]: [name for name, _ in group["params"]] for group in groups}
    assert named["new"] == ["up_weight", "up_bias", "down_weight"]
    assert len(named["old"]) == 6
    optimizer = torch.optim.AdamW(groups, lr=1e-4)
    assert [group["lr"] for group in optimizer.param_groups] == [1e-5, 1e-3]
    assert groups[1]["weight_decay"] == 0.1


def test_a_group_of_another_name_is_refused(grown):
    with pytest.raises(TypeError, match="no group `fresh`"):
        param_groups(*grown("widen ffn to 15 with tail copy"), fresh={})


def test_frozen_entries_stay_where_they_are(grown):
    module, lineage = grown("widen ffn to 15 with tail copy")
    hooks = freeze(module, lineage)
    assert not module.down_bias.requires_grad
    optimizer = torch.optim.Adam([p for p in module.parameters() if p.requires_grad], lr=0.1)
    sum(p.square().sum() for p in module.parameters()).backward()
    optimizer.step()
    moved = (module.up_weight != 1).sum(0)
    assert moved.tolist() == [0] * 12 + [8] * 3
    for hook in hooks:
        hook.remove()
    optimizer.zero_grad()
    module.up_weight.sum().backward()
    assert module.up_weight.grad.min() == 1


def test_a_head_that_parted_is_a_copy(tmp_path):
    lineage = lineage_of(growc.plan("untie head", save(tmp_path / "m.onnx", STREAM)))
    assert [name for name, weight in lineage["weights"].items() if weight.get("copy")] == ["table.2"]


def test_a_module_of_other_shapes_is_refused(grown):
    _, lineage = grown("widen ffn to 15 with tail copy")
    module, _ = grown("widen ffn to 16 with tail copy")
    with pytest.raises(ValueError, match="up_weight"):
        entry_kinds(module, lineage)
