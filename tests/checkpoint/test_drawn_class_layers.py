"""New layers that are drawn, in modules, their classes and checkpoint directories."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import transformers
from checkpoints import tiny_config
from safetensors.numpy import load_file
from torch import nn

import growc
from growc.cli.main import main

DEEPER = "stack layers to 3 by last with random fill"
IDS = torch.randint(4, 48, (2, 9), generator=torch.Generator().manual_seed(1))


def built(class_name: str, kind: str) -> nn.Module:
    """A module of two layers whose gains and biases are drawn too."""
    torch.manual_seed(0)
    module = getattr(transformers, class_name)(tiny_config(kind)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.3)
    return module


def assert_new_layer(made: dict[str, torch.Tensor], source: dict[str, torch.Tensor], layers: str) -> None:
    """Layer 2 of `made` is drawn as layer 1 of `source` is distributed."""
    new = {name: value for name, value in made.items() if name.startswith(f"{layers}.2.")}
    assert new
    for name, value in new.items():
        old = source[name.replace(f"{layers}.2.", f"{layers}.1.")]
        if value.ndim > 1:
            assert abs(float(value.std() / old.std()) - 1) < 5 / np.sqrt(2 * value.numel())
            assert abs(float((value * old).mean() / old.square().mean())) < 5 / np.sqrt(value.numel())
        else:
            assert torch.equal(value, torch.full_like(value, float(name.endswith("weight"))))
    for name in source:
        assert torch.equal(made[name], source[name]), name


@pytest.mark.parametrize("keep", [True, False])
@pytest.mark.parametrize(
    ("class_name", "kind", "layers"),
    [("GPT2LMHeadModel", "GPT2", "transformer.h"), ("LlamaForCausalLM", "Llama", "model.layers")],
)
def test_the_new_layer_of_a_module_is_drawn_and_its_parameters_are_new(class_name, kind, layers, keep):
    module = built(class_name, kind)
    result = growc.apply(module, DEEPER, {"input_ids": IDS}, keep_class=keep, check=False)
    names = {name for name, _ in module.named_parameters()}
    state = result.state_dict()
    assert_new_layer(state, {name: module.state_dict()[name] for name in names}, layers)
    assert not result.plan.certificate.exact
    assert "is drawn at random" in result.plan.certificate.gaps[0].cause
    groups = {g["name"]: {n for n, _ in g["params"]} for g in growc.param_groups(result, result.lineage)}
    assert groups.keys() == {"old", "new"}
    assert groups["new"] == {name for name, _ in result.named_parameters() if name.startswith(f"{layers}.2.")}
    again = growc.apply(module, DEEPER, {"input_ids": IDS}, keep_class=keep, check=False).state_dict()
    assert all(torch.equal(state[name], again[name]) for name in state)


def test_a_checkpoint_directory_gets_the_layer_that_a_module_gets(save, tmp_path, capsys):
    path = save("GPT2LMHeadModel", tiny_config("GPT2"))
    assert main(["apply", "-e", DEEPER, str(path), "-o", str(tmp_path / "out")]) == 0, capsys.readouterr()
    made = load_file(tmp_path / "out" / "model.safetensors")
    state = growc.apply(transformers.GPT2LMHeadModel.from_pretrained(path), DEEPER, check=False).state_dict()
    assert all(np.array_equal(value, state[name].numpy()) for name, value in made.items())
    assert any(".h.2." in name for name in made)
