"""Vectors of pictures in the places of their tokens, by `masked_scatter`."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

import growc
from growc.dialects.torch.model import TorchModel

WIDTH, PICTURE = 8, 3
IDS = torch.tensor([[6, PICTURE, 5, PICTURE, 1], [PICTURE, 4, 4, 2, PICTURE]])
SEEN = torch.randn(4, 6, generator=torch.Generator().manual_seed(0))
KINDS = [(True, "rows"), (False, "rows"), (True, "apart"), (True, "flat"), (False, "flat")]


class Seeing(nn.Module):
    def __init__(self, stretched: bool, shaped: str) -> None:
        super().__init__()
        self.stretched, self.shaped = stretched, shaped
        self.embedding, self.project = nn.Embedding(9, WIDTH), nn.Linear(6, WIDTH)
        self.norm, self.up, self.down = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, 12), nn.Linear(12, WIDTH)
        self.head = nn.Linear(WIDTH, 5)

    def forward(self, ids: Tensor, seen: Tensor) -> Tensor:
        x = self.embedding(ids)
        mask = (ids == PICTURE).unsqueeze(-1)
        vectors = self.project(seen)
        vectors = {"rows": vectors, "apart": vectors[:, None], "flat": vectors.flatten()}[self.shaped]
        x = x.masked_scatter(mask.expand_as(x) if self.stretched else mask, vectors)
        x = x + self.down(torch.relu(self.up(self.norm(x))))
        return self.head(x)


def seeing(*kind: Any) -> nn.Module:
    torch.manual_seed(0)
    module = Seeing(*kind).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 1.0 if parameter.ndim == 1 else 0.0, 0.5)
    return module


@pytest.mark.parametrize("kind", KINDS)
def test_the_stream_grows_with_what_stands_in_its_places(kind):
    source = seeing(*kind)
    recipe = "widen hidden to 16 with average fill\nwiden ffn to 18 with cyclic copy\nexpect exact"
    result = growc.apply(source, recipe, {"ids": IDS, "seen": SEEN})
    assert result.state_dict()["project.weight"].shape == (16, 6)
    others = {"ids": IDS.flip(1), "seen": SEEN * 2}
    with torch.no_grad():
        for feed in ({"ids": IDS, "seen": SEEN}, others):
            torch.testing.assert_close(result(**feed), source(**feed), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", KINDS)
def test_onnxruntime_puts_the_same_vectors_there(kind, tmp_path):
    source = seeing(*kind)
    model = TorchModel.of(source, {"ids": IDS, "seen": SEEN})
    session = onnxruntime.InferenceSession(model.file(tmp_path))
    for ids in (IDS, IDS.flip(1)):
        [found] = session.run(None, {"ids": ids.numpy(), "seen": SEEN.numpy()})
        np.testing.assert_allclose(found, source(ids, SEEN).detach().numpy(), rtol=1e-4, atol=1e-4)
