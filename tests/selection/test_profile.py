"""The profile of layers: what it costs to remove and to double each, judged by numpy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import STREAM, TINY, save
from models import stored
from numpy.typing import NDArray
from test_layer_importance import inputs, stack

from growc import api
from growc.render.profile import places, profile_data, profile_lines
from growc.reports import layer_profile as profiling
from growc.reports import measure as measuring
from growc.reports.layer_profile import Profile

Floats = NDArray[np.float64]


def scores(model: Path, data: Path, layers: Sequence[int]) -> Floats:
    """The scores of a stack with these of its layers."""
    w, given = stored(model), np.load(data)
    x = w["table"][given["ids"]] * given["mask"][..., None]
    for n in layers:
        x = x + np.maximum(x @ w[f"up{n}"], 0) @ w[f"down{n}"]
    return np.asarray(x @ w["head"], dtype=np.float64)


def log_softmax(x: Floats) -> Floats:
    return np.asarray(x - np.log(np.exp(x).sum(-1, keepdims=True)))


def loss(logits: Floats, data: Path) -> float:
    given = np.load(data)
    keep = (given["mask"][:, 1:] * given["mask"][:, :-1]) > 0
    found = np.take_along_axis(log_softmax(logits)[:, :-1], given["ids"][:, 1:, None], -1)[..., 0]
    return float(-found[keep].mean())


def test_each_layer_is_removed_and_doubled(tmp_path: Path) -> None:
    model, data = stack(tmp_path / "m.onnx", 0.3, 0.1, 0.2, vocab=10), inputs(tmp_path / "data.npz")
    found = measuring.profile(model, data)
    source = scores(model, data, [0, 1, 2])
    assert found.loss is not None
    assert found.loss.mean == pytest.approx(loss(source, data), rel=1e-5)
    orders = {0: ([1, 2], [0, 0, 1, 2]), 1: ([0, 2], [0, 1, 1, 2]), 2: ([0, 1], [0, 1, 2, 2])}
    for row in found.layers:
        for trial, order in zip((row.removed, row.doubled), orders[row.score.layer], strict=True):
            assert trial.outcome is not None
            assert trial.outcome.after is not None
            result = scores(model, data, order)
            kl = (np.exp(log_softmax(source)) * (log_softmax(source) - log_softmax(result))).sum(-1).mean()
            assert trial.outcome.after.mean == pytest.approx(loss(result, data), rel=1e-5)
            assert trial.outcome.closeness["y"].kl == pytest.approx(float(kl), rel=1e-4, abs=1e-7)


def test_an_only_layer_is_doubled_but_not_removed(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    np.savez(tmp_path / "data.npz", tokens=np.arange(12))
    found = measuring.profile(model, tmp_path / "data.npz")
    [row] = found.layers
    assert row.removed.outcome is None
    assert row.doubled.outcome is not None
    assert "layer 0 cannot be removed: it is the only layer" in "\n".join(profile_lines(found, "m.onnx"))
    assert profile_data(found)["layers"][0]["removed"] == {"reason": "it is the only layer"}


@pytest.mark.soak
def test_a_layer_of_one_scope_is_changed_in_that_scope_only(tmp_path: Path) -> None:
    model = TINY.with_name("tiny-t5.onnx")
    random = np.random.default_rng(0)
    ports = [p.name for p in api.inspect(model).graph.inputs]
    np.savez(tmp_path / "data.npz", **{name: random.integers(2, 60, (3, 6)) for name in ports})
    measured = api.inspect(model)
    layers = [
        score
        for score in measuring.measurement(model, tmp_path / "data.npz", tmp_path / "scores.npz").layers
        if measured.layers.runs[score.run].scope == "encoder" and score.layer == 1
    ]
    [row] = measuring.profile(model, tmp_path / "data.npz", layers=layers).layers
    recipe = "in encoder {\n    drop layers 1\n}"
    done = api.apply(recipe, model, tmp_path / "out.onnx", inputs=tmp_path / "data.npz")
    assert row.scope == "encoder"
    both = replace(row, scope="decoder", score=replace(row.score, run=1 - row.score.run))
    assert places(Profile(3, None, (row, both))) == ["encoder 1", "decoder 1"]
    assert places(Profile(3, None, (replace(row, scope=""), replace(both, scope=""))))[0].startswith("run ")
    assert row.removed.outcome is not None
    assert done.calibration is not None
    assert row.removed.outcome.kl == pytest.approx(done.calibration.kl, rel=1e-9)


def test_without_a_loss_bars_show_the_kl_and_without_logits_the_difference(tmp_path: Path) -> None:
    wide = stack(tmp_path / "m.onnx", 0.3, 0.1, vocab=10)
    data = inputs(tmp_path / "data.npz")
    short = {name: array[:, :2] for name, array in np.load(data).items()}
    np.savez(tmp_path / "short.npz", **short)
    assert "KL without it" in "\n".join(profile_lines(measuring.profile(wide, tmp_path / "short.npz"), "m"))
    text = """
    bare (float[N, 8] x) => (float[N, 8] y)
    <float[8, 12] up0, float[12, 8] down0, float[8, 12] up1, float[12, 8] down1>
    {
        u0 = MatMul(x, up0)
        r0 = Relu(u0)
        d0 = MatMul(r0, down0)
        h = Add(x, d0)
        u1 = MatMul(h, up1)
        r1 = Relu(u1)
        d1 = MatMul(r1, down1)
        y = Add(h, d1)
    }
    """
    bare = save(tmp_path / "bare.onnx", text)
    np.savez(tmp_path / "x.npz", x=np.random.default_rng(0).standard_normal((5, 8)).astype(np.float32))
    assert "difference without it" in "\n".join(
        profile_lines(measuring.profile(bare, tmp_path / "x.npz"), "m")
    )


def test_an_interrupted_profile_is_kept_and_goes_on_where_it_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, data = stack(tmp_path / "m.onnx", 0.3, 0.1, 0.2, vocab=10), inputs(tmp_path / "data.npz")
    tried, calls = profiling.tried, []

    def counted(*arguments: Any) -> profiling.LayerTrial:
        calls.append(arguments)
        if len(calls) == 4:
            raise KeyboardInterrupt
        return tried(*arguments)

    monkeypatch.setattr(profiling, "tried", counted)
    with pytest.raises(KeyboardInterrupt):
        measuring.profile(model, data)
    found = measuring.profile(model, data)
    assert len(calls) == 7  # three, the one that was interrupted, and the three that were left
    again = measuring.profile(model, data)
    assert len(calls) == 7
    assert again == found
    assert measuring.profile(model, data, samples=1) != found
    assert len(calls) == 13
    assert len(measuring.measurement(model, data).layers) == 3


def test_reasons_are_kept_and_another_file_is_asked_for(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    np.savez(tmp_path / "data.npz", tokens=np.arange(12))
    made = [measuring.profile(model, tmp_path / "data.npz", out=tmp_path / "kept.npz") for _ in range(2)]
    assert made[0] == made[1]
    assert made[1].layers[0].removed.reason == "it is the only layer"
    assert (tmp_path / "kept.npz").exists()
    assert not (tmp_path / "m.importance.npz").exists()
