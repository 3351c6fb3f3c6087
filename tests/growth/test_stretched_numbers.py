"""Numbers that are stretched along an axis which grows: a window of each query, the same for every head."""

from __future__ import annotations

import numpy as np
import onnxruntime
import pytest
import torch
from torch import Tensor, nn

from growc import api

HEADS, WIDTH = 4, 32
WIDER = "widen heads to 2 * heads with neighbor copy\nexpect exact"
FEWER = "subclone heads to heads / 2 by magnitude unscaled"
X = torch.randn(2, 6, WIDTH, generator=torch.Generator().manual_seed(0))


class Windowed(nn.Module):
    """Attention in which each query always sees the place of its own block, by numbers for all heads."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: Tensor) -> Tensor:
        rows, length, _ = x.shape
        q, k, v = (
            one(x).view(rows, length, -1, WIDTH // HEADS).transpose(1, 2) for one in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(-1, -2)
        own = torch.arange(length)[None, None, :, None].expand(rows, scores.shape[1], -1, 1)
        weights = scores.scatter(-1, own // 2, 3.0).softmax(-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


@pytest.fixture
def source() -> nn.Module:
    torch.manual_seed(0)
    module = Windowed().eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, 0.0, 0.4)
    return module


def without(source: nn.Module, kept: list[int]) -> Tensor:
    """The source's output with the values of all other heads at zero."""
    gone = [head for head in range(HEADS) if head not in kept]
    with torch.no_grad():
        for held in (source.v.weight, source.v.bias):
            held.view(HEADS, WIDTH // HEADS, -1)[gone] = 0.0
        return source(X)


def test_a_module_lays_them_out_for_all_heads(source):
    result = api.grow(source, WIDER, (X,))
    assert result.state_dict()["q.weight"].shape == (2 * WIDTH, WIDTH)
    with torch.no_grad():
        torch.testing.assert_close(result(X), source(X), rtol=1e-4, atol=1e-4)


def test_a_module_lays_them_out_for_the_heads_that_stay(source):
    result = api.grow(source, FEWER, (X,))
    steps = next(w for w in result.plan.weights if w.name == "v.bias").steps
    kept = sorted(set((steps[0].layout.as_map().index // (WIDTH // HEADS)).tolist()))
    assert len(kept) == HEADS // 2
    with torch.no_grad():
        torch.testing.assert_close(result(X), without(source, kept), rtol=1e-4, atol=1e-4)


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_file_lays_them_out_for_all_heads(source, tmp_path):
    paths = tmp_path / "source.onnx", tmp_path / "grown.onnx"
    torch.onnx.export(source, (X,), paths[0], input_names=["x"], dynamo=False)
    api.apply(WIDER, *paths)
    ours, theirs = (onnxruntime.InferenceSession(path).run(None, {"x": X.numpy()})[0] for path in paths)
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-4)
