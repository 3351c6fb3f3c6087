"""The emitted weights are what language.md's tables say, computed here from the source's weights alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Weights, epsilons
from formulas import COPIES, FILLS, LAYERS, Growth, gain_factor, gpt2, growth
from models import stored
from numpy.typing import NDArray

ATTENTION, FFN = "transformer.h.{}.attn.c_attn.bias", "transformer.h.{}.mlp.c_fc.bias"
SIZES = {"hidden": (48, 64), "heads": (6, 8), "ffn": (192, 256), "vocab": (90, 101), "positions": (32, 40)}
WIDE = {"hidden": 120, "heads": 15, "ffn": 450, "vocab": 190, "positions": 80}


def drawn_sources(units: NDArray[Any], source: NDArray[Any]) -> NDArray[np.int64]:
    """Which row of `source` each new row of `units` is."""
    same = (
        (units[len(source) :, None] == source[None]).reshape(len(units) - len(source), len(source), -1).all(2)
    )
    assert (same.sum(1) == 1).all(), "a new unit is no copy of exactly one old unit"
    return same.argmax(1)


def read_off(axis: str, source: Weights, result: Weights, layer: int = 0) -> NDArray[np.int64]:
    """The sources that `uniform copy` drew, from one weight of the result."""
    table, places = "transformer.wte.weight", "transformer.wpe.weight"
    name = {"hidden": table, "vocab": table, "positions": places, "heads": ATTENTION, "ffn": FFN}[
        axis
    ].format(layer)
    before, after = source[name], result[name]
    if axis == "hidden":
        before, after = before.T, after.T
    if axis == "heads":
        before, after = before[:48].reshape(6, 8), np.split(after, 3)[0].reshape(-1, 8)
    return drawn_sources(after, before)


def growths(axis: str, fill: str, size: int, source: Weights, result: Weights) -> dict[str, Any]:
    """The arguments of `gpt2` for one widened axis."""
    d, addressed = SIZES[axis][0], axis in ("vocab", "positions")
    each = axis in ("heads", "ffn")
    found = []
    for layer in range(LAYERS if each else 1):
        drawn = read_off(axis, source, result, layer) if fill == "uniform copy" else []
        found.append(growth(fill, d, size, drawn, addressed=addressed))
    return {axis: found if each else found[0]}


def assert_drawn(values: NDArray[Any], std: float, name: str) -> None:
    """Values look like draws from N(0, std²), within five standard errors."""
    n = len(values)
    assert abs(values.mean()) < 5 * std / np.sqrt(n), name
    assert abs(values.std() / std - 1) < 5 / np.sqrt(2 * n), name
    assert len(np.unique(values)) > 0.99 * n, name


def assert_as_said(result: Weights, said: Weights, source: Weights) -> None:
    """Every emitted entry is what was said of it; where NaN was said, it was drawn with the source's std."""
    for name, expected in said.items():
        emitted = result[name]
        assert emitted.shape == expected.shape, name
        free = np.isnan(expected)
        np.testing.assert_allclose(emitted[~free], expected[~free], rtol=3e-7, atol=1e-9, err_msg=name)
        if free.any():
            assert_drawn(emitted[free], float(source[name].astype(np.float64).std()), name)
    np.testing.assert_array_equal(result["head"], result["transformer.wte.weight"].T)
    strangers = set(result) - set(said) - {"head"}
    assert not strangers


@pytest.mark.sampled(7)
@pytest.mark.parametrize("flavour", ["torchscript", "dynamo"])
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("axis", SIZES)
def test_every_weight_is_what_the_fill_says(models, grown, axis, fill, flavour):
    source, size = models.weights("gpt2"), SIZES[axis][1]
    result = grown(f"widen {axis} to {size} with {fill}", flavour=flavour)
    assert_as_said(result, gpt2(source, **growths(axis, fill, size, source, result)), source)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("axis", SIZES)
def test_every_weight_is_what_the_fill_says_at_more_than_twice_the_size(models, grown, axis, fill):
    source, size = models.weights("gpt2"), WIDE[axis]
    result = grown(f"widen {axis} to {size} with {fill}")
    assert_as_said(result, gpt2(source, **growths(axis, fill, size, source, result)), source)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("fill", "size"), [("average fill", 64), ("average fill", 120), ("cyclic copy", 96)])
def test_eps_follows_the_width(grow, fill, size):
    factor = gain_factor(growth(fill, 48, size)) ** 2
    written = grow(f"widen hidden to {size} with {fill}").written
    assert epsilons(written) == pytest.approx([1e-5 * factor] * 5, rel=1e-6)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", COPIES)
def test_statements_on_several_axes_do_not_meet(models, grown, fill):
    source = models.weights("gpt2")
    result = grown("\n".join(f"widen {axis} to {size} with {fill}" for axis, (_, size) in SIZES.items()))
    said: dict[str, Any] = {}
    for axis, (d, size) in SIZES.items():
        drawn = _composed(axis, source, result) if fill == "uniform copy" else None
        if drawn is None:
            said |= growths(axis, fill, size, source, result)
        else:
            made = [growth(fill, d, size, one, addressed=axis in ("vocab", "positions")) for one in drawn]
            said[axis] = made if axis in ("heads", "ffn") else made[0]
    assert_as_said(result, gpt2(source, **said), source)


def _composed(axis: str, source: Weights, result: Weights) -> list[NDArray[np.int64]]:
    """The drawn sources of one axis where all were widened: on the old units of the others."""
    old = dict(result)
    table, places = "transformer.wte.weight", "transformer.wpe.weight"
    if axis == "hidden":
        old[table] = result[table][:90]
    if axis == "vocab":
        old[table] = result[table][:, :48]
    if axis == "positions":
        old[places] = result[places][:, :48]
    return [read_off(axis, source, old, layer) for layer in range(LAYERS if axis in ("heads", "ffn") else 1)]


