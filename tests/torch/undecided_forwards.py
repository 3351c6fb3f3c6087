"""Modules whose forwards ask for values, beside the tests: pytest would rewrite their assertions there."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn


class Reading(nn.Module):
    """Token numbers to one number each; `config` says what a class of transformers would."""

    main_input_name = "input_ids"

    def __init__(self, **fields) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(6, 4), nn.Linear(4, 1)
        self.config = SimpleNamespace(to_dict=lambda: fields)

    def get_input_embeddings(self) -> nn.Module:
        return self.table

    def read(self, ids: torch.Tensor) -> torch.Tensor:
        return self.head(self.table(ids))

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        return self.read(input_ids)


class Asserting(Reading):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        assert input_ids.max().item() <= 5
        assert not (input_ids < 0).any()
        assert input_ids.min() >= 0 and (input_ids < 6).all(), "numbers of the table alone"  # noqa: PT018 - two jumps
        return self.read(input_ids)


class Branching(Reading):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        if (input_ids == 0).any():
            return self.read(input_ids) + 1
        return self.read(input_ids)


class Checking(Reading):
    """A branch that only looks like an assertion: its outcome is used."""

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        found = bool((input_ids == 0).any())
        assert isinstance(found, bool)
        return self.read(input_ids) + (1 if found else 0)


class Looping(Reading):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        made = self.read(input_ids)
        for row in (input_ids == 1).nonzero():
            made = made + row.sum()
        return made


class Converting(Reading):
    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        self.head = self.head.to(torch.float32)
        return self.read(input_ids)


class Hooking(Reading):
    """Its first forward lets a part tell what it makes, and keeps that it did."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[torch.Tensor] = []

    def forward(self, input_ids: torch.Tensor) -> torch.Tensor:
        if not hasattr(self, "hooked"):
            self.table.register_forward_hook(lambda part, given, made: self.told.append(made))
            self.hooked = True
        self.read(input_ids)
        made = torch.stack(self.told).sum(0)
        self.told.clear()
        return made


class Decoding(Reading):
    """A mask that is not given is made, or not, by what the data are."""

    def forward(
        self,
        input_ids: torch.Tensor,
        decoder_input_ids: torch.Tensor,
        decoder_attention_mask: torch.Tensor | None = None,
    ) -> torch.Tensor:
        if decoder_attention_mask is None:
            padded = decoder_input_ids.eq(0)
            decoder_attention_mask = 1 - padded.long() if padded.any() else torch.ones_like(decoder_input_ids)
        return self.read(input_ids).sum(1) + self.read(decoder_input_ids).squeeze(-1) * decoder_attention_mask
