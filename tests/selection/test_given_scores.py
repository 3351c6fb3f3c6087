"""`by scores "FILE"`: scores of one's own, by index space."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, TINY, save
from models import stored
from test_importance import tokens
from test_layer_importance import bytes_of_tiny, stack

import growc
from growc.errors.diagnostic import Diagnostic, GrowError

RANDOM = np.random.default_rng(5)


def stays(scores: np.ndarray, size: int) -> np.ndarray:
    return np.sort(np.argsort(-scores, kind="stable")[:size])


def applied(folder: Path, model: Path, text: str) -> Path:
    recipe = folder / "r.grow"
    recipe.write_text(text)
    written = growc.apply(recipe, model, folder / "out.onnx", check=False, force=True).written
    assert written is not None
    return written


def refused(folder: Path, text: str, model: Path = TINY) -> Diagnostic:
    recipe = folder / "r.grow"
    recipe.write_text(text)
    with pytest.raises(GrowError) as error:
        growc.plan(recipe, model)
    return error.value.diagnostics[0]


@pytest.mark.parametrize("form", ["ffn.0", "ffn", "rows", "npy", "tensor"])
def test_the_units_of_a_space_that_have_the_highest_scores_stay(tmp_path: Path, form: str) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    scores, name = RANDOM.permutation(12) - 6.0, tmp_path / "own.npz"
    axis = 'axis 1 of "up_w*"' if form == "tensor" else "ffn"
    if form == "npy":
        name = tmp_path / "own.npy"
        np.save(name, scores)
    else:
        key = {"rows": "ffn", "tensor": "axis 1 of up_weight"}.get(form, form)
        np.savez(name, **{key: scores[None] if form == "rows" else scores})
    out = applied(tmp_path, model, f'subclone {axis} to 5 by scores "{name.name}" unscaled\n')
    assert np.array_equal(stored(out)["up_weight"], stored(model)["up_weight"][:, stays(scores, 5)])


def test_measured_scores_can_be_given_back(tmp_path: Path) -> None:
    model, data = save(tmp_path / "m.onnx", STREAM), tokens(tmp_path)
    np.savez(tmp_path / "own.npz", **growc.measure(model, data))
    measured = f'measure importance on "{data.name}"\nsubclone {{}} by importance\n'
    for what in ("ffn to 5", "hidden to 6"):
        one = stored(applied(tmp_path, model, measured.format(what)))
        other = stored(applied(tmp_path, model, f'subclone {what} by scores "own.npz"\n'))
        assert all(np.array_equal(one[name], other[name]) for name in one)


def test_each_space_has_its_own_scores_and_heads_go_as_a_whole(tmp_path: Path) -> None:
    model = Path(shutil.copy(TINY, tmp_path / "m.onnx"))
    c = growc.inspect(model)
    ffn, heads = (c.roles.axes[name][0].size for name in ("ffn", "heads"))
    count = len(c.roles.axes["ffn"])
    own = RANDOM.standard_normal((count, ffn))
    of_heads = RANDOM.standard_normal((count, heads))
    np.savez(tmp_path / "own.npz", ffn=own, **{f"heads.{k}": row for k, row in enumerate(of_heads)})
    text = 'subclone {} to {} by scores "own.npz" unscaled\n'
    out = stored(applied(tmp_path, model, text.format("ffn", 8) + text.format("heads", 2)))
    before = stored(model)
    for k in range(count):
        down = f"transformer.h.{k}.mlp.c_proj.weight"
        assert np.array_equal(out[down], before[down][stays(own[k], 8)])
        project = f"transformer.h.{k}.attn.c_proj.weight"
        rows = before[project].reshape(heads, -1, before[project].shape[1])[stays(of_heads[k], 2)]
        assert np.array_equal(out[project], rows.reshape(-1, rows.shape[-1]))


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("factor", [2.0**-1000, 2.0**1020])
def test_the_scale_of_scores_does_not_count_in_a_budget(tmp_path: Path, factor: float) -> None:
    scores, shapes = np.random.default_rng(2).random((4, 384)), []
    (tmp_path / "r.grow").write_text('subclone ffn to total 500 by scores "own.npz"')
    for scale in (1.0, factor):
        np.savez(tmp_path / "own.npz", ffn=scores * scale)
        weights = growc.plan(tmp_path / "r.grow", TINY).weights
        shapes.append([(w.name, w.after) for w in weights])
    assert shapes[0] == shapes[1]


def test_reorder_and_match_take_scores_too(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    scores = RANDOM.permutation(12).astype(np.float64)
    np.savez(tmp_path / "own.npz", **{"ffn.0": scores, "hidden.0": np.arange(8.0)})
    order = np.argsort(-scores)
    out = applied(tmp_path, model, 'reorder ffn by scores "own.npz"\nexpect exact\n')
    assert np.array_equal(stored(out)["up_weight"], stored(model)["up_weight"][:, order])
    half = "subclone ffn to 5 by first\nsubclone hidden to 4 by first\n"
    small = applied(tmp_path, model, half).rename(tmp_path / "small.onnx")
    out = applied(tmp_path, model, f'match "{small.name}" with zero fill smaller by scores "own.npz"\n')
    kept = stored(model)["up_weight"][4:, stays(scores, 5)] * np.sqrt(2)
    assert np.allclose(stored(out)["up_weight"], kept)


def test_layers_with_the_lowest_scores_go(tmp_path: Path) -> None:
    model = stack(tmp_path / "m.onnx", 0.1, 0.2, 0.3, 0.4)
    for name, key in (("own.npz", "layers.0"), ("own.npy", "")):
        scores = np.array([1.0, -2.0, 4.0, -2.0])
        np.savez(tmp_path / name, **{key: scores}) if key else np.save(tmp_path / name, scores)
        out = applied(tmp_path, model, f'subclone layers to 3 by scores "{name}"\n')
        assert [n for n in range(4) if (stored(out)["up2"] == stored(model)[f"up{n}"]).all()] == [2]


def test_scores_are_those_of_the_source_whatever_stands_before(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    scores = RANDOM.permutation(12).astype(np.float64)
    np.save(tmp_path / "own.npy", scores)
    text = 'reorder ffn by random seed 3\nsubclone ffn to 5 by scores "own.npy" unscaled\n'
    out = stored(applied(tmp_path, model, text))["up_weight"]
    kept = stored(model)["up_weight"][:, stays(scores, 5)]
    assert {tuple(column) for column in out.T} == {tuple(column) for column in kept.T}


@pytest.mark.parametrize(
    ("arrays", "said"),
    [
        ({"ffn.0": np.ones(11)}, "has 11 scores, and there are 12 units"),
        ({"ffn.0": np.ones((1, 12))}, "has 1 x 12 scores, and there are 12 units"),
        ({"ffn.0": np.array([1.0] * 11 + [np.nan])}, "no finite number, of unit 11"),
        ({"ffn.0": np.array([np.inf] + [1.0] * 11)}, "no finite number, of unit 0"),
        ({"ffn.0": np.array(["a"] * 12)}, "scores are real numbers"),
        ({"ffn": np.ones((2, 12))}, "`ffn` of `own.npz` has 2 rows, and the model has 1 spaces"),
        ({"ffn.1": np.ones(12)}, "has no scores of `ffn`: none of `ffn.0`"),
        ({}, "has no scores of `ffn`"),
    ],
)
def test_a_file_without_valid_scores_is_refused(
    tmp_path: Path, arrays: dict[str, np.ndarray], said: str
) -> None:
    model = save(tmp_path / "m.onnx", STREAM)
    np.savez(tmp_path / "own.npz", **arrays)
    found = refused(tmp_path, 'subclone ffn to 5 by scores "own.npz"\n', model)
    assert (found.code, said in found.message) == ("G313", True), found.message
    assert found.span is not None


def test_a_space_without_scores_is_named(tmp_path: Path) -> None:
    model, _ = bytes_of_tiny(tmp_path)
    size = growc.inspect(model).roles.axes["ffn"][0].size
    np.savez(tmp_path / "own.npz", **{"ffn.0": np.ones(size), "ffn.2": np.ones(size)})
    found = refused(tmp_path, 'subclone ffn to 8 by scores "own.npz"\n', model)
    assert "`own.npz` has no `ffn.1`, `ffn.3`" in found.message
    growc.plan(f'in layers 0 {{ subclone ffn to 8 by scores "{tmp_path / "own.npz"}" }}', model)


@pytest.mark.parametrize("name", ["none.npz", "text.npz", "folder"])
def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / "text.npz").write_text("no arrays")
    (tmp_path / "folder").mkdir()
    for statement in ("subclone ffn to 8", "subclone layers to 2"):
        found = refused(tmp_path, f'{statement} by scores "{name}"\n')
        assert found.code in ("G313", "G323")
        assert "pickle" not in found.message
        assert found.span is not None


def test_addressed_units_keep_their_numbers_whatever_their_scores(tmp_path: Path) -> None:
    assert refused(tmp_path, 'subclone vocab to 8 by scores "own.npz"\n').code == "G210"
