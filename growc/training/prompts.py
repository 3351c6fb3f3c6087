"""Soft prompts for domains: learned vectors in front of the text, which leave a model as it was.

Qin et al. 2022, "ELLE": each domain has a prompt that is trained with the model on this domain's text, and
later calls up what was learned of it. A prompt stands in the input as numbers behind those of the vocabulary,
so that positions, masks and labels are the model's own, and a batch may mix domains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn
from torch.utils.hooks import RemovableHandle

NAME = "prompts"
"""As which part of its table a prompt is planted: its vectors are trained, moved and saved with the model."""

FILLS = {"labels": -100, "attention_mask": 1, "token_type_ids": 0}
"""What other tensors of a batch hold in front: no loss, seen by all, of the first text."""


class SoftPrompts(nn.Module):
    """Prompts of `length` vectors for each domain, for a table of embeddings.

    vectors: a parameter [domains, length, width], which begins as embeddings of tokens drawn with `seed`.
    """

    def __init__(self, table: nn.Embedding, domains: Sequence[str], length: int, *, seed: int = 0) -> None:
        """Raises ValueError where a domain is named twice, or there is none, or no vector."""
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
        """The numbers [length] that stand for a domain's prompt in an input. Raises ValueError for others."""
        start = self.first + self.domains.index(domain) * self.length
        return torch.arange(start, start + self.length)

    def in_front(self, batch: Mapping[str, Tensor], domains: Sequence[str]) -> dict[str, Tensor]:
        """A batch of `input_ids` [b, n], and of what goes with them, with the prompt of each row's domain.

        All become [b, length + n]; cut the first `length` places off the outputs. Raises ValueError for
        tensors of that shape of which nobody knows what a prompt has in them.
        """
        ids = batch["input_ids"]
        prompts = torch.stack([self.numbers(domain) for domain in domains]).to(ids)
        longer = dict(batch) | {"input_ids": torch.cat([prompts, ids], 1)}
        for name, tensor in batch.items():
            if name in FILLS:
                longer[name] = torch.cat(
                    [torch.full_like(prompts, FILLS[name], dtype=tensor.dtype), tensor], 1
                )
            elif name != "input_ids" and tensor.shape == ids.shape:
                raise ValueError(f"nobody knows what `{name}` has in front of a prompt's text")
        return longer

    def look_up(self, table: nn.Module, args: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """In front of the table: it looks another token up where a prompt stands."""
        self._given = args[0]
        return (torch.where(args[0] < self.first, args[0], 0), *args[1:])

    def put_in(self, table: nn.Module, args: tuple[Tensor, ...], made: Tensor) -> Tensor:
        """Behind the table: a prompt's vectors where it stands. They have a gradient in every batch."""
        if self._given is None:
            raise RuntimeError("the table was called without its prompts")
        place = self._given - self.first
        self._given = None
        vectors = self.vectors.flatten(0, 1)[place.clamp(min=0)].to(made.dtype)
        return torch.where((place >= 0).unsqueeze(-1), vectors, made)


def plant(table: nn.Embedding, prompts: SoftPrompts) -> None:
    """Let a table know the numbers of prompts. `model.get_input_embeddings()` is transformers' table.

    What has no prompt in it is computed as before, bit by bit. Raises ValueError where some are planted.
    """
    if hasattr(table, NAME):
        raise ValueError(f"the table has a part `{NAME}`: remove its prompts first")
    table.add_module(NAME, prompts)
    hooks = table.register_forward_pre_hook(prompts.look_up), table.register_forward_hook(prompts.put_in)
    prompts.handles = hooks


def remove(table: nn.Embedding) -> SoftPrompts:
    """Take the prompts off a table, which is then as it was: no hook and no parameter is left."""
    prompts = getattr(table, NAME, None)
    if not isinstance(prompts, SoftPrompts):
        raise ValueError("the table has no prompts")
    for handle in prompts.handles:
        handle.remove()
    prompts.handles = ()
    delattr(table, NAME)
    return prompts
