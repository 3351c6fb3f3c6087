"""`measure importance`: scores as the language defines them, whoever exported the model."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, save
from models import Models, stored
from planted import difference, planted

import growc
from growc.errors.diagnostic import GrowError
from growc.measurement import importance
from growc.plans import scores
from growc.verification.ort_session import Session

MASKED = """
masked (int64[N, S] ids, int64[N, S] mask) => (float[N, S, 6] y)
<float[10, 8] table, int64[1] two, float[8, 5] up, float[5, 8] down, float[8, 6] head>
{
    x0 = Gather(table, ids)
    m0 = Cast <to = 1> (mask)
    m = Unsqueeze(m0, two)
    x = Mul(x0, m)
    u = MatMul(x, up)
    a = Relu(u)
    d = MatMul(a, down)
    x1 = Add(x, d)
    y = MatMul(x1, head)
}
"""


def data(path: Path, **arrays: np.ndarray) -> Path:
    np.savez(path, **arrays)
    return path


def tokens(folder: Path, rows: int = 30) -> Path:
    return data(folder / "data.npz", tokens=np.random.default_rng(0).integers(0, 16, rows))


def layer_norm(x: np.ndarray, gain: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * gain + bias


def test_scores_are_means_of_what_readers_contract_and_of_what_the_stream_adds_up(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    found = growc.measure(model, tokens(tmp_path), samples=20)
    w = {name: values.astype(np.float64) for name, values in stored(model).items()}
    x0 = w["table"][np.load(tmp_path / "data.npz")["tokens"][:20]]
    act = np.maximum(layer_norm(x0, w["norm1_weight"], w["norm1_bias"]) @ w["up_weight"] + w["up_bias"], 0)
    branch = act @ w["down_weight"] + w["down_bias"]
    assert np.allclose(found["ffn.0"], np.abs(act).mean(0), rtol=1e-4)
    wanted = sum(np.abs(v).mean(0) for v in (x0, branch, x0 + branch))
    assert np.allclose(found["hidden.0"], wanted, rtol=1e-4)


def test_masked_positions_do_not_count(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", MASKED, two=np.array([2]))
    random = np.random.default_rng(1)
    ids, mask = random.integers(0, 10, (12, 5)), (random.random((12, 5)) > 0.4).astype(np.int64)
    found = growc.measure(model, data(tmp_path / "data.npz", ids=ids, mask=mask))
    w = stored(model)
    act = np.maximum(w["table"][ids] @ w["up"], 0)
    wanted = np.abs(act)[mask > 0].mean(0)
    assert np.allclose(found["ffn.0"], wanted, rtol=1e-4)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_both_exporters_give_the_same_scores(models: Models, tmp_path: Path, name: str) -> None:
    ids = np.random.default_rng(0).integers(0, 40, (6, 9))
    padded = (np.arange(9) < np.array([9, 9, 7, 5, 9, 6])[:, None]).astype(np.int64)
    found = []
    for flavour in ("dynamo.anon", "torchscript"):
        path = models.path(name, flavour)
        ports = [value.name for value in growc.inspect(path).graph.inputs]
        own = data(tmp_path / f"{flavour}.npz", **dict(zip(ports, (ids, padded), strict=True)))
        found.append(growc.measure(path, own, tmp_path / f"{flavour}.scores.npz"))
    assert list(found[0]) == list(found[1])
    assert {"hidden.0", "ffn.0", "ffn.1", "heads.0", "heads.1"} <= set(found[0])
    for axis, values in found[0].items():
        assert np.allclose(values, found[1][axis], rtol=1e-4), axis


def test_an_interrupted_measurement_goes_on_and_comes_to_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, file = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    whole = growc.measure(model, file, tmp_path / "whole.npz")
    run, calls = Session.run, [0]

    def fails(self: Session, feeds: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        calls[0] += 1
        if calls[0] == 3:
            raise KeyboardInterrupt
        return run(self, feeds)

    monkeypatch.setattr(Session, "run", fails)
    with pytest.raises(KeyboardInterrupt):
        growc.measure(model, file, tmp_path / "part.npz")
    assert scores.read_scores(tmp_path / "part.npz").done == 2
    after = growc.measure(model, file, tmp_path / "part.npz")
    assert calls[0] == 3 + 2
    assert all((after[axis] == whole[axis]).all() for axis in whole)


def test_scores_beside_the_model_are_taken_again_for_the_same_inputs_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, file = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    first = growc.measure(model, file)
    monkeypatch.setattr(importance, "_run", lambda *_: pytest.fail("measured again"))
    assert (growc.measure(model, file)["ffn.0"] == first["ffn.0"]).all()
    monkeypatch.undo()
    assert (growc.measure(model, tokens(tmp_path, 31))["ffn.0"] != first["ffn.0"]).any()


def test_a_plan_keeps_no_scores_and_takes_those_that_were_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model, file = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    recipe = tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "{file.name}"\nsubclone ffn to 3 by importance\n')
    before = sorted(tmp_path.iterdir())
    found = growc.plan(recipe, model)
    assert sorted(tmp_path.iterdir()) == before
    growc.apply(recipe, model, tmp_path / "out.onnx", check=False)
    assert (tmp_path / "m.importance.npz").exists()
    monkeypatch.setattr(importance, "_run", lambda *_: pytest.fail("measured again"))
    assert growc.plan(recipe, model).certificate.gaps == found.certificate.gaps


def test_scores_of_another_model_or_of_other_inputs_are_not_overwritten(tmp_path: Path) -> None:
    model, file = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    growc.measure(model, file, tmp_path / "scores.npz")
    other = save(tmp_path / "o.onnx", STREAM, up_bias=np.ones(12, np.float32))
    with pytest.raises(GrowError, match="another model"):
        growc.measure(other, file, tmp_path / "scores.npz")
    with pytest.raises(GrowError, match="other inputs"):
        growc.measure(model, tokens(tmp_path, 31), tmp_path / "scores.npz")


def test_the_most_important_units_stay_and_the_gap_tells_what_they_leave(tmp_path: Path) -> None:
    model, file = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    found = growc.measure(model, file)["ffn.0"]
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone ffn to 3 by importance unscaled\n')
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    best = np.sort(np.argsort(-found, kind="stable")[:3])
    assert (stored(done.written)["up_bias"] == stored(model)["up_bias"][best]).all()
    [gap] = done.plan.certificate.gaps
    assert f"{1 - found[best].sum() / found.sum():.1%} of the importance" in gap.cause


@pytest.mark.parametrize(("axis", "size", "option"), [("ffn", 19, "unscaled"), ("hidden", 13, "")])
def test_dead_units_are_the_least_important(tmp_path: Path, axis: str, size: int, option: str) -> None:
    text = STREAM.replace("LayerNormalization", "SimplifiedLayerNormalization")
    for gone in (", norm1_bias)", ", norm2_bias)"):
        text = text.replace(gone, ")")
    text = text.replace(", float[8] norm1_bias", "").replace(", float[8] norm2_bias", "")
    model = planted(save(tmp_path / "m.onnx", text), axis, str(size), tmp_path / "planted.onnx")
    tokens(tmp_path)
    recipe = tmp_path / "r.grow"
    living = {"ffn": 12, "hidden": 8}[axis]
    recipe.write_text(
        f'measure importance on "data.npz"\nsubclone {axis} to {living} by importance '
        f"{option or 'rescaled in norms'}\n"
    )
    assert difference(recipe, model, tmp_path / "out.onnx") <= 2e-5


def test_measuring_after_a_change_is_an_error(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    tokens(tmp_path)
    recipe = tmp_path / "r.grow"
    recipe.write_text('subclone ffn to 6 by first\nmeasure importance on "data.npz"\n')
    with pytest.raises(GrowError, match="measured on the source"):
        growc.plan(recipe, model)


def test_layers_that_moved_are_ranked_as_the_layers_that_they_come_from(
    models: Models, tmp_path: Path
) -> None:
    path = models.path("gpt2", "torchscript")
    ports = [value.name for value in growc.inspect(path).graph.inputs]
    rows = np.random.default_rng(0).integers(0, 40, (6, 9))
    data(tmp_path / "data.npz", **dict(zip(ports, (rows, np.ones_like(rows)), strict=True)))
    recipe = tmp_path / "r.grow"
    shrink = 'measure importance on "data.npz"\nsubclone ffn to ffn / 2 by importance unscaled\n'
    made = []
    for text in (shrink, shrink + "arrange layers as 1, 0, 1\n", "arrange layers as 1, 0, 1\n" + shrink):
        recipe.write_text(text)
        done = growc.apply(recipe, path, tmp_path / "out.onnx", check=False, force=True)
        weights = stored(done.written).values()
        made.append(
            sorted({w.tobytes() for w in weights if sorted(w.shape)[-1] == w.size // sorted(w.shape)[0]})
        )
    assert set(made[1]) == set(made[2])
    assert set(made[0]) == set(made[1])
