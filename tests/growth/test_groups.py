"""Groups of query heads: every group splits, then `kv_heads` maps groups, then `heads` acts inside them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import save
from models import stored

import growc
from growc.errors.diagnostic import GrowError

K, G, D, H = 2, 4, 4, 12
"""Key/value heads, query heads in each group, head_dim, hidden."""

HEAD = """
attention (float[B, S, 12] x) => (float[B, S, 12] y)
<float[12, 32] q_weight, float[32] q_bias, float[12, 8] k_weight, float[8] k_bias, float[12, 8] v_weight,
 float[12, 48] packed_weight, float[32, 12] o_weight, float[4] gain,
 int64[5] wide, int64[4] merged, int64[4] few, int64[4] flat4, int64[5] five, int64[3] back, int64[1] two,
 int64[3] parts, int64[1,1] k_at, int64[1,1] v_at, int64[1] none, int64[1] last_two, int64[1] three>
{
"""

EXPANDED = (
    HEAD
    + """
    q0 = MatMul(x, q_weight)
    q1 = Add(q0, q_bias)
    q2 = Reshape(q1, merged)
    q = Transpose <perm = [0, 2, 1, 3]> (q2)
    k0 = MatMul(x, k_weight)
    k1 = Add(k0, k_bias)
    k2 = Reshape(k1, few)
    k3 = Mul(k2, gain)
    k4 = Transpose <perm = [0, 2, 1, 3]> (k3)
    k5 = Unsqueeze(k4, two)
    k6 = Expand(k5, wide)
    k7 = Reshape(k6, flat4)
    k = Transpose <perm = [0, 1, 3, 2]> (k7)
    v0 = MatMul(x, v_weight)
    v2 = Reshape(v0, few)
    v4 = Transpose <perm = [0, 2, 1, 3]> (v2)
    v5 = Unsqueeze(v4, two)
    v6 = Expand(v5, wide)
    v = Reshape(v6, flat4)
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 2, 1, 3]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}
"""
)

PACKED = (
    HEAD
    + """
    z0 = MatMul(x, packed_weight)
    z1 = Reshape(z0, five)
    z = Transpose <perm = [0, 2, 3, 1, 4]> (z1)
    q, k0, v = Split <axis = 2> (z, parts)
    k = Transpose <perm = [0, 1, 2, 4, 3]> (k0)
    s = MatMul(q, k)
    p = Softmax <axis = -1> (s)
    c0 = MatMul(p, v)
    c1 = Transpose <perm = [0, 3, 1, 2, 4]> (c0)
    c = Reshape(c1, back)
    y = MatMul(c, o_weight)
}
"""
)

VECTORS = PACKED.replace(
    """
    z = Transpose <perm = [0, 2, 3, 1, 4]> (z1)
    q, k0, v = Split <axis = 2> (z, parts)
    k = Transpose <perm = [0, 1, 2, 4, 3]> (k0)
""",
    """
    z2 = Slice(z1, none, last_two, three)
    q = Transpose <perm = [0, 2, 3, 1, 4]> (z2)
    z = Transpose <perm = [3, 0, 1, 2, 4]> (z1)
    k0 = GatherND(z, k_at)
    k = Transpose <perm = [1, 3, 0, 4, 2]> (k0)
    v0 = GatherND(z, v_at)
    v = Transpose <perm = [1, 3, 0, 2, 4]> (v0)
