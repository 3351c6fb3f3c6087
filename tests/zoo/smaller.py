"""The torch module that a halved model should be: of a smaller configuration, with the halved file's weights.

Weights are found by their values in the source's file, so that no name of an exporter matters.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.numpy_helper
import torch
from registry import Built
from torch import nn

SIZES = (
    ("hidden_size", "n_embd", "d_model", "dim", "embedding_size", "word_embed_proj_dim"),
    ("num_attention_heads", "n_head", "n_heads", "num_heads"),
    ("intermediate_size", "n_inner", "ffn_dim", "d_ff", "hidden_dim"),
)
"""Names of the three sizes in configurations: hidden, heads and ffn."""


def smaller(built: Built) -> nn.Module:
    """A module of the same class with half of each size."""
    config = built.module.config.to_dict()
    if config.get("num_key_value_heads") == config.get("num_attention_heads"):
        config.pop("num_key_value_heads", None)
    for names in SIZES:
        config |= {n: config[n] // 2 for n in names if isinstance(config.get(n), int)}
    module = type(built.module)(type(built.module.config)(**config))
    module.config._attn_implementation = "eager"
    return module.eval().requires_grad_(False)


def load_into(module: nn.Module, made: Path, source: Path, original: nn.Module) -> list[str]:
    """Give a module the weights of a file, found by what the source's file holds of the original's; what was
    not found.

    Raises ValueError where a weight has another size.
    """
    before, after = stored(source), stored(made)
    places = {(w.shape, w.tobytes()): name for name, w in before.items()}
    lacking = []
    known = dict(original.named_parameters())
    for name, parameter in module.named_parameters():
        old = known[name].numpy()
        here = places.get((old.shape, old.tobytes()))
        turned = places.get((old.T.shape, np.ascontiguousarray(old.T).tobytes()))
        value = after.get(here or "", None) if here else after[turned].T if turned else None
        if value is None:
            lacking.append(name)
        elif value.shape != tuple(parameter.shape):
            raise ValueError(f"{name}: {value.shape} instead of {tuple(parameter.shape)}")
        else:
            parameter.copy_(torch.from_numpy(np.array(value)))
    return lacking


def stored(path: Path) -> dict[str, Any]:
    """All weights of a file."""
    return {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
