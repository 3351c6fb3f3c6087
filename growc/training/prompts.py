"""Soft prompts for domains: learned vectors in front of the text, without any other change of the model.

Qin et al. 2022, "ELLE": each domain has a prompt that is trained with the model on this domain's text. Later
it recalls what was learned of the domain. A prompt appears in the input as token ids behind those of the
vocabulary. So positions, masks and labels are the model's own, and a batch may mix domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

NAME = "prompts"
"""The name of the submodule under which prompts are added to an embedding table.

As a submodule, their vectors are trained, moved and saved with the model.
"""

FILLS = {"labels": -100, "attention_mask": 1, "token_type_ids": 0}
"""Values of other batch tensors at a prompt's positions: no loss, attended to, first segment."""


class SoftPrompts(nn.Module):
    """Prompts of `length` vectors for each domain, for an embedding table.

    vectors: a parameter [domains, length, width], initialised with embeddings of tokens drawn with `seed`.
    """

    def __init__(self, table: nn.Embedding, domains: Sequence[str], length: int, *, seed: int = 0) -> None:
        """Raises ValueError if a domain is named twice, if there is no domain, or if `length` is below 1."""
        super().__init__()
        if length < 1 or not domains or len(set(domains)) < len(domains):
            raise ValueError(f"no prompts of {length} vectors for the domains {list(domains)}")
        self.domains, self.length, self.first = tuple(domains), length, table.num_embeddings
        draws = torch.Generator().manual_seed(seed)
        tokens = torch.randint(self.first, (len(domains), length), generator=draws)
        with torch.no_grad():
            self.vectors = nn.Parameter(table(tokens.to(table.weight.device)).clone())
        self.handles: tuple[RemovableHandle, ...] = ()
        self._given: Tensor | None = None

    def numbers(self, domain: str) -> Tensor:
        """Return the token ids [length] of a domain's prompt. Raises ValueError for an unknown domain."""
        start = self.first + self.domains.index(domain) * self.length
        return torch.arange(start, start + self.length)

    def in_front(self, batch: Mapping[str, Tensor], domains: Sequence[str]) -> dict[str, Tensor]:
        """Return a batch with the prompt of each row's domain in front.

        `input_ids` [b, n] and the tensors of that shape become [b, length + n]. Cut the first `length`
        positions off the outputs. Raises ValueError for tensors of that shape whose value at a prompt is
        unknown.
        """
        ids = batch["input_ids"]
        prompts = torch.stack([self.numbers(domain) for domain in domains]).to(ids)
        extended = dict(batch) | {"input_ids": torch.cat([prompts, ids], 1)}
        for name, tensor in batch.items():
            if name in FILLS:
                extended[name] = torch.cat(
                    [torch.full_like(prompts, FILLS[name], dtype=tensor.dtype), tensor], 1
                )
            elif name != "input_ids" and tensor.shape == ids.shape:
                raise ValueError(f"nobody knows what `{name}` has in front of a prompt's text")
        return extended

    def look_up(self, table: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Pre-hook of the table: look up another token where a prompt stands."""
        self._given = args[0]
        return (torch.where(args[0] < self.first, args[0], 0), *args[1:])

    def put_in(self, table: nn.Module, args: tuple[Tensor, ...], embedded: Tensor) -> Tensor:
        """Hook of the table: insert a prompt's vectors where it stands.

        They get a gradient in every batch.
        """
        if self._given is None:
            raise RuntimeError("the table was called without its prompts")
        place = self._given - self.first
        self._given = None
        vectors = self.vectors.flatten(0, 1)[place.clamp(min=0)].to(embedded.dtype)
        return torch.where((place >= 0).unsqueeze(-1), vectors, embedded)


def plant(table: nn.Embedding, prompts: SoftPrompts) -> None:
    """Make an embedding table accept the ids of prompts.

    `model.get_input_embeddings()` is that of transformers.

    Inputs without a prompt are computed as before, bit by bit. Raises ValueError if the table has prompts
    already.
    """
    if hasattr(table, NAME):
        raise ValueError(f"the table has a part `{NAME}`: remove its prompts first")
    table.add_module(NAME, prompts)
    hooks = table.register_forward_pre_hook(prompts.look_up), table.register_forward_hook(prompts.put_in)
    prompts.handles = hooks


def remove(table: nn.Embedding) -> SoftPrompts:
    """Remove the prompts from a table, which is then as it was: no hook and no parameter is left."""
    prompts = getattr(table, NAME, None)
    if not isinstance(prompts, SoftPrompts):
        raise ValueError("the table has no prompts")
    for handle in prompts.handles:
        handle.remove()
    prompts.handles = ()
    delattr(table, NAME)
    return prompts
