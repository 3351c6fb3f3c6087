"""Experts `by reap`: the mean of gate · ‖output‖ over the tokens that chose them, however experts stand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import test_experts_apart as apart
from graphs import STREAM, save
from models import stored
from test_experts import K, every, mixture
from test_experts import weights as stacked
from test_statistics import units

import growc
from growc.algebra.indexmap import Floats
from growc.errors.diagnostic import GrowError

X = np.random.default_rng(3).standard_normal((40, 6)).astype(np.float32)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    np.savez(tmp_path / "data.npz", x=X)
    return tmp_path / "data.npz"


def softmax(x: np.ndarray) -> Floats:
    made = np.exp(x - x.max(-1, keepdims=True))
    return np.asarray(made / made.sum(-1, keepdims=True))


def reap(gates: np.ndarray, outputs: np.ndarray) -> Floats:
    """gates [N, E], zero where an expert is not chosen; outputs [N, E, H]."""
    given = gates * np.linalg.norm(outputs, axis=-1)
    return np.asarray(given.sum(0) / np.maximum((gates != 0).sum(0), 1))


def best(shares: np.ndarray, top: int) -> np.ndarray:
    """The shares of the `top` that are chosen; zero for the others."""
    least = np.sort(shares, axis=-1)[:, -top, None]
    return np.where(shares >= least, shares, 0)


def together(w: dict[str, np.ndarray]) -> np.ndarray:
    act = np.maximum(np.einsum("nh,ehf->nef", X, w["up"]), 0)
    return np.asarray(np.einsum("nef,efh->neh", act, w["down"]))


def alone(w: dict[str, np.ndarray]) -> np.ndarray:
    def network(e: int) -> np.ndarray:
        return np.asarray(np.maximum(X @ w[f"up{e}"] + w[f"ub{e}"], 0) @ w[f"down{e}"])

    return np.stack([network(e) for e in range(apart.E)], axis=1)


def test_experts_in_slots(tmp_path: Path, data: Path) -> None:
    w = stacked()
    model = mixture(tmp_path / "m.onnx", **w)
    gates = best(softmax(X @ w["router"] + w["bias"]), K)
    assert np.allclose(units(model, data, "reap", "experts"), reap(gates, together(w)), rtol=1e-4)


def test_experts_that_all_work_count_where_their_share_is_not_zero(tmp_path: Path, data: Path) -> None:
    w = {name: values for name, values in stacked().items() if name != "bias"}
    model = every(tmp_path / "m.onnx", **w)
    gates = np.maximum(X @ w["router"], 0)
    assert np.allclose(units(model, data, "reap", "experts"), reap(gates, together(w)), rtol=1e-4)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("kind", apart.KINDS)
def test_experts_with_networks_of_their_own(tmp_path: Path, data: Path, kind: str) -> None:
    w = apart.weights()
    model = apart.model(tmp_path / "m.onnx", kind, n2=np.array([2]))
    gates = softmax(X @ w["router"] + w["bias"])
    gates = best(gates, 2) if kind in apart.RANKED else gates
    assert np.allclose(units(model, data, "reap", "experts"), reap(gates, alone(w)), rtol=1e-4)


def test_a_planted_expert_that_is_chosen_often_and_gives_little_goes(tmp_path: Path, data: Path) -> None:
    """Counting choices keeps it; what it gives does not."""
    w = stacked()
    w["bias"][1] += 4
    w["down"][1] *= 1e-3
    model = mixture(tmp_path / "m.onnx", **w)
    assert units(model, data, "importance", "experts").argmax() == 1
    assert units(model, data, "reap", "experts").argmin() == 1
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone experts to 4 by reap\n')
    written = growc.apply(recipe, model, tmp_path / "out.onnx", check=False).written
    assert np.array_equal(stored(written)["up"], w["up"][[0, 2, 3, 4]])


def test_reap_ranks_experts_alone(tmp_path: Path) -> None:
    text = 'measure importance on "data.npz"\nsubclone ffn to 4 by reap\n'
    with pytest.raises(GrowError, match="ranks `experts` alone") as found:
        growc.plan(text, save(tmp_path / "m.onnx", STREAM))
    assert found.value.diagnostics[0].code == "G210"
