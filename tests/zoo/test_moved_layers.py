"""Layers moved by the compiler, and by hand in the module of torch: both compute the same."""

from __future__ import annotations

import copy
from collections.abc import Callable

import numpy as np
import onnxruntime
import pytest
from torch import nn
from zoo import build

from growc import api

QUICK = ("falcon", "qwen3", "olmo2", "mpt")
MORE = (
    "gpt2",
    "gpt_neox",
    "opt",
    "llama_gqa",
    "gemma2",
    "deepseek_v3",
    "mixtral",
    "bert",
    "modernbert",
    "t5",
    "bart",
    "vit",
)
ORDERS: dict[str, Callable[[int], list[int]]] = {
    "stack layers to 2 * layers by whole": lambda count: [*range(count)] * 2,
    "arrange layers as 0..2, 1..2": lambda count: [0, 1, 1],
    "drop layers 1": lambda count: [k for k in range(count) if k != 1],
}


def move_by_hand(module: nn.Module, order: Callable[[int], list[int]]) -> None:
    """Rearrange every list of layers, and the numbers that layers and configs hold."""
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if isinstance(child, nn.ModuleList) and len(child) > 1 and is_layers(child):
                places = order(len(child))
                setattr(parent, name, nn.ModuleList(numbered(child[k], p) for p, k in enumerate(places)))
                renumber(getattr(parent, "config", None), len(child), places)


def is_layers(found: nn.ModuleList) -> bool:
    """Layers, and not experts: each adds to a stream."""
    return len({type(one) for one in found}) == 1 and sum(p.dim() == 2 for p in found[0].parameters()) > 3


def numbered(layer: nn.Module, place: int) -> nn.Module:
    twin = copy.deepcopy(layer)
    for part in twin.modules():
        if hasattr(part, "layer_idx"):
            part.layer_idx = place
    return twin


def renumber(config: object, count: int, places: list[int]) -> None:
    for field, value in list(vars(config or object).items() if config else ()):
        if field.endswith(("layers", "n_layer", "num_layers")) and value == count:
            setattr(config, field, len(places))
        if isinstance(value, list) and len(value) == count:
            setattr(config, field, [value[k] for k in places])


def check(path, name: str, recipe: str, out) -> None:
    built = build(name)
    api.apply(recipe, path, out, check=False, force=True)
    session = onnxruntime.InferenceSession(str(out), providers=["CPUExecutionProvider"])
    names = {i.name for i in session.get_inputs()}
    move_by_hand(built.module, ORDERS[recipe])
    for feed in built.feeds:
        got = session.run(None, {k: v.numpy() for k, v in feed.items() if k in names})
        for a, b in zip(built.run(feed), got, strict=True):
            np.testing.assert_allclose(b, a.numpy(), rtol=0, atol=2e-5 * float(a.abs().max()))


@pytest.mark.sampled(7)
@pytest.mark.parametrize("recipe", ORDERS)
@pytest.mark.parametrize("name", QUICK)
def test_layers_are_moved_as_by_hand(files, name, recipe, tmp_path):
    check(files(name), name, recipe, tmp_path / "moved.onnx")


@pytest.mark.soak
@pytest.mark.parametrize("recipe", ORDERS)
@pytest.mark.parametrize("name", MORE)
def test_layers_of_more_models_are_moved_as_by_hand(files, name, recipe, tmp_path):
    check(files(name), name, recipe, tmp_path / "moved.onnx")
