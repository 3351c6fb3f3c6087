"""The cost of a reduction on calibration data: KL, agreement, and the loss before and after."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import onnxruntime
import pytest
import torch
from graphs import STREAM, TINY, save
from models import Models
from numpy.typing import NDArray
from torch.nn import functional

import growc
from growc import api

HALF = "subclone layers to 2 by middle\n"


def tiny(folder: Path) -> Path:
    """A trained GPT, and a few lines of text beside it."""
    text = Path(__file__).read_bytes()
    rows = np.frombuffer(text[: 10 * 48], dtype=np.uint8).reshape(10, 48).astype(np.int64)
    np.savez(folder / "data.npz", input_ids=rows)
    return Path(shutil.copy(TINY, folder / "tiny.onnx"))


def scores(model: Path, **feeds: NDArray[np.int64]) -> torch.Tensor:
    session = onnxruntime.InferenceSession(model, providers=["CPUExecutionProvider"])
    return torch.from_numpy(session.run(None, feeds)[0]).double()


def loss(logits: torch.Tensor, ids: NDArray[np.int64]) -> float:
    wanted = torch.from_numpy(ids[:, 1:]).flatten()
    return float(functional.cross_entropy(logits[:, :-1].flatten(0, 1), wanted))


def test_apply_reports_loss_kl_and_agreement_on_the_data_of_measure_importance(tmp_path: Path) -> None:
    model, recipe = tiny(tmp_path), tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz" samples 9\n{HALF}')
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    found = done.calibration
    assert found is not None
    ids = np.load(tmp_path / "data.npz")["input_ids"][:9]
    a, b = scores(model, input_ids=ids), scores(done.written, input_ids=ids)
    assert found.before is not None
    assert found.after is not None
    assert (found.samples, found.before.tokens) == (9, 9 * 47)
    assert found.before.mean == pytest.approx(loss(a, ids), rel=1e-5)
    assert found.after.mean == pytest.approx(loss(b, ids), rel=1e-5)
    near = found.closeness["logits"]
    logs = functional.log_softmax(a, -1), functional.log_softmax(b, -1)
    kl = functional.kl_div(logs[1], logs[0], log_target=True, reduction="none").sum(-1).mean()
    assert near.kl == pytest.approx(float(kl), rel=1e-5)
    assert near.agreement == pytest.approx(float((a.argmax(-1) == b.argmax(-1)).double().mean()))


def test_inputs_of_the_caller_come_before_those_of_the_recipe(tmp_path: Path) -> None:
    model, recipe = tiny(tmp_path), tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz" samples 9\n{HALF}')
    np.savez(tmp_path / "own.npz", input_ids=np.load(tmp_path / "data.npz")["input_ids"][:3])
    done = growc.apply(recipe, model, tmp_path / "out.onnx", inputs=tmp_path / "own.npz")
    assert done.calibration is not None
    assert done.calibration.samples == 3


def test_masked_tokens_have_no_loss(models: Models, tmp_path: Path) -> None:
    model = Path(shutil.copy(models.path("gpt2"), tmp_path / "gpt2.onnx"))
    ids = np.random.default_rng(0).integers(0, 40, (4, 9))
    mask = (np.arange(9) < np.array([9, 5, 7, 2])[:, None]).astype(np.int64)
    ports = [value.name for value in growc.inspect(model).graph.inputs]
    feeds = dict(zip(ports, (ids, mask), strict=True))
    np.savez(tmp_path / "data.npz", **feeds)
    done = growc.apply("drop layers 1", model, tmp_path / "out.onnx", inputs=tmp_path / "data.npz")
    assert done.calibration is not None
    assert done.calibration.before is not None
    logits = scores(model, **feeds)
    rows = [(r, t) for r in range(4) for t in range(8) if mask[r, t + 1]]
    wanted = np.mean([float(-functional.log_softmax(logits[r, t], -1)[ids[r, t + 1]]) for r, t in rows])
    assert done.calibration.before.tokens == len(rows)
    assert done.calibration.before.mean == pytest.approx(wanted, rel=1e-4)


def test_scores_that_see_what_they_are_to_say_have_no_loss(models: Models, tmp_path: Path) -> None:
    model = models.path("bert")
    ids = np.random.default_rng(0).integers(0, 40, (4, 9))
    ports = [value.name for value in growc.inspect(model).graph.inputs]
    feeds = dict(zip(ports, (ids, np.ones_like(ids), np.zeros_like(ids)), strict=False))
    np.savez(tmp_path / "data.npz", **feeds)
    done = growc.apply("drop layers 1", model, tmp_path / "out.onnx", inputs=tmp_path / "data.npz")
    assert done.calibration is not None
    assert done.calibration.closeness
    assert done.calibration.before is None
    assert "predicts the next token" in done.calibration.reason


def test_a_decoder_predicts_its_own_tokens(tmp_path: Path) -> None:
    model = TINY.with_name("tiny-t5.onnx")
    random = np.random.default_rng(0)
    ports = [p.name for p in growc.inspect(model).graph.inputs]
    feeds = {name: random.integers(2, 60, (4, 7)) for name in ports}
    np.savez(tmp_path / "data.npz", **feeds)
    done = growc.apply("drop layers 1", model, tmp_path / "out.onnx", inputs=tmp_path / "data.npz")
    assert done.calibration is not None
    assert done.calibration.before is not None
    decoded = next(name for name in ports if "decoder" in name)
    assert done.calibration.before.mean == pytest.approx(
        loss(scores(model, **feeds), feeds[decoded]), rel=1e-4
    )


def test_without_logits_of_tokens_what_is_left_out_is_said(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    np.savez(tmp_path / "data.npz", tokens=np.arange(12))
    given = growc.apply(
        "subclone ffn to 6 by first", model, tmp_path / "a.onnx", inputs=tmp_path / "data.npz"
    )
    assert given.calibration is not None
    assert "predicts the next token" in given.calibration.reason
    bare = growc.apply("subclone ffn to 6 by first", model, tmp_path / "b.onnx")
    assert bare.calibration is None
    assert "no inputs are given" in bare.uncalibrated


def test_tokens_that_the_result_lacks_are_no_error(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone vocab to 64 by first\n')
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    assert done.calibration is None
    assert "cannot run `out.onnx`" in done.uncalibrated


def test_growth_that_is_exact_is_not_compared(tmp_path: Path) -> None:
    model = tiny(tmp_path)
    recipe = "widen ffn to 2 * ffn with neighbor copy"
    done = growc.apply(recipe, model, tmp_path / "out.onnx", inputs=tmp_path / "data.npz")
    assert done.plan.certificate.exact
    assert done.calibration is None
    assert api.inspect(done.written).roles.sizes("ffn") == [
        2 * s for s in api.inspect(model).roles.sizes("ffn")
    ]
