"""Scores of modules, `.pt2` programs and checkpoint directories, against hooks in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from test_torch_importance import LENGTH, VOCAB, program, tokens
from torch import nn
from torch.nn import functional

import growc

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4}
KINDS = ["directory", "module", "program"]
Opened = tuple[object, nn.Module, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    """A model of each form, the module that it is, and its inputs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("scores")
    torch.manual_seed(0)
    more = {"num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 16}
    module = LlamaForCausalLM(LlamaConfig(**SIZES, **more, use_cache=False)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    module.save_pretrained(folder / "directory")
    arrays = tokens(folder / "data.npz")
    given = {name: torch.from_numpy(array) for name, array in arrays.items()}
    forms: dict[str, object] = {"directory": folder / "directory", "module": module}

    def form(kind: str) -> Opened:
        if kind not in forms:
            forms[kind] = program(module, arrays, folder / "program.pt2")
        return forms[kind], module, given

    return form


def kept(recipe: str, model: object, data: Path, weight: str) -> dict[str, str]:
    """The stored tensors of a plan, by where they come from."""
    plan = growc.plan(f'measure importance on "{data}"\n{recipe}\n', model)
    return {w.name: w.copy_of or w.source for w in plan.weights if weight in w.source}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    tokens(tmp_path / "data.npz")
    return tmp_path / "data.npz"


def without(module: nn.Module, layer: int) -> nn.Module:
    made = copy.deepcopy(module)
    made.model.layers = nn.ModuleList(one for k, one in enumerate(made.model.layers) if k != layer)
    return made


def loss(module: nn.Module, given: dict[str, torch.Tensor]) -> float:
    ids, mask = given["input_ids"], given["attention_mask"]
    counts = (mask[:, 1:] * mask[:, :-1]).bool()
    with torch.no_grad():
        logits = module(**given, use_cache=False).logits[:, :-1]
    return float(functional.cross_entropy(logits[counts], ids[:, 1:][counts]))


def highest(scores: list[float], size: int) -> set[int]:
    return set(np.argsort(-np.array(scores), kind="stable")[:size].tolist())


def layers_in(sources: dict[str, str]) -> set[int]:
    return {int(name.split("layers.")[1].split(".")[0]) for name in sources.values()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layers_go_without_which_the_loss_rises_least(
    opened: Callable[[str], Opened], data: Path, kind: str
) -> None:
    model, module, given = opened(kind)
    rises = [loss(without(module, k), given) for k in range(4)]
    assert layers_in(kept("subclone layers to 2 by loss", model, data, "up_proj")) == highest(rises, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layers_go_that_turn_the_stream_least(
    opened: Callable[[str], Opened], data: Path, kind: str
) -> None:
    model, module, given = opened(kind)
    streams: list[torch.Tensor] = []
    hooks = [one.register_forward_pre_hook(lambda m, a: streams.append(a[0])) for one in module.model.layers]
    hooks.append(module.model.norm.register_forward_pre_hook(lambda m, a: streams.append(a[0])))
    loss(module, given)
    for hook in hooks:
        hook.remove()
    keep = given["attention_mask"].bool()
    turns = [
        float((1 - functional.cosine_similarity(x[keep], y[keep], dim=-1)).mean())
        for x, y in pairwise(streams)
    ]
    assert layers_in(kept("subclone layers to 2 by cosine", model, data, "up_proj")) == highest(turns, 2)


def test_units_of_a_gated_network_rank_by_what_the_next_weight_reads(
    opened: Callable[[str], Opened], data: Path
) -> None:
    model, module, given = opened("module")
    found: dict[str, torch.Tensor] = {}
    read = module.model.layers[1].mlp.down_proj
    hook = read.register_forward_pre_hook(lambda m, a: found.update(x=a[0].detach()))
    loss(module, given)
    hook.remove()
    x = found["x"][given["attention_mask"].bool()]
    assert len(x) < 6 * LENGTH
    stay = np.sort(np.argsort(-np.linalg.norm(x.numpy(), axis=0), kind="stable")[:12])
    recipe = f'measure importance on "{data}"\nsubclone ffn to 12 by importance using l2 unscaled'
    result = growc.apply(model, recipe, keep_class=False, check=False)
    made = result.get_parameter("model.layers.1.mlp.down_proj.weight").detach()
    torch.testing.assert_close(made, read.weight.detach()[:, stay], rtol=0, atol=0)
