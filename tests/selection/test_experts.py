"""Experts: what a router chooses from changes places, or becomes fewer."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from judging import run
from models import stored
from planted import difference

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError
from growc.render.inspection import inspect_data

E, K, H, F = 5, 2, 6, 7

MIXTURE = """
mixture (float[N, 6] x) => (float[N, 6] y)
<float[6, 5] router, float[5] bias, int64[1] k, int64[2] ahead, int64[1] last, int64[1] slots,
 float[5, 6, 7] up, float[5, 7, 6] down>
{
    l0 = MatMul(x, router)
    l = Add(l0, bias)
    p = Softmax <axis = -1> (l)
    w, i = TopK <axis = -1> (p, k)
    u = Gather <axis = 0> (up, i)
    d = Gather <axis = 0> (down, i)
    r = Unsqueeze(x, ahead)
    h0 = MatMul(r, u)
    h = Relu(h0)
    o0 = MatMul(h, d)
    w2 = Unsqueeze(w, last)
    w3 = Unsqueeze(w2, last)
    o = Mul(o0, w3)
    s0 = ReduceSum <keepdims = 0> (o, slots)
    s = Squeeze(s0, slots)
    y = Add(x, s)
}
"""
NUMBERS = {"k": [K], "ahead": [1, 2], "last": [-1], "slots": [1]}

ALL = """
all (float[N, 6] x) => (float[N, 6] y)
<float[6, 5] router, int64[1] outer, int64[2] behind, float[5, 6, 7] up, float[5, 7, 6] down>
{
    l = MatMul(x, router)
    p0 = Relu(l)
    r = Unsqueeze(x, outer)
    h0 = MatMul(r, up)
    h = Relu(h0)
    o0 = MatMul(h, down)
    p1 = Transpose <perm = [1, 0]> (p0)
    p = Unsqueeze(p1, behind)
    o = Mul(o0, p)
    s = ReduceSum <keepdims = 0> (o, outer)
    y = Add(x, s)
}
"""


def mixture(path: Path, text: str = MIXTURE, **weights: np.ndarray) -> Path:
    numbers = {name: np.array(value, dtype=np.int64) for name, value in NUMBERS.items()}
    return save(path, text, **{n: v for n, v in numbers.items() if f"] {n}" in text}, **weights)


def every(path: Path, **weights: np.ndarray) -> Path:
    return save(path, ALL, outer=np.array([0]), behind=np.array([2]), **weights)


def weights() -> dict[str, np.ndarray]:
    random = np.random.default_rng(7)
    shapes = {"router": (H, E), "bias": (E,), "up": (E, H, F), "down": (E, F, H)}
    return {name: random.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}


def test_inspect_says_that_they_are_stacked(tmp_path: Path) -> None:
    for path in (mixture(tmp_path / "m.onnx"), every(tmp_path / "all.onnx")):
        assert inspect_data(growc.inspect(path))["experts"] == ["stacked"]


@pytest.mark.parametrize("ranking", ["magnitude", "random seed 4", "first"])
def test_experts_in_another_order_compute_the_same(tmp_path: Path, ranking: str) -> None:
    model = mixture(tmp_path / "m.onnx", **weights())
    done = growc.apply(f"reorder experts by {ranking}\nexpect exact", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    changed = [n for n, w in stored(done.written).items() if (w != stored(model)[n]).any()]
    assert changed == ([] if ranking == "first" else ["router", "bias", "up", "down"])


SPELLINGS = {
    "reshaped": "f = Flatten(i0)\n i = Reshape(f, whole)",
    "transposed and back": "t = Transpose <perm = [1, 0]> (i0)\n i = Transpose <perm = [1, 0]> (t)",
    "cast": "c = Cast <to = 6> (i0)\n i = Cast <to = 7> (c)",
    "stretched": "t = Unsqueeze(i0, slots)\n e = Tile(t, once)\n i = Squeeze(e, slots)",
    "sliced": "i = Slice(i0, zero, two, slots)",
    "split and joined": "a, b = Split <axis = 1> (i0)\n i = Concat <axis = 1> (a, b)",
    "split and joined the other way round": "a, b = Split <axis = 1> (i0)\n"
    " t = Concat <axis = 1> (b, a)\n i = Gather <axis = 1> (t, turned)",
    "gathered": "i = Gather <axis = 1> (i0, both)",
    "sliced and joined": "a = Slice(i0, zero, slots, slots)\n b = Slice(i0, slots, two, slots)\n"
    " i = Concat <axis = 1> (a, b)",
}
"""Ways by which the numbers of a ranking come to a look-up."""
MORE = {"whole": [0, 2], "zero": [0], "two": [2], "both": [0, 1], "turned": [1, 0], "once": [1, 1, 1]}


@pytest.mark.parametrize("statement", ["reorder experts by magnitude", "subclone experts to 4 by magnitude"])
@pytest.mark.parametrize("spelling", SPELLINGS.values(), ids=SPELLINGS)
def test_numbers_of_a_ranking_are_followed_however_they_are_moved(
    tmp_path: Path, spelling: str, statement: str
) -> None:
    lines = MIXTURE.replace(
        "w, i = TopK <axis = -1> (p, k)", f"w, i0 = TopK <axis = -1> (p, k)\n    {spelling}"
    )
    more = {name: np.array(n, dtype=np.int64) for name, n in MORE.items() if name in spelling}
    names = "".join(f", int64[{len(n)}] {name}" for name, n in more.items())
    plain, moved = (tmp_path / name for name in ("plain.onnx", "moved.onnx"))
    mixture(plain, **weights())
    mixture(moved, lines.replace(", int64[1] slots", f", int64[1] slots{names}"), **weights(), **more)
    kept = []
    for model in (plain, moved):
        out = growc.apply(statement, model, tmp_path / f"{model.stem}.out.onnx", check=False).written
        kept.append(stored(out)["up"])
        x = {"x": np.random.default_rng(3).standard_normal((20, H)).astype(np.float32)}
        if statement.startswith("reorder"):
            np.testing.assert_allclose(run(out, x)["y"], run(model, x)["y"], atol=1e-5)
    np.testing.assert_array_equal(*kept)


VECTORS = {
    "rows that are written": "    t = ScatterND(up, v, half)\n    u = Gather <axis = 0> (t, i)",
    "scores of each row": "    g = GatherND <batch_dims = 1> (p, v)\n    n = Sub(g, w)\n"
    "    z = Unsqueeze(n, ahead_all)\n    u = Add(u0, z)",
}
"""Operations on experts by vectors that hold one number of a ranking each."""


@pytest.mark.parametrize("lines", VECTORS.values(), ids=VECTORS)
def test_vectors_of_one_number_are_followed(tmp_path: Path, lines: str) -> None:
    chosen = "u0 = Gather <axis = 0> (up, i)\n    v = Unsqueeze(i, last)\n    half = Mul(u0, u0)\n" + lines
    text = MIXTURE.replace("u = Gather <axis = 0> (up, i)", chosen)
    text = text.replace(", int64[1] slots", ", int64[1] slots, int64[2] ahead_all")
    model = mixture(tmp_path / "m.onnx", text, ahead_all=np.array([2, 3]), **weights())
    done = growc.apply("reorder experts by magnitude\nexpect exact", model, tmp_path / "out.onnx")
    assert (stored(done.written)["up"] != stored(model)["up"]).any()
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    assert not growc.plan("widen experts to 6 with zero fill", model).certificate.exact


def test_numbers_that_are_joined_with_others_are_not_followed(tmp_path: Path) -> None:
    """The first expert is shared: its number stands beside those of the ranking."""
    joined = MIXTURE.replace(
        "w, i = TopK <axis = -1> (p, k)",
        "w0, i0 = TopK <axis = -1> (p, slots)\n    f = Mul(i0, zero)\n    i = Concat <axis = 1> (i0, f)\n"
        "    w = Concat <axis = 1> (w0, w0)",
    ).replace(", int64[1] slots", ", int64[1] slots, int64[1] zero")
    with pytest.raises(GrowError):
        growc.plan("reorder experts by magnitude", mixture(tmp_path / "m.onnx", joined, zero=np.array([0])))


def test_those_that_are_chosen_most_stay_and_the_plan_names_what_follows(tmp_path: Path) -> None:
    model = mixture(tmp_path / "m.onnx", **weights())
    x = np.random.default_rng(2).standard_normal((50, H)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    recipe = tmp_path / "r.grow"
    recipe.write_text('measure importance on "data.npz"\nsubclone experts to 3 by importance\n')
    done = growc.apply(recipe, model, tmp_path / "out.onnx", check=False)
    scores = x @ weights()["router"] + weights()["bias"]
    chosen = np.argsort(-scores, axis=1)[:, :K]
    counts = np.bincount(chosen.reshape(-1), minlength=E)
    assert np.allclose(growc.measure(model, tmp_path / "data.npz")["experts.0"], counts / chosen.size)
    best = np.sort(np.argsort(-counts, kind="stable")[:3])
    after = stored(done.written)
    assert (after["up"] == weights()["up"][best]).all()
    assert (after["router"] == weights()["router"][:, best]).all()
    causes = [gap.cause for gap in done.plan.certificate.gaps]
    assert [cause.split(" over")[0] for cause in causes[1:]] == ["Softmax", "TopK"]
    assert "2 of 5 units of experts are dropped" in causes[0]


@pytest.mark.parametrize("ranking", ["importance", 'keep "keep.txt"'])
def test_experts_that_are_never_chosen_leave_without_a_trace(tmp_path: Path, ranking: str) -> None:
    values = weights()
    values["bias"][[0, 3]] = -1e4
    model = mixture(tmp_path / "m.onnx", **values)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(2).standard_normal((50, H)).astype(np.float32))
    (tmp_path / "keep.txt").write_text("1\n2\n4\n")
    recipe = tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz"\nsubclone experts to 3 by {ranking}\n')
    assert difference(recipe, model, tmp_path / "out.onnx") <= 2e-5


@pytest.mark.parametrize("ranking", ["importance", "magnitude"])
def test_dead_experts_of_a_sum_leave_without_a_trace(tmp_path: Path, ranking: str) -> None:
    values = weights()
    del values["bias"]
    for name, axis in (("router", 1), ("up", 0), ("down", 0)):
        np.moveaxis(values[name], axis, 0)[[1, 4]] = 0
    model = every(tmp_path / "m.onnx", **values)
    np.savez(tmp_path / "data.npz", x=np.random.default_rng(2).standard_normal((50, H)).astype(np.float32))
    recipe = tmp_path / "r.grow"
    recipe.write_text(f'measure importance on "data.npz"\nsubclone experts to 3 by {ranking}\n')
    assert difference(recipe, model, tmp_path / "out.onnx") <= 2e-5
    assert (stored(tmp_path / "out.onnx")["up"] == values["up"][[0, 2, 3]]).all()


def test_sorting_and_taking_the_first_is_subcloning(tmp_path: Path) -> None:
    model = mixture(tmp_path / "m.onnx", **weights())
    made = []
    for text in (
        "reorder experts by magnitude\nsubclone experts to 3 by first",
        "subclone experts to 3 by magnitude",
    ):
        path = growc.apply(text, model, tmp_path / "out.onnx", check=False, force=True).written
        made.append(sorted(map(bytes, stored(path)["up"])))
    assert made[0] == made[1]
    x = np.random.default_rng(0).standard_normal((4, H)).astype(np.float32)
    assert np.isfinite(run(path, {"x": x})["y"]).all()


GIVEN_OUT = MIXTURE.replace("(float[N, 6] y)", "(float[N, 6] y, int64[N, 2] i)")
COUNTED = MIXTURE.replace(
    "u = Gather <axis = 0> (up, i)", "j = Add(i, last)\n    u = Gather <axis = 0> (up, j)"
)
WRONG = {
    "fewer than are chosen": (MIXTURE, "subclone experts to 1 by first", "chooses 2 of them"),
    "numbers that are given out": (GIVEN_OUT, "reorder experts by magnitude", "TopK reads this"),
    "numbers that are counted with": (COUNTED, "reorder experts by magnitude", "TopK reads this"),
}


@pytest.mark.parametrize("case", WRONG)
def test_impossible_changes_of_experts_are_refused(tmp_path: Path, case: str) -> None:
    text, recipe, message = WRONG[case]
    model = mixture(tmp_path / "m.onnx", text, **weights())
    with pytest.raises(GrowError, match=message):
        growc.plan(recipe, model)


def test_explaining_says_what_is_chosen_from_and_where(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    model = mixture(tmp_path / "m.onnx", **weights())
    assert main(["explain", str(model), "experts"]) == 0
    assert "chosen from: Gather takes of it what a ranking chose" in capsys.readouterr().out
