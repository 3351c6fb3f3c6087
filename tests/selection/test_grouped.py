"""Shrinking grouped attention: whole groups, or as many heads of each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import grouped
from models import stored

import growc
from growc.errors.diagnostic import GrowError

K, G, D, H = 3, 4, 2, 6


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return attention(tmp_path / "m.onnx")


def attention(path: Path, **more: np.ndarray | str) -> Path:
    return grouped(path, K, G, D, H, **more)


def sizes(path: Path) -> tuple[list[int], list[int]]:
    roles = growc.inspect(path).roles
    return roles.sizes("kv_heads"), roles.sizes("heads")


def test_key_heads_take_their_query_heads_along(model: Path, tmp_path: Path) -> None:
    (tmp_path / "keep.txt").write_text("2\n0\n")
    recipe = tmp_path / "r.grow"
    recipe.write_text('subclone kv_heads to 2 by keep "keep.txt"\n')
    done = growc.apply(recipe, model, tmp_path / "out.onnx")
    assert sizes(done.written) == ([2], [8])
    before, after = stored(model), stored(done.written)
    assert (after["k_weight"] == before["k_weight"].reshape(H, K, D)[:, [0, 2]].reshape(H, -1)).all()
    assert (after["q_weight"] == before["q_weight"].reshape(H, K, G, D)[:, [0, 2]].reshape(H, -1)).all()
    assert (after["o_weight"] == before["o_weight"].reshape(K, G, D, H)[[0, 2]].reshape(-1, H)).all()


def test_every_group_keeps_its_own_best_heads(model: Path, tmp_path: Path) -> None:
    done = growc.apply("subclone heads to 6 by magnitude unscaled", model, tmp_path / "out.onnx")
    assert sizes(done.written) == ([K], [6])
    before, after = stored(model), stored(done.written)
    q, o = before["q_weight"].reshape(H, K, G, D), before["o_weight"].reshape(K, G, D, H)
    scores = (q**2).sum((0, 3)) / (q**2).sum() + (o**2).sum((2, 3)) / (o**2).sum()
    best = np.sort(np.argsort(-scores, axis=1)[:, :2], axis=1)
    assert len({tuple(row) for row in best}) > 1
    wanted = np.concatenate([o[k, best[k]] for k in range(K)]).reshape(-1, H)
    assert (after["o_weight"] == wanted).all()
    assert (after["k_weight"] == before["k_weight"]).all()


def test_dead_heads_at_other_places_in_every_group_are_dropped_without_a_trace(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    q = random.standard_normal((H, K, G, D)).astype(np.float32)
    o = random.standard_normal((K, G, D, H)).astype(np.float32)
    for k, dead in enumerate(([0, 2], [3, 1], [1, 2])):
        q[:, k, dead], o[k, dead] = 0, 0
    model = attention(tmp_path / "m.onnx", q_weight=q.reshape(H, -1), o_weight=o.reshape(-1, H))
    done = growc.apply("subclone heads to 6 by magnitude unscaled", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 2e-5


@pytest.mark.parametrize("axis", ["heads", "kv_heads"])
@pytest.mark.parametrize("ranking", ["magnitude", "random seed 3"])
def test_reordering_is_exact(model: Path, tmp_path: Path, axis: str, ranking: str) -> None:
    done = growc.apply(f"reorder {axis} by {ranking}\nexpect exact", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    assert (stored(done.written)["o_weight"] != stored(model)["o_weight"]).any()


def test_reordering_and_taking_the_first_is_subcloning(model: Path, tmp_path: Path) -> None:
    made = []
    for text in (
        "reorder heads by magnitude\nsubclone heads to 6 by first",
        "subclone heads to 6 by magnitude",
    ):
        path = growc.apply(text, model, tmp_path / "out.onnx", check=False, force=True).written
        o = stored(path)["o_weight"].reshape(K, 2, D * H)
        made.append([sorted(map(bytes, group)) for group in o])
    assert made[0] == made[1]


def test_heads_and_kv_heads_shrink_together(model: Path, tmp_path: Path) -> None:
    recipe = "subclone heads to 4 by magnitude\nsubclone kv_heads to 2 by magnitude"
    assert sizes(growc.apply(recipe, model, tmp_path / "out.onnx").written) == ([2], [4])
    other = "\n".join(recipe.splitlines()[::-1])
    assert sizes(growc.apply(other, model, tmp_path / "other.onnx").written) == ([2], [4])


def test_heads_keep_their_number_where_a_fill_makes_more_in_each_group(model: Path, tmp_path: Path) -> None:
    recipe = "subclone kv_heads to 2 by first\nwiden heads to 12 with neighbor copy"
    assert sizes(growc.apply(recipe, model, tmp_path / "out.onnx").written) == ([2], [12])


WRONG = {
    "groups do not merge": ("subclone heads to 12 by first\nsubclone kv_heads to 2 by first", "G301"),
    "no whole groups": ("subclone heads to 5 by first", "G301"),
    "widened heads": ("widen heads to 24 with tail copy\nreorder heads by magnitude", "G309"),
    "widened key heads": (
        'widen axis 1 of "k_weight" to 12 with cyclic copy\nreorder heads by magnitude',
        "G309",
    ),
    "not the same of every group": ('subclone heads to 6 by keep "keep.txt"', "G313"),
}


@pytest.mark.parametrize("case", WRONG)
def test_impossible_sizes_of_groups_are_refused(model: Path, tmp_path: Path, case: str) -> None:
    recipe, code = WRONG[case]
    (tmp_path / "keep.txt").write_text("\n".join(map(str, range(6))))
    path = tmp_path / "r.grow"
    path.write_text(recipe + "\n")
    with pytest.raises(GrowError) as caught:
        growc.plan(path, model)
    assert [d.code for d in caught.value.diagnostics] == [code]
