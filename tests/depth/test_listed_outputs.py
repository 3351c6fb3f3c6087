"""Lists of what stands between layers, which a model gives out: they have what the result's layers have."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from graphs import save
from judging import draw, run
from onnx.numpy_helper import to_array
from torch import nn

import growc
from growc import api

WIDTH = 8


class Net(nn.Module):
    """`kept`: what is given out beside the stream: what layers take, what they make, or all of it."""

    def __init__(self, layers: int, kept: str) -> None:
        super().__init__()
        self.kept = kept
        self.into = nn.Linear(5, WIDTH)
        self.up = nn.ModuleList([nn.Linear(WIDTH, 12) for _ in range(layers)])
        self.down = nn.ModuleList([nn.Linear(12, WIDTH) for _ in range(layers)])
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
        x, found = self.into(x), []
        for up, down in zip(self.up, self.down, strict=True):
            if self.kept in ("taken", "all"):
                found.append(x[:, -4:].detach())
            x = x + down(torch.relu(up(x)))
            if self.kept == "made":
                found.append(x)
        if self.kept == "all":
            found.append(x[:, -4:].detach())
        return self.norm(x), found, x.sum()


def rebuilt(net: Net, layers: list[int]) -> Net:
    made = Net(len(layers), net.kept).eval()
    for k, layer in enumerate(layers):
        for name in ("up", "down"):
            getattr(made, name)[k].load_state_dict(getattr(net, name)[layer].state_dict())
    made.into.load_state_dict(net.into.state_dict())
    return made


INPUT = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(3))


@pytest.mark.sampled(4)
@pytest.mark.parametrize("kept", ["taken", "made", "all"])
@pytest.mark.parametrize("layers", [[0], [1, 2], [0, 1, 1, 2], [2, 0]])
def test_what_layers_take_or_make_goes_with_them(kept, layers):
    torch.manual_seed(0)
    net = Net(3, kept).eval()
    recipe = f"arrange layers as {', '.join(map(str, layers))}"
    made, wanted = growc.apply(net, recipe, example_inputs=(INPUT,), check=False), rebuilt(net, layers)
    torch.testing.assert_close(made(INPUT), wanted(INPUT))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("kept", ["taken", "made"])
def test_new_layers_that_add_nothing_list_the_stream_again(kept):
    torch.manual_seed(0)
    net = Net(2, kept).eval()
    recipe = "stack layers to 4 by each with zero outputs\nexpect exact"
    made = growc.apply(net, recipe, example_inputs=(INPUT,))
    (out, listed, _), (before, kept_before, _) = made(INPUT), net(INPUT)
    torch.testing.assert_close(out, before)
    assert len(listed) == 4
    order = [0, 1, 1] if kept == "taken" else [0, 0, 1, 1]
    torch.testing.assert_close(listed[: len(order)], [kept_before[k] for k in order])


FILE = """
listed (float[N, 5] i) => ({outputs}, float[N, 3] y)
<float[5, 8] into, float[8, 3] columns, {weights}>
{{
    x0 = MatMul(i, into)
{layers}
    y = MatMul(x{n}, columns)
}}
"""

LAYER = """
    up{k} = MatMul(x{k}, rows{k})
    r{k} = Relu(up{k})
    b{k} = MatMul(r{k}, one{k})
    x{n} = Add(x{k}, b{k})
"""


def file(path: Path, given: Sequence[int], layers: int, **weights: np.ndarray) -> Path:
    """A model whose outputs are the stream itself, at these places."""
    text = FILE.format(
        n=layers,
        outputs=", ".join(f"float[N, 8] x{k}" for k in given),
        weights=", ".join(f"float[8, 12] rows{k}, float[12, 8] one{k}" for k in range(layers)),
        layers="".join(LAYER.format(k=k, n=k + 1) for k in range(layers)),
    )
    return save(path, text, **weights)


@pytest.mark.parametrize("kept", ["taken", "made", "all"])
@pytest.mark.parametrize("layers", [[0], [1, 2], [0, 1, 1, 2], [2, 0]])
def test_the_stream_itself_is_listed_by_files(tmp_path, kept, layers):
    first, more = int(kept == "made"), int(kept != "taken")
    model, out = file(tmp_path / "source.onnx", range(first, 3 + more), 3), tmp_path / "result.onnx"
    api.apply(f"arrange layers as {', '.join(map(str, layers))}", model, out, check=False)
    stored = {w.name: to_array(w) for w in onnx.load(model).graph.initializer}
    own = {f"{n}{k}": stored[f"{n}{layer}"] for k, layer in enumerate(layers) for n in ("rows", "one")}
    count = len(layers)
    wanted = file(
        tmp_path / "wanted.onnx",
        range(first, count + more),
        count,
        into=stored["into"],
        columns=stored["columns"],
        **own,
    )
    onnx.checker.check_model(onnx.load(out), full_check=True)
    feeds = draw(model, 3)
    found, there = list(run(out, feeds).values()), list(run(wanted, feeds).values())
    assert len(found) == len(onnx.load(out).graph.output) == len(there)
    for one, other in zip(found, there, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_two_outputs_that_become_one_value_stay_two(tmp_path):
    model, out = file(tmp_path / "source.onnx", [1, 2], 3), tmp_path / "result.onnx"
    api.apply("drop layers 1", model, out, check=False)
    onnx.checker.check_model(onnx.load(out), full_check=True)
    found = run(out, draw(model, 3))
    assert len(found) == 3
    first, second, _ = found.values()
    np.testing.assert_array_equal(first, second)
