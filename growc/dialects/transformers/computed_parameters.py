"""Parameters that no file holds, because a class of transformers computes them each time it is loaded.

Sinusoids stored as parameters are an example. They are treated as constants of the class.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

SEEDS = (0, 1)
"""Random seeds. A computed parameter is the same for each."""


def unstored(module: Any, names: Collection[str]) -> list[str]:
    """Return the missing tensors that the class computes without randomness when it is loaded."""
    patterns = [re.compile(pattern) for pattern in module._keys_to_ignore_on_load_missing or ()]
    candidates = [name for name in names if any(pattern.search(name) for pattern in patterns)]
    return [name for name in candidates if torch.equal(*(_initial(module, name, seed) for seed in SEEDS))]


def compute(module: Any, name: str, *, constants: bool) -> None:
    """Turn a tensor of the state into a buffer that no state dict holds.

    constants: the buffer gets the value that the class computes. Otherwise it is on meta.
    """
    owner, leaf = _place(module, name)
    value = _initial(module, name, SEEDS[0]) if constants else getattr(owner, leaf).detach().to("meta")
    delattr(owner, leaf)
    owner.register_buffer(leaf, value, persistent=False)


def _initial(module: Any, name: str, seed: int) -> Tensor:
    """Return the initial value that the class gives a tensor."""
    owner, leaf = _place(module, name)
    tensors: dict[str, Any] = owner._parameters if leaf in owner._parameters else owner._buffers
    before = tensors[leaf]
    assert before is not None, name
    fresh = torch.empty_like(before, device="cpu")
    tensors[leaf] = nn.Parameter(fresh, requires_grad=False) if isinstance(before, nn.Parameter) else fresh
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            fresh.uniform_() if fresh.is_floating_point() else fresh.random_()
            module._init_weights(owner)
        initial: Tensor = tensors[leaf]
        return initial.detach()
    finally:
        tensors[leaf] = before


def _place(module: Any, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
