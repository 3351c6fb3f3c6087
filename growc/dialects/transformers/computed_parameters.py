"""Parameters that no file holds: a class of transformers computes them itself, each time that it is loaded.

Sinusoids that are parameters are such. They are handled as what they are, constants of the class.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

import torch
from torch import Tensor, nn

SEEDS = (0, 1)
"""What is computed is the same with each."""


def unstored(module: Any, names: Collection[str]) -> list[str]:
    """Which of these tensors, that a file lacks, the class computes when it is loaded: none at random."""
    patterns = [re.compile(pattern) for pattern in module._keys_to_ignore_on_load_missing or ()]
    given = [name for name in names if any(pattern.search(name) for pattern in patterns)]
    return [name for name in given if torch.equal(*(_initial(module, name, seed) for seed in SEEDS))]


def compute(module: Any, name: str, *, constants: bool) -> None:
    """Let a tensor of the state be a buffer that no state dict holds.

    constants: it has the value that the class computes, and is on meta otherwise.
    """
    owner, leaf = _place(module, name)
    value = _initial(module, name, SEEDS[0]) if constants else getattr(owner, leaf).detach().to("meta")
    delattr(owner, leaf)
    owner.register_buffer(leaf, value, persistent=False)


def _initial(module: Any, name: str, seed: int) -> Tensor:
    """What the class gives a new tensor."""
    owner, leaf = _place(module, name)
    held: dict[str, Any] = owner._parameters if leaf in owner._parameters else owner._buffers
    before = held[leaf]
    assert before is not None, name
    made = torch.empty_like(before, device="cpu")
    held[leaf] = nn.Parameter(made, requires_grad=False) if isinstance(before, nn.Parameter) else made
    try:
        with torch.random.fork_rng(devices=()):
            torch.manual_seed(seed)
            made.uniform_() if made.is_floating_point() else made.random_()
            module._init_weights(owner)
        found: Tensor = held[leaf]
        return found.detach()
    finally:
        held[leaf] = before


def _place(module: Any, name: str) -> tuple[nn.Module, str]:
    path, _, leaf = name.rpartition(".")
    return module.get_submodule(path), leaf
