"""`subclone kv_heads to N by mean` where one projection makes queries, keys and values head by head."""

from __future__ import annotations

import math
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from judging import run
from models import stored
from torch import Tensor, nn

import growc

HEADS, GROUPS, DEPTH, WIDTH = 4, 2, 6, 12

Parts = tuple[Tensor, Tensor, Tensor]


def three(x: Tensor) -> Parts:
    return tuple(x.unflatten(-1, (3, HEADS, DEPTH)).permute(2, 0, 3, 1, 4))


def three_in_a_head(x: Tensor) -> Parts:
    q, k, v = (x.unflatten(-1, (HEADS, 3, DEPTH))[..., i, :].transpose(1, 2) for i in range(3))
    return q, k, v


def channels_of_a_head(x: Tensor) -> Parts:
    q, k, v = x.unflatten(-1, (HEADS, 3 * DEPTH)).transpose(1, 2).chunk(3, -1)
    return q, k, v


def two_halves(x: Tensor) -> Parts:
    """Each half has queries, values and keys, in this order, of half of the heads."""
    q, v, k = x.unflatten(-1, (2, -1)).chunk(3, -1)
    q, k, v = (t.unflatten(-1, (HEADS // 2, DEPTH)).flatten(2, 3).transpose(1, 2) for t in (q, k, v))
    return q, k, v


def groups(x: Tensor) -> Parts:
    """Each group has its queries, its key and its value."""
    x = x.unflatten(-1, (GROUPS, HEADS // GROUPS + 2, DEPTH))
    q, k, v = x[..., :-2, :].flatten(2, 3), x[..., -2, :], x[..., -1, :]
    return q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)


def with_the_batch(x: Tensor) -> Parts:
    """Heads are never alone: the batch stands in front of them at once."""
    rows = x.shape[0]
    x = x.transpose(0, 1).unflatten(-1, (3, -1)).permute(2, 0, 1, 3)
    q, k, v = (t.reshape(t.shape[0], rows * HEADS, DEPTH).transpose(0, 1) for t in x)
    return q, k, v


LAYOUTS = (three, three_in_a_head, channels_of_a_head, two_halves, groups, with_the_batch)


class Attention(nn.Module):
    def __init__(self, unpack: Callable[[Tensor], Parts]) -> None:
        super().__init__()
        self.unpack, keys = unpack, GROUPS if unpack is groups else HEADS
        self.packed = nn.Linear(WIDTH, (HEADS + 2 * keys) * DEPTH)
        self.out = nn.Linear(HEADS * DEPTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.unpack(self.packed(x))
        if self.unpack is groups:
            k, v = (t.repeat_interleave(HEADS // GROUPS, 1) for t in (k, v))
        context = (q @ k.transpose(-1, -2) / math.sqrt(DEPTH)).softmax(-1) @ v
        if self.unpack is with_the_batch:
            context = context.unflatten(0, (-1, HEADS))
        return self.out(context.transpose(1, 2).flatten(2))


def module(unpack: Callable[[Tensor], Parts]) -> Attention:
    torch.manual_seed(4)
    return Attention(unpack).eval().requires_grad_(False)


def equalised(source: Attention, left: int) -> Attention:
    """The same with one mean for all keys, and for all values, of a group."""
    rows = torch.arange(source.packed.out_features, dtype=torch.float64)[None, None]
    for part in source.unpack(rows)[1:]:
        for group in part.long().reshape(left, -1, DEPTH):
            for tensor in (source.packed.weight, source.packed.bias):
                tensor[group] = tensor[group].mean(0, keepdim=True).expand_as(tensor[group])
    return source


@pytest.mark.sampled(7)
@pytest.mark.parametrize("dynamo", [False, True], ids=["torchscript", "dynamo"])
@pytest.mark.parametrize("unpack", LAYOUTS, ids=lambda layout: layout.__name__)
def test_packed_heads_come_apart_and_become_means(
    tmp_path: Path, unpack: Callable[[Tensor], Parts], dynamo: bool
) -> None:
    source = module(unpack)
    x = torch.randn(3, 5, WIDTH, generator=torch.Generator().manual_seed(1))
    options = (
        {"dynamic_shapes": ({0: "batch", 1: "seq"},)}
        if dynamo
        else {"dynamic_axes": {"x": {0: "batch", 1: "seq"}}}
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            source, (x,), tmp_path / "m.onnx", input_names=["x"], dynamo=dynamo, opset_version=18, **options
        )
    left = 1 if unpack is groups else 2
    done = growc.apply(
        f"subclone kv_heads to {left} by mean", tmp_path / "m.onnx", tmp_path / "out.onnx", check=False
    )
    wanted = equalised(module(unpack), left)(x).numpy()
    [found] = run(done.written, {"x": x.numpy()}).values()
    assert np.abs(found - wanted).max() <= 2e-6 * np.abs(wanted).max()
    roles = growc.inspect(done.written).roles
    assert (roles.sizes("kv_heads"), roles.sizes("heads")) == ([left], [HEADS])
    before, after = (
        sum(t.size for t in stored(p).values() if t.dtype == np.float32)
        for p in (tmp_path / "m.onnx", done.written)
    )
    keys = GROUPS if unpack is groups else HEADS
    assert before - after == 2 * (keys - left) * DEPTH * (WIDTH + 1)


def test_the_plan_says_where_every_row_comes_from(tmp_path: Path) -> None:
    source = module(three_in_a_head)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            source, (torch.zeros(2, 5, WIDTH),), tmp_path / "m.onnx", dynamo=False, opset_version=17
        )
    done = growc.apply(
        "subclone kv_heads to 2 by mean", tmp_path / "m.onnx", tmp_path / "out.onnx", check=False
    )
    [bias] = [w for w in done.plan.weights if w.source == "packed.bias"]
    rows = np.arange(3 * HEADS * DEPTH)
    order = rows.reshape(HEADS, 3, DEPTH).swapaxes(0, 1).reshape(-1)
    assert (bias.steps[0].layout.as_map().index == order).all()
    assert (
        stored(done.written)["packed.bias"][: HEADS * DEPTH]
        == source.packed.bias.numpy()[order[: HEADS * DEPTH]]
    ).all()


def test_without_means_packed_heads_stay_as_they_are(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(
            module(three), (torch.zeros(2, 5, WIDTH),), tmp_path / "m.onnx", dynamo=False, opset_version=17
        )
    done = growc.apply(
        "widen heads to 6 with neighbor copy\nexpect exact", tmp_path / "m.onnx", tmp_path / "out.onnx"
    )
    before, after = (
        Counter(n.op_type for n in onnx.load(p).graph.node) for p in (tmp_path / "m.onnx", done.written)
    )
    for operator in ("Split", "Transpose", "Gather", "Expand", "MatMul"):
        assert before[operator] >= after[operator]
