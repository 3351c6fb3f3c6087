"""Modules whose key/value heads are repeated for their groups by calls that they did not have."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from growc import api
from growc.dialects.torch.capture.export import export
from growc.dialects.torch.emit.emit import grown_module
from growc.dialects.torch.model import TorchModel, reader
from growc.formats.compiler import outside
from growc.passes import PIPELINE, run
from growc.passes.compilation import Source

HEADS, DEPTH, WIDTH = 4, 8, 32
IDS = torch.tensor([[3, 7, 1, 30, 2], [5, 5, 0, 11, 39]])


class Decoder(nn.Module):
    """Two layers of attention, by one operator or by products, and nothing else.

    stretched: one head for all queries stands there for each of them.
    """

    def __init__(self, kv_heads: int = HEADS, whole: bool = False, stretched: bool = False) -> None:
        super().__init__()
        self.kv_heads, self.whole, self.stretched = kv_heads, whole, stretched
        self.embedding, self.head = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 40)
        sizes = {"q": (WIDTH, HEADS * DEPTH), "o": (HEADS * DEPTH, WIDTH)}
        sizes |= dict.fromkeys("kv", (WIDTH, kv_heads * DEPTH))
        self.layers = nn.ModuleList(
            nn.ModuleDict({name: nn.Linear(*size) for name, size in sizes.items()}) for _ in range(2)
        )
        self.dropout = nn.Dropout(0.0)

    def forward(self, ids):
        x = self.embedding(ids)
        for layer in self.layers:
            q, k, v = (layer[n](x).unflatten(-1, (-1, DEPTH)).transpose(1, 2) for n in "qkv")
            if self.kv_heads not in (1, HEADS):
                k, v = (t.repeat_interleave(HEADS // self.kv_heads, 1) for t in (k, v))
            if self.stretched:
                groups = (len(ids), self.kv_heads, HEADS // self.kv_heads, -1, DEPTH)
                k, v = (t[:, :, None].expand(groups).flatten(1, 2) for t in (k, v))
            if self.whole:
                context = F.scaled_dot_product_attention(q, k, v)
            else:
                context = self.dropout((q @ k.transpose(-1, -2) / math.sqrt(DEPTH)).softmax(-1)) @ v
            x = x + layer["o"](context.transpose(1, 2).flatten(2))
        return self.head(x)


def decoder(kv_heads: int = HEADS, whole: bool = False) -> Decoder:
    torch.manual_seed(2)
    return Decoder(kv_heads, whole).eval()


def pooled(source: Decoder, left: int) -> Decoder:
    """The module whose keys and values are the means of a source's."""
    wanted, state = decoder(left), source.state_dict()
    for name, value in state.items():
        if ".k." in name or ".v." in name:
            state[name] = value.reshape(left, -1, DEPTH, *value.shape[1:]).mean(1).flatten(0, 1)
    wanted.load_state_dict(state)
    return wanted


def repeats(module: nn.Module) -> list[object]:
    return [n.args[1] for n in module.graph.nodes if n.target is torch.ops.aten.repeat_interleave.self_int]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("left", [1, 2])
def test_heads_become_means_and_are_repeated(left, whole):
    source = decoder(whole=whole)
    made = api.grow(source, f"subclone kv_heads to {left} by mean", IDS)
    wanted = pooled(source, left)(IDS)
    assert torch.allclose(made(IDS), wanted, atol=1e-6)
    assert repeats(made) == [HEADS // left] * 4
    assert not made.missing
    assert torch.allclose(made.train()(IDS), wanted, atol=1e-6)


def test_only_the_layer_that_has_means_repeats_heads(tmp_path):
    text = "stack layers to 4 by last\nin layers 2 { subclone kv_heads to 2 by mean }"
    made = api.grow(decoder(), text, IDS)
    sizes = [len(p) for name, p in made.named_parameters() if name.endswith("k.weight")]
    assert sizes == [HEADS * DEPTH, HEADS * DEPTH, 2 * DEPTH, HEADS * DEPTH]
    assert repeats(made) == [2, 2]
    assert made(IDS).isfinite().all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("text", "times"),
    [
        ("widen kv_heads to 2 with neighbor copy", [2] * 4),
        ("widen kv_heads to 2 with neighbor copy\nwiden heads to 8 with neighbor copy", [4] * 4),
        ("widen heads to 8 with neighbor copy", []),
    ],
)
def test_one_head_for_all_queries_becomes_two(text, times):
    source = decoder(1)
    made = api.grow(source, f"{text}\nexpect exact", IDS)
    assert torch.allclose(made(IDS), source(IDS), atol=1e-5)
    assert repeats(made) == times
    assert torch.allclose(made.train()(IDS), source(IDS), atol=1e-5)