""",
)


@pytest.fixture(params=["expanded", "packed", "vectors"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    values = {
        "wide": [1, 1, G, 1, 1],
        "merged": [0, 0, K * G, D],
        "few": [0, 0, -1, D],
        "flat4": [0, K * G, -1, D],
        "five": [0, 0, K, G + 2, D],
        "back": [0, 0, -1],
        "two": [2],
        "parts": [G, 1, 1],
        "k_at": [[-2]],
        "v_at": [[-1]],
        "none": [0],
        "last_two": [-2],
        "three": [3],
    }
    text = {"expanded": EXPANDED, "packed": PACKED, "vectors": VECTORS}[request.param]
    return save(tmp_path / "m.onnx", text, **{k: np.array(v, dtype=np.int64) for k, v in values.items()})


CASES = {
    "kv_heads alone splits every group": ("widen kv_heads to 4 with neighbor copy", 4, 8),
    "to one query head each": ("widen kv_heads to heads with neighbor copy", 8, 8),
    "both, groups kept": (
        "widen heads to 16 with uniform copy\nwiden kv_heads to 4 with uniform copy",
        4,
        16,
    ),
    "split and copied": (
        "widen kv_heads to 6 with uniform copy noise 0.1 balanced split random\n"
        "widen heads to 12 with last copy",
        6,
        12,
    ),
    "heads alone act inside groups": ("widen heads to 12 with neighbor copy split random", 2, 12),
    "no whole groups in between": (
        "widen kv_heads to 3 with cyclic copy\nwiden heads to 15 with uniform copy",
        3,
        15,
    ),
    "as many means as there are": (
        "widen kv_heads to 4 with neighbor copy\nsubclone kv_heads to 4 by mean\n"
        "widen heads to 16 with uniform copy",
        4,
        16,
    ),
    "in two steps": (
        "widen kv_heads to 4 with neighbor copy\nwiden kv_heads to 2 * kv_heads with uniform copy\n"
        "widen heads to 2 * heads with neighbor copy",
        8,
        16,
    ),
}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("case", CASES)
def test_heads_and_groups_grow_exactly(model: Path, tmp_path: Path, case: str) -> None:
    recipe, kv_heads, heads = CASES[case]
    done = growc.apply(f"{recipe}\nexpect exact", model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    axes = growc.inspect(done.written).roles
    assert axes.sizes("kv_heads") == [kv_heads]
    assert axes.sizes("heads") == [heads]


@pytest.mark.parametrize(
    ("recipe", "kv_heads", "heads"),
    [
        ("widen kv_heads to 2 with neighbor copy", 2, 4),
        ("widen kv_heads to heads with neighbor copy", 4, 4),
        ("widen kv_heads to 3 with uniform copy\nwiden heads to 12 with uniform copy split random", 3, 12),
        ("widen heads to 6 with neighbor copy", 1, 6),
    ],
)
def test_a_single_key_head_is_counted(tmp_path: Path, recipe: str, kv_heads: int, heads: int) -> None:
    text = EXPANDED.replace("[12, 32]", "[12, 16]").replace("[32]", "[16]").replace("[32, 12]", "[16, 12]")
    text = text.replace("[12, 8]", "[12, 4]").replace("[8]", "[4]")
    shapes = {
        "wide": [1, 1, 4, 1, 1],
        "merged": [0, 0, -1, 4],
        "few": [0, 0, -1, 4],
        "flat4": [0, 4, -1, 4],
        "back": [0, 0, -1],
        "two": [2],
    }
    values = {k: np.array(v, dtype=np.int64) for k, v in shapes.items()}
    path = save(tmp_path / "one.onnx", text, **values)
    assert growc.inspect(path).roles.sizes("kv_heads") == [1]
    done = growc.apply(f"{recipe}\nexpect exact", path, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    axes = growc.inspect(done.written).roles
    assert (axes.sizes("kv_heads"), axes.sizes("heads")) == ([kv_heads], [heads])


@pytest.mark.parametrize(
    ("recipe", "told"),
    [
        ("widen kv_heads to 4 with uniform copy noise 0.1", ["noise 0.1"]),
        ("widen kv_heads to 4 with uniform copy split random", ["split random"]),
        ("widen kv_heads to 4 with uniform copy reset 0.5", ["reset 0.5"]),
        ("widen kv_heads to 4 with uniform copy", []),
        ("widen kv_heads to 6 with uniform copy noise 0.1\nwiden heads to 24 with uniform copy", []),
    ],
)
def test_a_note_says_that_options_change_nothing_where_groups_split(
    model: Path, recipe: str, told: list[str]
) -> None:
    notes = growc.plan(recipe, model).notes
    words = "changes nothing: groups that split copy their key and value heads as they are"
    assert [note for note in notes if words in note] == [f"`{option}` {words}" for option in told]


def test_key_heads_are_copied_and_query_heads_stay(model: Path, tmp_path: Path) -> None:
    """Query head (k, g) becomes (k·s + g // G', g mod G'): an axis that holds both stays as it was."""
    done = growc.apply("widen kv_heads to 4 with neighbor copy", model, tmp_path / "out.onnx")
    before, after = stored(model), stored(done.written)
    assert (after["o_weight"] == before["o_weight"]).all()
    if "k_weight" in after:
        assert (after["q_weight"] == before["q_weight"]).all()
        repeated = np.repeat(before["k_weight"].reshape(H, K, D), 2, axis=1).reshape(H, -1)
        assert (after["k_weight"] == repeated).all()
    else:  # rows (k [g + 1 + 1] d): each part of a group takes its query heads and both others
        old, new = (w["packed_weight"].reshape(H, n, -1, D) for w, n in ((before, K), (after, 2 * K)))
        for i in range(2 * K):
            half = old[:, i // 2, (i % 2) * 2 : (i % 2) * 2 + 2]
            assert (new[:, i] == np.concatenate([half, old[:, i // 2, G:]], axis=1)).all()


def test_another_name_of_grouped_heads_meets_them_split(model: Path, tmp_path: Path) -> None:
    """A statement on a tensor's axis maps the heads that a statement on `kv_heads` above it left."""
    order = "widen kv_heads to 4 with neighbor copy\nwiden kv_heads to 2 * kv_heads with neighbor copy\n"
    order += 'reorder axis 0 of "o_weight" by random seed 3\nreorder kv_heads by magnitude\nexpect exact'
    done = growc.apply(order, model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    axes = growc.inspect(done.written).roles
    assert (axes.sizes("kv_heads"), axes.sizes("heads")) == ([8], [8])


NUMBERED = EXPANDED.replace("(float[B, S, 12] y)", "(float[B, S, 12] y, float[B, N, S, 4] z)").replace(
    "    k5 = ", "    z = Gather <axis = 1> (k4, pick)\n    k5 = "
)
"""Key heads are given out by their numbers."""


def numbered(tmp_path: Path, text: str, **more: list[int]) -> Path:
    values = {"wide": [1, 1, G, 1, 1], "merged": [0, 0, K * G, D], "few": [0, 0, -1, D], "two": [2]}
    values |= {"flat4": [0, K * G, -1, D], "back": [0, 0, -1], **more}
    return save(tmp_path / "m.onnx", text, **{k: np.array(v, dtype=np.int64) for k, v in values.items()})


@pytest.mark.parametrize(
    "recipe",
    [
        "widen kv_heads to 4 with neighbor copy",
        "widen kv_heads to 8 with uniform copy",
        "widen kv_heads to 4 with neighbor copy\nwiden heads to 16 with uniform copy",
        "widen kv_heads to 4 with neighbor copy\nwiden kv_heads to 8 with neighbor copy",
    ],
)
def test_constants_that_number_key_heads_follow_their_groups(tmp_path: Path, recipe: str) -> None:
    text = NUMBERED.replace("int64[1] three>", "int64[1] three, int64[3] pick>")
    path = numbered(tmp_path, text, pick=[1, 0, -1])
    done = growc.apply(f"{recipe}\nexpect exact", path, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5


def test_constants_that_number_key_heads_refuse_means(tmp_path: Path) -> None:
    text = NUMBERED.replace("int64[1] three>", "int64[1] three, int64[3] pick>")
    with pytest.raises(GrowError, match="`z` numbers them by constants"):
        growc.plan("subclone kv_heads to 1 by mean", numbered(tmp_path, text, pick=[1, 0, -1]))


@pytest.mark.parametrize(
    "recipe", ["widen kv_heads to 4 with neighbor copy", "subclone kv_heads to 1 by mean"]
)
def test_an_input_that_numbers_key_heads_refuses_other_groups(tmp_path: Path, recipe: str) -> None:
    text = NUMBERED.replace("(float[B, S, 12] x)", "(float[B, S, 12] x, int64[N] pick)")
    with pytest.raises(GrowError, match="`z` takes their numbers from `pick`"):
        growc.plan(recipe, numbered(tmp_path, text))


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        ("widen kv_heads to 3 with uniform copy", "8 `heads` cannot share 3 `kv_heads`"),
        (
            "widen kv_heads to 4 with uniform copy\nwiden heads to 12 with uniform copy",
            "groups of 4 query heads cannot split into groups of 3",
        ),
    ],
)
def test_a_size_that_makes_no_whole_groups_is_refused(model: Path, recipe: str, message: str) -> None:
    with pytest.raises(GrowError, match=message):
        growc.plan(recipe, model)
