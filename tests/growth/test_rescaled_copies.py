"""`rescaled copy` keeps the RMS of activations and not the function, in modules and files."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from graphs import MLP, STREAM, TINY, save
from judging import judge, run
from onnx.numpy_helper import to_array
from torch import nn

import growc
from growc import api
from growc.errors.diagnostic import GrowError

HIDDEN, HEADS, FFN, VOCAB = 96, 6, 192, 64
TOKENS = torch.randint(0, VOCAB, (8, 24), generator=torch.Generator().manual_seed(3))


class RMSNorm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x):
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.weight


class Layer(nn.Module):
    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.norm1, self.norm2 = norm(HIDDEN), norm(HIDDEN)
        self.q, self.k, self.v, self.o = (nn.Linear(HIDDEN, HIDDEN) for _ in range(4))
        self.up, self.down = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

    def forward(self, x):
        n = self.norm1(x)
        heads = [
            p(n).unflatten(-1, (HEADS, HIDDEN // HEADS)).transpose(1, 2) for p in (self.q, self.k, self.v)
        ]
        scores = heads[0] @ heads[1].transpose(-1, -2) * (HIDDEN // HEADS) ** -0.5
        x = x + self.o((scores.softmax(-1) @ heads[2]).transpose(1, 2).flatten(2))
        return x + self.down(torch.relu(self.up(self.norm2(x))))


class Decoder(nn.Module):
    """A residual stream of two layers; it gives the stream behind each, and logits."""

    def __init__(self, norm: type[nn.Module]) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, HIDDEN)
        self.layers = nn.ModuleList(Layer(norm) for _ in range(2))
        self.norm, self.head = norm(HIDDEN), nn.Linear(HIDDEN, VOCAB, bias=False)

    def forward(self, tokens):
        states = [self.table(tokens)]
        for layer in self.layers:
            states.append(layer(states[-1]))
        return *states, self.head(self.norm(states[-1]))


class Perceptron(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(HIDDEN, FFN), nn.Linear(FFN, HIDDEN)

    def forward(self, x):
        a = self.first(x)
        return a, self.second(torch.relu(a))


def drawn(module: nn.Module) -> nn.Module:
    """The module with weights of the size that keeps activations, and gains and biases that are drawn too."""
    torch.manual_seed(1)
    for name, parameter in module.named_parameters():
        fan = parameter.shape[-1] if parameter.ndim > 1 and "table" not in name else 1
        spread = fan**-0.5 if parameter.ndim > 1 else 0.2
        nn.init.normal_(parameter, float("norm" in name and name.endswith("weight")), spread)
    return module.eval()


def rms(values) -> float:
    return float(np.sqrt(np.mean(np.square(np.asarray(values, dtype=np.float64)))))


def exported(module: nn.Module, example: torch.Tensor, path: Path) -> Path:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(module, (example,), path, input_names=["x"], dynamo=False)
    return path


RECIPES = [
    "widen ffn to 2 * ffn with rescaled copy",
    "widen ffn to 5 * ffn / 3 with rescaled copy",
    "widen heads to 2 * heads with rescaled copy\nwiden ffn to 5 * ffn with rescaled copy",
    "widen hidden to 2 * hidden with rescaled copy",
    "widen hidden to 4 * hidden / 3 with rescaled copy\nwiden heads to 4 * heads / 3 with rescaled copy\n"
    "widen ffn to 3 * ffn / 2 with rescaled copy",
]


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("norm", [nn.LayerNorm, RMSNorm])
@pytest.mark.parametrize("form", ["module", "file"])
def test_the_stream_of_a_decoder_keeps_its_rms(tmp_path, norm, recipe, form):
    module = drawn(Decoder(norm))
    with torch.no_grad():
        before = module(TOKENS)
    if form == "module":
        result = growc.apply(module, recipe, (TOKENS,), check=False)
        certificate = result.plan.certificate
        with torch.no_grad():
            after = result(TOKENS)
    else:
        path = exported(module, TOKENS, tmp_path / "m.onnx")
        certificate = api.apply(recipe, path, tmp_path / "out.onnx", check=False).plan.certificate
        after = list(run(tmp_path / "out.onnx", {"x": TOKENS.numpy()}).values())
    assert not certificate.exact
    assert any("so that the RMS of what it makes is kept" in gap.cause for gap in certificate.gaps)
    for a, b in zip(before, after, strict=True):
        assert rms(b) == pytest.approx(rms(a), rel=0.1)
    assert np.abs(np.asarray(after[-1]) - before[-1].numpy()).max() > 0.1


@pytest.mark.parametrize("size", [2 * FFN, 5 * FFN // 3, FFN + 1, 7 * FFN])
@pytest.mark.parametrize("form", ["module", "file"])
def test_a_perceptron_keeps_its_rms(tmp_path, size, form):
    module, x = drawn(Perceptron()), torch.randn(64, HIDDEN, generator=torch.Generator().manual_seed(2))
    recipe = f'widen axis 0 of "first.weight" to {size} with rescaled copy'
    with torch.no_grad():
        before = module(x)
        if form == "module":
            after = growc.apply(module, recipe, (x,), check=False)(x)
        else:
            path = exported(module, x, tmp_path / "m.onnx")
            api.apply(recipe, path, tmp_path / "out.onnx", check=False)
            after = list(run(tmp_path / "out.onnx", {"x": x.numpy()}).values())
    for a, b in zip(before, after, strict=True):
        assert rms(b) == pytest.approx(rms(a), rel=0.08)


def weights(path: Path) -> dict[str, np.ndarray]:
    return {w.name: to_array(w) for w in onnx.load(path).graph.initializer}


@pytest.mark.parametrize("size", [16, 13, 40])
def test_first_copies_keep_their_columns_and_others_are_drawn(tmp_path, size):
    path, factor = save(tmp_path / "m.onnx", MLP), np.sqrt(8 / size)
    api.apply(
        f'widen axis 1 of "fc1_weight" to {size} with rescaled copy', path, tmp_path / "out.onnx", check=False
    )
    old, new = weights(path), weights(tmp_path / "out.onnx")
    for name in ("fc1_weight", "fc1_bias"):
        assert np.array_equal(new[name], old[name][..., np.arange(size) % 8])
    np.testing.assert_allclose(new["fc2_weight"][:8], factor * old["fc2_weight"], rtol=1e-6)
    beside = new["fc2_weight"][8:]
    assert np.unique(beside).size == beside.size
    assert beside.std() == pytest.approx(factor * old["fc2_weight"].std(), rel=4 / np.sqrt(2 * beside.size))
    assert np.array_equal(new["fc2_bias"], old["fc2_bias"])


def test_a_stream_keeps_its_units_unweighted_in_front_of_rms_norms(tmp_path):
    module = drawn(Decoder(RMSNorm))
    result = growc.apply(module, "widen hidden to 120 with rescaled copy", (TOKENS,), check=False)
    table = result.state_dict()["table.weight"]
    assert torch.equal(table, module.table.weight[:, torch.arange(120) % HIDDEN])
    assert torch.equal(result.state_dict()["norm.weight"], module.norm.weight[torch.arange(120) % HIDDEN])


def test_scores_stay_where_the_channels_of_heads_become_more(tmp_path):
    judged = judge("widen head_dim to 24 with rescaled copy", TINY, tmp_path / "out.onnx")
    assert "so that the RMS" in judged.causes
    assert "two activations" not in judged.causes


def test_a_tied_head_stays_tied_and_keeps_its_logits(tmp_path):
    path = save(tmp_path / "m.onnx", STREAM)
    api.apply("widen hidden to 16 with rescaled copy", path, tmp_path / "out.onnx", check=False)
    made = weights(tmp_path / "out.onnx")
    assert np.array_equal(made["table"][:, 8:], made["table"][:, :8])


@pytest.mark.parametrize(
    "recipe",
    [
        "widen ffn to 500 with rescaled copy with zero outputs",
        "widen vocab to 300 with rescaled copy",
    ],
)
def test_rescaled_copies_that_no_weight_reads_are_exact(tmp_path, recipe):
    judge(recipe, TINY, tmp_path / "out.onnx").assert_exact()


@pytest.mark.parametrize("option", ["split random", "noise 0.1 balanced", "noise 0.1 on copies"])
def test_options_about_shares_are_refused_where_there_are_none(option):
    with pytest.raises(GrowError, match="needs a `… copy` fill or `average fill`") as refused:
        growc.plan(f"widen ffn to 500 with rescaled copy {option}", TINY)
    assert refused.value.diagnostics[0].code == "G204"