def test_one_head_that_is_stretched_becomes_two():
    torch.manual_seed(2)
    source = Decoder(1, stretched=True).eval()
    for text in ("", "widen heads to 8 with neighbor copy\n"):
        made = api.grow(source, f"{text}widen kv_heads to 2 with neighbor copy\nexpect exact", IDS)
        assert torch.allclose(made(IDS), source(IDS), atol=1e-5)
        assert repeats(made) == []


class Packed(nn.Module):
    """Attention whose queries, one key and one value come from one projection, each through a view of it."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(40, WIDTH), nn.Linear(WIDTH, 40)
        self.qkv, self.o = nn.Linear(WIDTH, (HEADS + 2) * DEPTH), nn.Linear(HEADS * DEPTH, WIDTH)

    def forward(self, ids):
        x, ends = self.embedding(ids), HEADS * DEPTH
        packed = self.qkv(x)
        q = packed[..., :ends].unflatten(-1, (-1, DEPTH)).transpose(1, 2)
        k, v = packed[:, None, :, ends : ends + DEPTH], packed[:, None, :, ends + DEPTH :]
        context = (q @ k.transpose(-1, -2) / math.sqrt(DEPTH)).softmax(-1) @ v
        return self.head(x + self.o(context.transpose(1, 2).flatten(2)))


def test_one_head_that_is_seen_twice_counts():
    torch.manual_seed(2)
    source = Packed().eval()
    plan = api.plan("widen kv_heads to 2 with neighbor copy", source, example_inputs=IDS)
    assert plan.certificate.exact
    assert [w.after for w in plan.weights if w.name == "qkv.weight"] == [((HEADS + 4) * DEPTH, WIDTH)]
    for recipe in ("widen kv_heads to 2 with neighbor copy", "widen heads to 8 with neighbor copy"):
        made = api.grow(source, f"{recipe}\nexpect exact", IDS)
        assert torch.allclose(made(IDS), source(IDS), atol=1e-5)
        assert not made.missing
        assert torch.allclose(made.train()(IDS), source(IDS), atol=1e-5)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("whole", [False, True])
def test_what_was_captured_is_grown_again_as_if_nothing_had_been(whole):
    source = decoder(whole=whole)
    captured = export(source, (IDS,))
    calls = [node.format_node() for node in captured.program.graph.nodes]
    found = []
    for recipe in ("subclone kv_heads to 2 by mean", "widen heads to 2 * heads with neighbor copy") * 2:
        model = TorchModel.open(captured, reader(source))
        c = run(PIPELINE, Source(Path("decoder"), model, outside(), api.recipe(recipe).statements))
        found.append(grown_module(c)(IDS))
        assert [node.format_node() for node in captured.program.graph.nodes] == calls
    torch.testing.assert_close(found[0], pooled(source, 2)(IDS), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[1], source(IDS), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found[2:], found[:2], rtol=0, atol=0)


@pytest.mark.parametrize(
    "recipe", ["subclone kv_heads to 2 by mean", "widen heads to 2 * heads with neighbor copy"]
)
def test_a_compilation_of_a_module_is_emitted_any_number_of_times(recipe):
    source = decoder(whole=False)
    model = TorchModel.open(export(source, (IDS,)), reader(source))
    c = run(PIPELINE, Source(Path("decoder"), model, outside(), api.recipe(recipe).statements))
    first, second = grown_module(c), grown_module(c)
    assert first._code.__code__.co_code == second._code.__code__.co_code
    torch.testing.assert_close(first.state_dict(), second.state_dict(), rtol=0, atol=0)
    torch.testing.assert_close(first(IDS), second(IDS), rtol=0, atol=0)
