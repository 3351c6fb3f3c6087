"""Growing a small model, and what was emitted, under torch's names."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from models import Models, stored
from numpy.typing import NDArray

import growc
from growc.api import Applied

Weights = dict[str, NDArray[Any]]


@pytest.fixture
def grow(models: Models, tmp_path: Path) -> Callable[..., Applied]:
    """Apply a recipe to a model of tests/models.py (or a file); `check=False` leaves onnxruntime out."""

    def apply(
        recipe: str, model: str | Path = "gpt2", flavour: str = "torchscript", **options: Any
    ) -> Applied:
        path = model if isinstance(model, Path) else models.path(model, flavour)
        out = tmp_path / options.pop("out", "grown.onnx")
        return growc.apply(recipe, path, out, force=True, **options)

    return apply


@pytest.fixture
def grown(grow: Callable[..., Applied]) -> Callable[..., Weights]:
    """The emitted weights of a recipe by torch's names, without running them."""

    def weights(recipe: str, model: str | Path = "gpt2", flavour: str = "torchscript") -> Weights:
        return named_weights(grow(recipe, model, flavour, check=False).written)

    return weights


def named_weights(path: Path) -> Weights:
    """Float weights of an exported GPT-2 by torch's names; the tied head, turned round, as `head`."""
    tensors = stored(path)
    weights = {k: v for k, v in tensors.items() if v.dtype == np.float32 and v.ndim and "." in k}
    if "lm_head.weight" in weights and "transformer.wte.weight" not in weights:
        weights["transformer.wte.weight"] = weights.pop("lm_head.weight")
    nodes = [n for n in onnx.load(path, load_external_data=False).graph.node if n.op_type == "MatMul"]
    if nodes[-1].input[1] in tensors:
        weights["head"] = tensors[nodes[-1].input[1]]
    return weights


def epsilons(path: Path) -> list[float]:
    """eps of every LayerNormalization."""
    graph = onnx.load(path, load_external_data=False).graph
    return [
        a.f
        for n in graph.node
        if n.op_type == "LayerNormalization"
        for a in n.attribute
        if a.name == "epsilon"
    ]