def test_the_mean_of_blocks_is_taken_element_by_element(models, grown):
    """No norm feeds such units zeros, so what reads them is zero."""
    source, result = (
        models.weights("gpt2"),
        grown("widen hidden to 64 with average fill in blocks of head_dim"),
    )
    table, reader = "transformer.wte.weight", "transformer.h.0.attn.c_attn.weight"
    mean = source[table].reshape(90, 6, 8).mean(1, dtype=np.float64)
    expected = np.concatenate([source[table], mean, mean], axis=1)
    np.testing.assert_allclose(result[table], expected, rtol=3e-7, atol=1e-9)
    np.testing.assert_array_equal(result[reader][48:], 0)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", [*COPIES, "zero fill", "random fill"])
def test_blocks_are_copied_whole(models, grown, fill):
    source = models.weights("gpt2")
    result = grown(f"widen hidden to 64 with {fill} in blocks of head_dim")
    blocks = (
        source["transformer.wte.weight"].T.reshape(6, -1),
        result["transformer.wte.weight"].T.reshape(8, -1),
    )
    drawn = drawn_sources(blocks[1], blocks[0]) if fill == "uniform copy" else []
    stream = growth(fill, 6, 8, drawn).in_units_of(8)
    assert_as_said(result, gpt2(source, hidden=stream), source)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", FILLS)
@pytest.mark.parametrize("axis", ["heads", "ffn"])
def test_with_zero_outputs_the_new_reading_columns_are_zero(models, grown, axis, fill):
    source, size = models.weights("gpt2"), SIZES[axis][1]
    result = grown(f"widen {axis} to {size} with {fill} with zero outputs")
    said = gpt2(source, **growths(axis, fill, size, source, result), silent=True)
    assert_as_said(result, said, source)


@pytest.mark.parametrize("axis", ["heads", "ffn"])
def test_every_layer_draws_its_own_sources(models, grown, axis):
    source = models.weights("gpt2")
    result = grown(f"widen {axis} to {SIZES[axis][1] * 2} with uniform copy")
    first, second = (read_off(axis, source, result, layer) for layer in range(LAYERS))
    assert (first != second).any()


def test_another_seed_draws_other_sources_and_the_same_seed_the_same(models, grown):
    source = models.weights("gpt2")
    recipe = "widen ffn to 256 with uniform copy seed {}"
    one, two, again = (read_off("ffn", source, grown(recipe.format(s))) for s in (1, 2, 1))
    assert (one != two).any()
    assert (one == again).all()


def test_sources_are_drawn_uniformly(models, grown):
    source = models.weights("gpt2")
    result = grown("widen ffn to 20 * ffn with uniform copy")
    counts = np.bincount(read_off("ffn", source, result), minlength=192)
    expected = 19
    assert ((counts - expected) ** 2).sum() / expected < 191 + 5 * np.sqrt(2 * 191)


def test_random_entries_differ_from_weight_to_weight(grown):
    result = grown("widen hidden to 96 with random fill")
    tails = [result[f"transformer.h.{i}.attn.c_proj.weight"][:, 48:].ravel() for i in range(2)]
    tails.append(result["transformer.h.0.attn.c_attn.weight"][48:, :48].ravel())
    for i, a in enumerate(tails):
        for b in tails[:i]:
            assert abs(np.corrcoef(a, b)[0, 1]) < 5 / np.sqrt(len(a))


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "how",
    [
        *(
            "uniform copy",
            "random fill",
            "average fill",
            "zero fill",
            "uniform copy noise 0.1",
            "random fill noise 0.1",
        ),
        *("uniform copy split random noise 0.1 balanced", "uniform copy noise 0.1 on copies"),
    ],
)
def test_both_exporters_give_the_same_weights(grown, how):
    recipe = "\n".join(f"widen {axis} to {size} with {how}" for axis, (_, size) in SIZES.items())
    one, other = grown(recipe, flavour="torchscript"), grown(recipe, flavour="dynamo")
    assert one.keys() == other.keys()
    for name in one:
        np.testing.assert_array_equal(one[name], other[name], err_msg=name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    "recipe",
    [
        "widen hidden to 64 with random fill\nwiden vocab to 99 with random fill",
        "widen ffn to 2 * ffn - 5 with uniform copy split random noise 0.1 balanced",
        "widen heads to 12 with random fill noise 0.1",
    ],
)
@pytest.mark.parametrize("model", ["llama", "bert", "gpt2-default"])
def test_both_exporters_give_the_same_matrices_to_other_models(grow, model, recipe):
    left = matrices(grow(recipe, model, "dynamo", check=False).written)
    for one in matrices(grow(recipe, model, "torchscript", check=False, out="torchscript.onnx").written):
        found = [i for i, other in enumerate(left) if any(np.array_equal(one, o) for o in (other, other.T))]
        assert found, one.shape
        del left[found[0]]
    assert left == []


def matrices(path: Path) -> list[NDArray[Any]]:
    return [w for w in stored(path).values() if w.dtype == np.float32 and w.ndim == 2]


def test_a_growth_in_units_repeats_every_unit_as_a_run():
    assert Growth("cyclic copy", 2, np.array([0, 1, 0, -1])).in_units_of(2).g.tolist() == [
        0,
        1,
        2,
        3,
        0,
        1,
        -1,
        -1,
    ]
