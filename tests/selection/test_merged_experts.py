"""`merge experts to N by mean`: experts in a row become their mean, with their rows of the router."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from judging import run
from models import stored
from test_experts import MIXTURE, F, H, mixture
from test_experts_apart import model as listed
from transformers import MixtralConfig, MixtralForCausalLM

import growc
from growc.errors.diagnostic import GrowError

E, K = 8, 2
TEXT = MIXTURE.replace("5", str(E))
AXES = {"router": 1, "bias": 0, "up": 0, "down": 0}

Weights = dict[str, np.ndarray[Any, np.dtype[Any]]]


def weights() -> Weights:
    random = np.random.default_rng(11)
    shapes = {"router": (H, E), "bias": (E,), "up": (E, H, F), "down": (E, F, H)}
    return {name: 3 * random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def means(values: Weights, count: int) -> Weights:
    """Of every weight the means of runs of experts, in numpy."""
    made = {}
    for name, axis in AXES.items():
        parts = np.array_split(values[name].astype(np.float64), count, axis=axis)
        made[name] = np.stack([part.mean(axis=axis) for part in parts], axis=axis).astype(np.float32)
    return made


def computed(x: np.ndarray[Any, np.dtype[Any]], w: Weights) -> np.ndarray[Any, np.dtype[Any]]:
    """The outputs of the mixture, in numpy."""
    scores = x @ w["router"] + w["bias"]
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    shares /= shares.sum(axis=1, keepdims=True)
    best = np.argsort(-shares, axis=1, kind="stable")[:, :K]
    out = x.astype(np.float64).copy()
    for row, chosen in enumerate(best):
        for expert in chosen:
            hidden = np.maximum(x[row] @ w["up"][expert], 0)
            out[row] += shares[row, expert] * (hidden @ w["down"][expert])
    return out


@pytest.mark.parametrize("count", [2, 4])
def test_weights_and_router_are_means_and_so_the_model_computes(tmp_path: Path, count: int) -> None:
    source = mixture(tmp_path / "m.onnx", TEXT, **weights())
    done = growc.apply(f"merge experts to {count} by mean", source, tmp_path / "out.onnx")
    expected, made = means(weights(), count), stored(done.written)
    for name in AXES:
        np.testing.assert_allclose(made[name], expected[name], rtol=1e-6, atol=1e-6)
    x = np.random.default_rng(1).standard_normal((30, H)).astype(np.float32)
    y = computed(x, expected)
    assert np.abs(run(done.written, {"x": x})["y"] - y).max() < 1e-4 * np.abs(y).max()
    [gap] = done.plan.certificate.gaps
    assert gap.op == "TopK"
    assert f"every {E // count} experts become their mean" in gap.cause


def test_copies_beside_their_originals_become_these_again(tmp_path: Path) -> None:
    source = mixture(tmp_path / "m.onnx", TEXT, **weights())
    recipe = "widen experts to 2 * experts with neighbor copy top 4\nmerge experts to experts / 2 by mean"
    made = stored(growc.apply(recipe, source, tmp_path / "out.onnx", check=False).written)
    for name, value in weights().items():
        np.testing.assert_allclose(made[name], value, rtol=1e-6)


def test_means_are_ranked_and_grow_like_others(tmp_path: Path) -> None:
    source = mixture(tmp_path / "m.onnx", TEXT, **weights())
    recipe = "merge experts to 4 by mean\nreorder experts by magnitude\nsubclone experts to 3 by first"
    recipe += "\nwiden experts to 6 with cyclic copy top 4\nexpect experts == 6"
    done = growc.apply(recipe, source, tmp_path / "out.onnx", check=False)
    expected, made = means(weights(), 4), stored(done.written)
    for one in made["up"]:
        assert any(np.allclose(one, other, atol=1e-6) for other in expected["up"])
    assert np.isfinite(run(done.written, {"x": np.ones((3, H), np.float32)})["y"]).all()


WRONG = {
    "no divisor": ("merge experts to 3 by mean", "G305"),
    "more": ("merge experts to 16 by mean", "G303"),
    "fewer than are chosen": ("merge experts to 1 by mean", "G301"),
    "another axis": ("merge ffn to 2 by mean", "G210"),
    "none": ("merge experts to experts - 8 by mean", "G312"),
}


@pytest.mark.parametrize("case", WRONG)
def test_experts_that_cannot_be_merged_are_refused(tmp_path: Path, case: str) -> None:
    recipe, code = WRONG[case]
    with pytest.raises(GrowError) as caught:
        growc.plan(recipe, mixture(tmp_path / "m.onnx", TEXT, **weights()))
    assert [d.code for d in caught.value.diagnostics] == [code]


@pytest.mark.parametrize(
    "recipe", ["merge experts to 2 by mean", "widen experts to 8 with cyclic copy top 4"]
)
def test_experts_of_which_each_has_a_network_are_refused(tmp_path: Path, recipe: str) -> None:
    with pytest.raises(GrowError, match="no stack holds them"):
        growc.plan(recipe, listed(tmp_path / "m.onnx", "compare"))


def test_the_same_size_is_no_change(tmp_path: Path) -> None:
    plan = growc.plan(f"merge experts to {E} by mean", mixture(tmp_path / "m.onnx", TEXT, **weights()))
    assert plan.certificate.exact
    assert not any(weight.changed for weight in plan.weights)


@pytest.fixture(scope="module")
def mixtral(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with random norms, in one layer."""
    torch.manual_seed(2)
    sizes = {"hidden_size": 16, "intermediate_size": 12, "num_attention_heads": 2, "num_key_value_heads": 2}
    tokens = {"vocab_size": 32, "max_position_embeddings": 32, "bos_token_id": 1, "eos_token_id": 2}
    config = MixtralConfig(**sizes, **tokens, num_hidden_layers=1, num_local_experts=4, num_experts_per_tok=2)
    model = MixtralForCausalLM(config)
    for parameter in model.parameters():
        parameter.data += 0.4 * torch.randn_like(parameter)
    path = tmp_path_factory.mktemp("mixtral") / "source"
    model.save_pretrained(path)
    return path


def test_a_checkpoint_has_twice_the_experts_and_computes_the_same(mixtral: Path, tmp_path: Path) -> None:
    recipe = "widen experts to 2 * experts with cyclic copy top 4\nexpect exact"
    done = growc.apply(recipe, mixtral, tmp_path / "out")
    assert done.verification is not None
    assert done.verification.relative < 5e-6
    source, result = (MixtralForCausalLM.from_pretrained(path).eval() for path in (mixtral, done.written))
    assert (result.config.num_local_experts, result.config.num_experts_per_tok) == (8, 4)
    ids = torch.randint(0, 32, (3, 9))
    with torch.no_grad():
        torch.testing.assert_close(result(ids).logits, source(ids).logits, rtol=1e-4, atol=1e-4)


def test_a_checkpoint_has_means_of_experts(mixtral: Path, tmp_path: Path) -> None:
    done = growc.apply("merge experts to 2 by mean", mixtral, tmp_path / "out", check=False)
    source, result = (MixtralForCausalLM.from_pretrained(path) for path in (mixtral, done.written))
    assert result.config.num_local_experts == 2
    before = source.state_dict()
    for name, value in result.state_dict().items():
        old = before[name]
        expected = old if old.shape == value.shape else old.reshape(2, 2, *old.shape[1:]).mean(1)
        torch.testing.assert_close(value, expected)
