"""Experts that are given the tokens that chose them: how many these are, only data tells.

Every expert in turn asks NonZero for its tokens, works on their rows, and adds what it makes to theirs: with
weights of its own, or in a Loop over the experts that were chosen at all, with weights that it looks up.
"""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import save
from judging import run
from torch import Tensor, nn
from torch.nn import functional as F

import growc
from growc import api
from growc.render.inspection import inspect_data

WIDTH, FFN, EXPERTS, VOCAB = 16, 24, 4, 32


class RootMeanSquare(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(WIDTH))

    def forward(self, x: Tensor) -> Tensor:
        return self.weight * x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-2)


class Experts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, EXPERTS, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, WIDTH)
        shares, chosen = torch.topk(F.softmax(self.router(rows), -1), 2, -1)
        mask = F.one_hot(chosen, EXPERTS).permute(2, 1, 0)
        return self.mixed(rows, mask, shares).reshape(x.shape)

    def mixed(self, rows: Tensor, mask: Tensor, shares: Tensor) -> Tensor:
        raise NotImplementedError


class Listed(Experts):
    """An expert after the other, each with weights of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.ModuleList(nn.Linear(WIDTH, FFN) for _ in range(EXPERTS))
        self.down = nn.ModuleList(nn.Linear(FFN, WIDTH) for _ in range(EXPERTS))

    def mixed(self, rows: Tensor, mask: Tensor, shares: Tensor) -> Tensor:
        out = torch.zeros_like(rows)
        for number in range(EXPERTS):
            place, token = torch.where(mask[number])
            made = self.down[number](F.silu(self.up[number](rows[token])))
            out = out.index_add(0, token, made * shares[token, place, None])
        return out


def over_chosen(rows: Tensor, mask: Tensor, shares: Tensor, up: Tensor, down: Tensor) -> Tensor:
    out = torch.zeros_like(rows)
    chosen = torch.greater(mask.sum(dim=[-1, -2]), 0).nonzero()
    for n in range(chosen.size(0)):
        number = chosen[n, 0]
        found = mask[number].nonzero()
        place, token = found[:, 0], found[:, 1]
        made = F.silu(rows[token] @ up[number]) @ down[number]
        out = out.index_add(0, token, made * shares[token, place].unsqueeze(-1))
    return out


class Looped(Experts):
    """A loop over the experts that some token chose."""

    def __init__(self) -> None:
        super().__init__()
        self.up = nn.Parameter(torch.empty(EXPERTS, WIDTH, FFN))
        self.down = nn.Parameter(torch.empty(EXPERTS, FFN, WIDTH))
        self.script = torch.jit.script(over_chosen)

    def mixed(self, rows: Tensor, mask: Tensor, shares: Tensor) -> Tensor:
        return self.script(rows, mask, shares, self.up, self.down)


class Language(nn.Module):
    def __init__(self, experts: type[Experts]) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCAB, WIDTH)
        self.mixers = nn.ModuleList(nn.Linear(WIDTH, WIDTH) for _ in range(2))
        self.experts = nn.ModuleList(experts() for _ in range(2))
        self.norms = nn.ModuleList(RootMeanSquare() for _ in range(5))
        self.head = nn.Linear(WIDTH, VOCAB, bias=False)

    def forward(self, tokens: Tensor) -> Tensor:
        x = self.table(tokens)
        for k in range(2):
            x = x + self.mixers[k](self.norms[2 * k](x).cumsum(1))
            x = x + self.experts[k](self.norms[2 * k + 1](x))
        return self.head(self.norms[4](x))


def exported(folder: Path, experts: type[Experts], exporter: str) -> Path:
    """The ONNX file of a model with random gains and biases; both lengths of its input are open."""
    path = folder / f"{experts.__name__}.{exporter}.onnx"
    torch.manual_seed(3)
    model = Language(experts).eval().requires_grad_(False)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape)
        parameter.copy_(0.4 * noise if parameter.ndim > 1 else parameter + 0.2 * noise)
    example = torch.randint(0, VOCAB, (2, 7))
    axes = {"tokens": {0: "batch", 1: "length"}}
    common = {"input_names": ["tokens"], "output_names": ["logits"], "opset_version": 18}
    if exporter == "dynamo":
        common |= {"dynamo": True, "dynamic_shapes": axes, "external_data": False, "verbose": False}
    else:
        common |= {"dynamo": False, "dynamic_axes": axes}
    torch.onnx.export(model, (example,), path, **common)
    return path


FILES = {"listed": (Listed, "torchscript"), "traced": (Listed, "dynamo"), "looped": (Looped, "torchscript")}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("experts")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {name: exported(folder, *how) for name, how in FILES.items()}


@pytest.mark.soak
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 2 * hidden with cyclic copy split random",
        "widen hidden to 3 * hidden / 2 with neighbor copy",
        "widen hidden to 3 * hidden / 2 with zero fill",
        "widen ffn to 3 * ffn / 2 with uniform copy split random noise 0.1 balanced",
        "reorder hidden by random seed 3\nreorder ffn by random seed 4",
        "stack layers to 4 by last with zero outputs",
        "stack layers to 3 by each with zero outputs\nwiden hidden to 32 with cyclic copy",
    ],
)
def test_experts_that_are_given_their_tokens_grow_exactly(
    files: dict[str, Path], tmp_path: Path, name: str, recipe: str
) -> None:
    done = growc.apply(recipe, files[name], tmp_path / "grown.onnx", check=False)
    assert done.plan.certificate.exact, done.plan.certificate.gaps
    random = np.random.default_rng(1)
    for shape in [(2, 7), (1, 1), (3, 11)]:
        feeds = {"tokens": random.integers(0, VOCAB, shape)}
        before, after = (run(path, feeds)["logits"] for path in (files[name], done.written))
        assert np.abs(before - after).max() <= 1e-5 * np.abs(before).max()


@pytest.mark.parametrize("name", FILES)
def test_their_axes_have_names(files: dict[str, Path], name: str) -> None:
    axes = inspect_data(api.inspect(files[name]))["axes"]
    assert axes["hidden"] == WIDTH
    assert axes["ffn"] == FFN
    assert axes["layers"] == 2


def test_inspect_says_how_they_stand(files: dict[str, Path]) -> None:
    ways = {name: inspect_data(api.inspect(path))["experts"] for name, path in files.items()}
    assert ways == {
        "listed": ["listed one by one"],
        "traced": ["listed one by one"],
        "looped": ["looped over"],
    }


@pytest.mark.parametrize("name", ["listed", "traced"])
def test_listed_experts_change_places_exactly(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    done = growc.apply("reorder experts by random seed 4", files[name], tmp_path / "out.onnx")
    assert done.plan.certificate.exact
    assert done.verification is not None


@pytest.mark.parametrize("name", ["listed", "traced"])
def test_listed_experts_leave_a_model_that_runs(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    done = growc.apply("subclone experts to 3 by first", files[name], tmp_path / "out.onnx", check=False)
    assert inspect_data(api.inspect(done.written))["axes"]["experts"] == 3
    assert np.isfinite(run(done.written, {"tokens": np.arange(20).reshape(2, 10)})["logits"]).all()


@pytest.mark.sampled(4)
@pytest.mark.parametrize("name", FILES)
def test_fewer_units_leave_a_model_that_runs(files: dict[str, Path], tmp_path: Path, name: str) -> None:
    recipe = "subclone ffn to ffn / 2 by magnitude\nsubclone hidden to hidden / 2 by even"
    done = growc.apply(recipe, files[name], tmp_path / "small.onnx", check=False)
    small = run(done.written, {"tokens": np.arange(20).reshape(2, 10)})["logits"]
    assert np.isfinite(small).all()
    axes = inspect_data(api.inspect(done.written))["axes"]
    assert (axes["hidden"], axes["ffn"]) == (WIDTH // 2, FFN // 2)


UNROLLED = """
unrolled (int64[N] tokens, bool[5] chosen) => (float[N, 3] y)
<float[16, 8] table, float[5, 8, 12] up, float[5, 12, 8] down, float[8, 3] head>
{
    x = Gather(table, tokens)
    first = Constant <value = int64[1] {0}> ()
    counted = NonZero(chosen)
    turned = Transpose <perm = [1, 0]> (counted)
    halves = Constant <value = int64[2] {1, 1}> ()
    one, other = Split <axis = 0> (turned, halves)
    i = Squeeze(one)
    j = Squeeze(other)
    ui = Gather(up, i)  di = Gather(down, i)  hi = MatMul(x, ui)  ri = Relu(hi)  yi = MatMul(ri, di)
    uj = Gather(up, j)  dj = Gather(down, j)  hj = MatMul(x, uj)  rj = Relu(hj)  yj = MatMul(rj, dj)
    s = Add(x, yi)
    t = Add(s, yj)
    y = MatMul(t, head)
}
"""


@pytest.mark.parametrize(
    "recipe", ["widen hidden to 16 with cyclic copy", "widen ffn to 17 with uniform copy"]
)
def test_a_split_says_how_many_there_are(tmp_path: Path, recipe: str) -> None:
    source = save(tmp_path / "model.onnx", UNROLLED)
    done = growc.apply(recipe, source, tmp_path / "grown.onnx", check=False)
    assert done.plan.certificate.exact
    feeds = {"tokens": np.arange(16), "chosen": np.array([False, True, False, False, True])}
    before, after = (run(path, feeds)["y"] for path in (source, done.written))
    assert np.abs(before - after).max() <= 1e-5 * np.abs(before).max()
