"""Scores of modules, `.pt2` programs and checkpoint directories, against hooks in torch."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from graphs import TINY
from test_torch_importance import LENGTH, VOCAB, program, tokens
from torch import nn
from torch.nn import functional

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.errors.progress import quiet
from growc.formats.compiler import compiled
from growc.measurement.gradients import Graded, GradeSample, taylor_tables
from growc.passes.ranking.unit_scores import MeasuredScores
from growc.resolve.bound import Resolved

SIZES = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 4, "num_attention_heads": 4}
KINDS = ["directory", "module", "program"]
Opened = tuple[object, nn.Module, dict[str, torch.Tensor]]


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Opened]:
    """A model of each form, the module that it is, and its inputs."""
    from transformers import LlamaConfig, LlamaForCausalLM

    folder = tmp_path_factory.mktemp("scores")
    torch.manual_seed(0)
    more = {"num_key_value_heads": 2, "vocab_size": VOCAB, "max_position_embeddings": 16}
    module = LlamaForCausalLM(LlamaConfig(**SIZES, **more, use_cache=False)).eval()
    for parameter in module.parameters():
        nn.init.normal_(parameter, mean=float(parameter.ndim == 1), std=0.3)
    module.save_pretrained(folder / "directory")
    arrays = tokens(folder / "data.npz")
    given = {name: torch.from_numpy(array) for name, array in arrays.items()}
    forms: dict[str, object] = {"directory": folder / "directory", "module": module}

    def form(kind: str) -> Opened:
        if kind not in forms:
            forms[kind] = program(module, arrays, folder / "program.pt2")
        return forms[kind], module, given

    return form


def kept(recipe: str, model: object, data: Path, weight: str) -> dict[str, str]:
    """The stored tensors of a plan, by where they come from."""
    plan = growc.plan(f'measure importance on "{data}"\n{recipe}\n', model)
    return {w.name: w.copy_of or w.source for w in plan.weights if weight in w.source}


@pytest.fixture
def data(tmp_path: Path) -> Path:
    tokens(tmp_path / "data.npz")
    return tmp_path / "data.npz"


def without(module: nn.Module, layer: int) -> nn.Module:
    made = copy.deepcopy(module)
    made.model.layers = nn.ModuleList(one for k, one in enumerate(made.model.layers) if k != layer)
    return made


def loss(module: nn.Module, given: dict[str, torch.Tensor]) -> float:
    ids, mask = given["input_ids"], given["attention_mask"]
    counts = (mask[:, 1:] * mask[:, :-1]).bool()
    with torch.no_grad():
        logits = module(**given, use_cache=False).logits[:, :-1]
    return float(functional.cross_entropy(logits[counts], ids[:, 1:][counts]))


def highest(scores: list[float], size: int) -> set[int]:
    return set(np.argsort(-np.array(scores), kind="stable")[:size].tolist())


def layers_in(sources: dict[str, str]) -> set[int]:
    return {int(name.split("layers.")[1].split(".")[0]) for name in sources.values()}


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layers_go_without_which_the_loss_rises_least(
    opened: Callable[[str], Opened], data: Path, kind: str
) -> None:
    model, module, given = opened(kind)
    rises = [loss(without(module, k), given) for k in range(4)]
    assert layers_in(kept("subclone layers to 2 by loss", model, data, "up_proj")) == highest(rises, 2)


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_layers_go_that_turn_the_stream_least(
    opened: Callable[[str], Opened], data: Path, kind: str
) -> None:
    model, module, given = opened(kind)
    streams: list[torch.Tensor] = []
    hooks = [one.register_forward_pre_hook(lambda m, a: streams.append(a[0])) for one in module.model.layers]
    hooks.append(module.model.norm.register_forward_pre_hook(lambda m, a: streams.append(a[0])))
    loss(module, given)
    for hook in hooks:
        hook.remove()
    keep = given["attention_mask"].bool()
    turns = [
        float((1 - functional.cosine_similarity(x[keep], y[keep], dim=-1)).mean())
        for x, y in pairwise(streams)
    ]
    assert layers_in(kept("subclone layers to 2 by cosine", model, data, "up_proj")) == highest(turns, 2)


def test_units_of_a_gated_network_rank_by_what_the_next_weight_reads(
    opened: Callable[[str], Opened], data: Path
) -> None:
    model, module, given = opened("module")
    found: dict[str, torch.Tensor] = {}
    read = module.model.layers[1].mlp.down_proj
    hook = read.register_forward_pre_hook(lambda m, a: found.update(x=a[0].detach()))
    loss(module, given)
    hook.remove()
    x = found["x"][given["attention_mask"].bool()]
    assert len(x) < 6 * LENGTH
    stay = np.sort(np.argsort(-np.linalg.norm(x.numpy(), axis=0), kind="stable")[:12])
    recipe = f'measure importance on "{data}"\nsubclone ffn to 12 by importance using l2 unscaled'
    result = growc.apply(model, recipe, keep_class=False, check=False)
    made = result.get_parameter("model.layers.1.mlp.down_proj.weight").detach()
    torch.testing.assert_close(made, read.weight.detach()[:, stay], rtol=0, atol=0)


SCORES = ("ffn", "heads", "kv_heads", "hidden")


def moved(module: nn.Module, given: dict[str, torch.Tensor]) -> list[dict[str, torch.Tensor]]:
    """Gradient times weight of every parameter, sample by sample."""
    found = []
    for ids, mask in zip(given["input_ids"], given["attention_mask"], strict=True):
        module.zero_grad()
        logits = module(input_ids=ids[None], attention_mask=mask[None], use_cache=False).logits[0, :-1]
        counts = (mask[1:] * mask[:-1]).bool()
        functional.cross_entropy(logits[counts], ids[1:][counts]).backward()
        found.append({n: (p.grad * p).detach().double() for n, p in module.named_parameters()})
    return found


def wanted(samples: list[dict[str, torch.Tensor]]) -> dict[str, np.ndarray]:
    """Of the second layer, and of the stream: the mean over samples of squares, added up over weights."""
    layer = "model.layers.1"

    def over(*parts: Callable[[dict[str, torch.Tensor]], torch.Tensor]) -> np.ndarray:
        return sum(torch.stack([part(s) ** 2 for s in samples]).mean(0) for part in parts).numpy()

    def rows(name: str, units: int) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
        return lambda s: s[f"{layer}.{name}.weight"].reshape(units, -1).sum(1)

    def columns(name: str, units: int) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
        return lambda s: s[f"{layer}.{name}.weight"].T.reshape(units, -1).sum(1)

    def on_stream(name: str) -> Callable[[dict[str, torch.Tensor]], torch.Tensor]:
        axis = 0 if name.endswith(("o_proj.weight", "down_proj.weight")) or "norm" in name else -1
        return lambda s: s[name].reshape(s[name].shape[0], -1).sum(1) if axis == 0 else s[name].sum(0)

    return {
        "ffn": over(rows("mlp.gate_proj", 24), rows("mlp.up_proj", 24), columns("mlp.down_proj", 24)),
        "heads": over(rows("self_attn.q_proj", 4), columns("self_attn.o_proj", 4)),
        "kv_heads": over(*(rows(f"self_attn.{n}_proj", 2) for n in "qkv"), columns("self_attn.o_proj", 2)),
        "hidden": over(*(on_stream(name) for name in samples[0])),
    }


@pytest.mark.sampled(1)
@pytest.mark.parametrize("kind", KINDS)
def test_the_score_of_a_unit_is_the_square_of_what_its_weights_would_move(
    opened: Callable[[str], Opened],
    data: Path,
    kind: str,
) -> None:
    model, module, given = opened(kind)
    scores = wanted(moved(module, given))
    c = compiled(Resolved(()), model, analysis_only=True, keep_class=True)
    found = MeasuredScores(taylor_tables(c, data, keeps=False, progress=quiet), exactly=True)
    for name in SCORES:
        axis = c.roles.axes[name][0 if name == "hidden" else 1]
        got = found.importance(axis.spaces)
        assert got is not None
        np.testing.assert_allclose(got, scores[name], rtol=2e-3, atol=1e-9, err_msg=name)


def test_other_processes_score_the_same_samples_alike(
    opened: Callable[[str], Opened],
    data: Path,
) -> None:
    model, _, given = opened("directory")
    count = len(given["input_ids"])
    analysed = partial(compiled, Resolved(()), analysis_only=True)
    own = Graded.of(analysed(model), data)
    prediction = own.prediction()
    job = GradeSample(Path(str(model)), data, prediction, analysed, own.order, first=1)
    for rank, number in enumerate(range(1, count)):
        there = pickle.loads(pickle.dumps(job))(rank, count)
        for one, other in zip(own.scores(number, prediction), there, strict=True):
            np.testing.assert_array_equal(one, other)
    assert job(count - 1, count) is None, "there is no sample behind the last"
    with pytest.raises(AssertionError, match="the same units"):
        replace(job, order=own.order[1:])(0, count)


@pytest.mark.parametrize("kind", [torch.float32, torch.float64])
def test_units_of_the_highest_score_by_gradients_stay(
    opened: Callable[[str], Opened], data: Path, kind: torch.dtype
) -> None:
    _, module, given = opened("module")
    module = copy.deepcopy(module).to(kind)
    stay = np.sort(np.argsort(-wanted(moved(module, given))["ffn"], kind="stable")[:12])
    result = growc.apply(
        module, f'subclone ffn to 12 by taylor on "{data}" unscaled', keep_class=False, check=False
    )
    made = result.get_parameter("model.layers.1.mlp.up_proj.weight").detach()
    torch.testing.assert_close(made, module.model.layers[1].mlp.up_proj.weight.detach()[stay], rtol=0, atol=0)


def test_an_onnx_file_has_no_gradients(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.savez(tmp_path / "data.npz", input_ids=np.zeros((2, 8), dtype=np.int64))
    text = f'subclone ffn to 4 by taylor on "{tmp_path / "data.npz"}"'
    with pytest.raises(GrowError, match="an ONNX file has no gradients") as found:
        growc.plan(text, TINY)
    assert (found.value.diagnostics[0].code, found.value.diagnostics[0].span is None) == ("G309", False)
    assert main(["plan", "-e", text, str(TINY)]) == 3
    assert "checkpoint directory" in capsys.readouterr().err
