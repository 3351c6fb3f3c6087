"""`subclone` on width: what stays, what is rescaled, and that nothing is claimed of it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import MLP, STREAM, save
from judging import run
from models import stored
from planted import difference, planted

import growc
from growc import api
from growc.errors.diagnostic import GrowError
from growc.verification.difference import closeness

RMS = STREAM.replace("LayerNormalization", "SimplifiedLayerNormalization")
RMS = RMS.replace(", norm1_bias)", ")").replace(", norm2_bias)", ")")
RMS = RMS.replace(", float[8] norm1_bias", "").replace(", float[8] norm2_bias", "")


@pytest.fixture
def stream(tmp_path: Path) -> Path:
    return save(tmp_path / "stream.onnx", STREAM)


def applied(recipe: str, model: Path) -> dict[str, np.ndarray]:
    return stored(growc.apply(recipe, model, model.with_name("out.onnx"), check=False, force=True).written)


def test_the_first_units_stay_and_readers_are_rescaled(stream: Path) -> None:
    before, after = stored(stream), applied("subclone ffn to 3 by first", stream)
    assert (after["up_weight"] == before["up_weight"][:, :3]).all()
    assert (after["up_bias"] == before["up_bias"][:3]).all()
    assert np.allclose(after["down_weight"], before["down_weight"][:3] * 2, rtol=1e-6)
    assert (after["down_bias"] == before["down_bias"]).all()


def test_evenly_spaced_units_stay(stream: Path) -> None:
    before, after = stored(stream), applied("subclone ffn to 5 by even unscaled", stream)
    assert (after["down_weight"] == before["down_weight"][[0, 2, 4, 7, 9]]).all()


def test_the_units_of_a_file_stay_in_their_old_order(stream: Path) -> None:
    (stream.parent / "keep.txt").write_text("9\n1\n\n 4 \n")
    recipe = stream.with_name("r.grow")
    recipe.write_text('subclone ffn to 3 by keep "keep.txt" unscaled\n')
    out = growc.apply(recipe, stream, stream.with_name("out.onnx"), check=False).written
    assert (stored(out)["up_weight"] == stored(stream)["up_weight"][:, [1, 4, 9]]).all()


def test_magnitude_is_the_norm_over_all_weights_of_a_unit_each_by_its_own_scale(stream: Path) -> None:
    before = stored(stream)
    parts = [before["up_weight"].T, before["up_bias"][:, None], before["down_weight"]]
    scores = sum(
        (np.asarray(w, dtype=np.float64) ** 2).sum(1) / (w.astype(np.float64) ** 2).sum() for w in parts
    )
    wanted = np.sort(np.argsort(-scores)[:5])
    after = applied("subclone ffn to 5 by magnitude unscaled", stream)
    assert (after["up_weight"] == before["up_weight"][:, wanted]).all()


def test_random_units_are_those_of_the_seed(stream: Path) -> None:
    chosen = [applied(f"subclone ffn to 6 by random seed {s} unscaled", stream)["up_bias"] for s in (1, 1, 2)]
    assert (chosen[0] == chosen[1]).all()
    assert (chosen[0] != chosen[2]).any()
    assert np.isin(chosen[0], stored(stream)["up_bias"]).all()


def test_a_tied_head_is_not_rescaled_but_the_norm_before_it(stream: Path) -> None:
    before, after = stored(stream), applied("subclone hidden to 2 by first", stream)
    assert (after["table"] == before["table"][:, :2]).all()
    for name in ("norm2_weight", "norm2_bias"):
        assert np.allclose(after[name], before[name][:2] * 2, rtol=1e-6)
    assert (after["norm1_weight"] == before["norm1_weight"][:2]).all()
    assert np.allclose(after["up_weight"], before["up_weight"][:2] * 2, rtol=1e-6)
    assert (after["down_weight"] == before["down_weight"][:, :2]).all()


def test_the_plan_says_where_a_tied_head_cannot_be_rescaled(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", STREAM.replace("MatMul(n2, head)", "MatMul(x1, head)"))
    plan = growc.plan("subclone hidden to 4 by first", model)
    assert any("tied head is not rescaled" in note for note in plan.notes)


def test_dropped_units_are_a_gap_of_their_own(stream: Path) -> None:
    plan = growc.plan("subclone hidden to 4 by first\nsubclone ffn to 12 by first", stream)
    assert [gap.cause for gap in plan.certificate.gaps] == ["4 of 8 units of hidden are dropped"]
    assert plan.summaries[1].note == "no change: that is its size"


def test_dead_units_of_an_mlp_are_dropped_without_a_trace(tmp_path: Path) -> None:
    living = np.sort(np.random.default_rng(3).permutation(8)[:5])
    dead = np.setdiff1d(np.arange(8), living)
    random = np.random.default_rng(1)
    up, bias, down = (random.standard_normal(s).astype(np.float32) for s in ((4, 8), (8,), (8, 3)))
    up[:, dead], bias[dead], down[dead] = 0, 0, 0
    model = save(tmp_path / "m.onnx", MLP, fc1_weight=up, fc1_bias=bias, fc2_weight=down)
    axis = 'axis 0 of "fc2_weight"'
    assert difference(f"subclone {axis} to 5 by magnitude", model, tmp_path / "out.onnx") <= 2e-5
    assert (stored(tmp_path / "out.onnx")["fc2_weight"] == down[living]).all()


def test_dead_units_of_a_stream_are_dropped_without_a_trace_where_norms_are_rescaled(tmp_path: Path) -> None:
    model = planted(save(tmp_path / "m.onnx", RMS), "hidden", "13", tmp_path / "planted.onnx")
    recipe = "subclone hidden to 8 by magnitude"
    out = tmp_path / "out.onnx"
    assert difference(f"{recipe} rescaled in norms", model, out) <= 2e-5
    assert difference(f"{recipe} unscaled", model, tmp_path / "other.onnx") > 1e-2


def test_a_centred_living_part_of_a_stream_with_layer_norms_stays_as_it_is(tmp_path: Path) -> None:
    random = np.random.default_rng(2)
    living = np.sort(random.permutation(8)[:5])
    values = {
        "table": (16, 8),
        "down_weight": (12, 8),
        "down_bias": (1, 8),
    }
    made = {}
    for name, shape in values.items():
        part = random.standard_normal((shape[0], 5))
        made[name] = np.zeros(shape, dtype=np.float32)
        made[name][:, living] = part - part.mean(1, keepdims=True)
    made["down_bias"] = made["down_bias"][0]
    up = np.zeros((8, 12), dtype=np.float32)
    up[living] = random.standard_normal((5, 12))
    bias = np.zeros((2, 8), dtype=np.float32)
    bias[:, living] = random.standard_normal((2, 5))
    model = save(tmp_path / "m.onnx", STREAM, **made, up_weight=up, norm1_bias=bias[0], norm2_bias=bias[1])
    recipe = "subclone hidden to 5 by magnitude rescaled in norms"
    assert difference(recipe, model, tmp_path / "out.onnx") <= 2e-5


def test_a_reduced_output_is_compared_on_the_units_that_stay(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", MLP)
    done = growc.apply('subclone axis 1 of "fc2_weight" to 2 by first', model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6


WRONG = {
    "larger": ("subclone ffn to 13 by first", "G303"),
    "nothing": ("subclone ffn to ffn - 12 by first", "G312"),
    "too few listed": ('subclone ffn to 4 by keep "keep.txt"', "G313"),
    "no such unit": ('subclone ffn to 1 by keep "wrong.txt"', "G313"),
    "no file": ('subclone ffn to 4 by keep "nosuch.txt"', "G313"),
    "even is no order": ("reorder ffn by even", "G313"),
    "an output's axis": ('subclone axis 1 of "head" to 4 by magnitude', "G313"),
}


@pytest.mark.parametrize("case", WRONG)
def test_an_impossible_reduction_of_an_axis_is_refused(tmp_path: Path, case: str) -> None:
    recipe, code = WRONG[case]
    (tmp_path / "keep.txt").write_text("1\n2\n")
    (tmp_path / "wrong.txt").write_text("12\n")
    text = STREAM.replace("head = Transpose <perm = [1, 0]> (table)\n", "").replace(
        "float[8] norm2_bias>", "float[8] norm2_bias, float[8, 16] head>"
    )
    model = save(tmp_path / "m.onnx", text)
    path = tmp_path / "r.grow"
    path.write_text(recipe + "\n")
    with pytest.raises(GrowError) as caught:
        growc.plan(path, model)
    assert [d.code for d in caught.value.diagnostics] == [code]


TOKENS = """
tokens (int64[N, S] ids) => (float[N, S, 6] y)
<float[10, 8] table, float[40, 8] places, int64[1] zero, int64[1] one, int64[1] two, float[8, 6] head>
{
    x0 = Gather(table, ids)
    shape = Shape(ids)
    size = Slice(shape, one, two, zero)
    p = Slice(places, zero, size, zero)
    x = Add(x0, p)
    y = MatMul(x, head)
}
"""


def tokens(path: Path, text: str = TOKENS) -> Path:
    numbers = {"zero": [0], "one": [1], "two": [2]}
    return save(path, text, **{k: np.array(v, dtype=np.int64) for k, v in numbers.items()})


@pytest.mark.parametrize("ranking", ["first", 'keep "keep.txt"'])
def test_a_smaller_vocabulary_is_measured_on_the_tokens_that_stay(tmp_path: Path, ranking: str) -> None:
    model = tokens(tmp_path / "m.onnx")
    (tmp_path / "keep.txt").write_text("9\n3\n5\n0\n")
    recipe = tmp_path / "r.grow"
    recipe.write_text(f"subclone vocab to 4 by {ranking}\n")
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-6
    if ranking == "first":
        assert api.verify(model, done.written).relative < 1e-6


def test_fewer_positions_are_measured_on_lengths_that_fit(tmp_path: Path) -> None:
    done = growc.apply(
        "subclone positions to 24 by first", tokens(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    )
    assert done.verification is not None
    assert done.verification.relative < 1e-6


def test_numbers_that_are_compared_cannot_get_a_new_meaning(tmp_path: Path) -> None:
    text = TOKENS.replace(
        "y = MatMul(x, head)",
        "pad = Equal(ids, one)\n h = MatMul(x, head)\n"
        " m0 = Cast <to = 1> (pad)\n m = Unsqueeze(m0, two)\n y = Mul(h, m)",
    )
    model = tokens(tmp_path / "m.onnx", text)
    (tmp_path / "keep.txt").write_text("9\n3\n5\n0\n")
    recipe = tmp_path / "r.grow"
    recipe.write_text('subclone vocab to 4 by keep "keep.txt"\n')
    with pytest.raises(GrowError, match="`pad` uses them"):
        growc.plan(recipe, model)
    growc.plan("subclone vocab to 4 by first", model)


def test_inputs_with_tokens_that_are_gone_are_refused(tmp_path: Path) -> None:
    model = tokens(tmp_path / "m.onnx")
    (tmp_path / "keep.txt").write_text("9\n3\n")
    np.savez(tmp_path / "in.npz", ids=np.array([[3, 9, 4]]))
    recipe = tmp_path / "r.grow"
    recipe.write_text('subclone vocab to 2 by keep "keep.txt"\n')
    with pytest.raises(GrowError, match="no unit for"):
        growc.apply(recipe, model, tmp_path / "out.onnx", inputs=tmp_path / "in.npz")


def test_outputs_that_look_like_logits_are_compared_as_distributions(stream: Path) -> None:
    done = growc.apply("subclone ffn to 6 by magnitude", stream, stream.with_name("out.onnx"))
    assert done.verification is not None
    near = done.verification.outputs["logits"].closeness
    assert near is not None
    tokens = np.random.default_rng(7).integers(0, 16, 200)
    before, after = (
        run(path, {"tokens": tokens})["logits"].astype(np.float64) for path in (stream, done.written)
    )
    p, q = (np.exp(x) / np.exp(x).sum(1, keepdims=True) for x in (before, after))
    known = closeness(before, after)
    assert known.kl == pytest.approx(float((p * np.log(p / q)).sum(1).mean()))
    assert known.agreement == pytest.approx(float((before.argmax(1) == after.argmax(1)).mean()))
    assert near.rows > 0
    assert near.kl > 0
    exact = growc.apply("reorder ffn by first", stream, stream.with_name("same.onnx")).verification
    assert exact is not None
    assert exact.outputs["logits"].closeness is None
