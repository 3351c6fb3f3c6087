"""Shares, noise and weighted copies: what options add to a fill, read off the emitted weights.

An option's draw is the difference to the same recipe without it; the sources of `uniform copy` are the
same in both, because they are drawn by themselves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from conftest import Weights
from models import LARGE_EPS, scalars, stored
from numpy.typing import NDArray

AXES = {"hidden": 64, "heads": 8, "ffn": 256}
AT = "transformer.h.1."
ATTENTION = (AT + "attn.c_attn.weight", AT + "attn.c_attn.bias", AT + "attn.c_proj.weight")
MAKING = {
    "hidden": [("transformer.wpe.weight", 1), (AT + "attn.c_proj.weight", 1), (AT + "mlp.c_proj.weight", 1)],
    "heads": [(ATTENTION[0], 1)],
    "ffn": [(AT + "mlp.c_fc.weight", 1)],
}
"""The making weights of one layer with the axis that they make; neither biases nor the tied table."""
READING = {
    "hidden": [(AT + "attn.c_attn.weight", 0), (AT + "mlp.c_fc.weight", 0)],
    "heads": [(AT + "attn.c_proj.weight", 0)],
    "ffn": [(AT + "mlp.c_proj.weight", 0)],
}


def units_of(axis: str, source: Weights, result: Weights) -> NDArray[np.int64]:
    """The source of every element of a widened axis (layer 1), from weights that no option changes."""
    names = {"hidden": "transformer.wte.weight", "heads": ATTENTION[1], "ffn": AT + "mlp.c_fc.bias"}
    before, after = source[names[axis]], result[names[axis]]
    if axis == "hidden":
        before, after = before.T, after.T
    if axis == "heads":
        before, after = np.split(before, 3)[0], np.split(after, 3)[0]
    return (after[:, None] == before[None]).reshape(len(after), len(before), -1).all(2).argmax(1)


def matrix(weights: Weights, name: str, axis: int) -> NDArray[np.float64]:
    """A weight with the axis first; the parts of the packed projection side by side where they are made."""
    array = weights[name].astype(np.float64)
    if name == ATTENTION[0] and axis == 1:
        return np.concatenate([p.T for p in np.split(array, 3, 1)], 1)
    return np.moveaxis(array, axis, 0)


def others(axis: str, source: Weights) -> list[str]:
    """Weights that an option on the axis never touches: gains, biases, the tied table, other roles."""
    touched = {name.replace("h.1", f"h.{i}") for name, _ in MAKING[axis] + READING[axis] for i in range(2)}
    return [name for name in source if name not in touched and name != "lm_head.weight"]


def assert_normal(values: NDArray[Any], std: float) -> None:
    """Values look like draws from N(0, std²), within five standard errors."""
    n = values.size
    assert abs(values.mean()) < 5 * std / np.sqrt(n)
    assert abs(values.std() / std - 1) < 5 / np.sqrt(2 * n)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["uniform copy", "neighbor copy", "last copy"])
@pytest.mark.parametrize("axis", AXES)
def test_random_shares_sum_to_one_for_each_unit_and_lie_between_half_the_equal_share_and_half_more(
    models, grown, axis, fill
):
    source = models.weights("gpt2")
    result = grown(f"widen {axis} to 2 * {axis} - {axis} / 6 with {fill} split random")
    g = units_of(axis, source, result)
    for name, at in READING[axis]:
        before, after = matrix(source, name, at)[g], matrix(result, name, at)
        shares = (after * before).sum(1) / (before**2).sum(1)
        np.testing.assert_allclose(after, shares[:, None] * before, rtol=1e-6, atol=1e-7)
        counts = np.bincount(g)[g]
        np.testing.assert_allclose(np.bincount(g, shares), 1, rtol=1e-6)
        assert (shares > 0.5 / counts * (1 - 1e-6)).all()
        assert (shares < (0.5 / counts + 0.5) * (1 + 1e-6)).all()
        several = counts > 1
        assert several.any()
        assert np.std(shares[several] * counts[several]) > 0.05, "the shares are equal"


def test_random_shares_of_two_copies_are_uniform_between_a_quarter_and_three_quarters(models, grown):
    source, name = models.weights("gpt2"), AT + "mlp.c_proj.weight"
    result = grown("widen ffn to 2 * ffn with cyclic copy split random")
    shares = result[name][:192, 0].astype(np.float64) / source[name][:, 0]
    ordered = np.sort((shares - 0.25) * 2)
    distance = np.abs(ordered - (np.arange(192) + 0.5) / 192).max()
    assert distance < 1.95 / np.sqrt(192), "Kolmogorov and Smirnov at one in a thousand"


@pytest.mark.parametrize("axis", ["hidden", "ffn"])
def test_random_shares_differ_from_weight_to_weight(models, grown, axis):
    source = models.weights("gpt2")
    result = grown(f"widen {axis} to 2 * {axis} with cyclic copy split random")
    found = []
    for layer in range(2):
        for name, _ in READING[axis]:
            w, v = (x[name.replace("h.1", f"h.{layer}")].astype(np.float64) for x in (source, result))
            found.append((v[: len(w)] * w).sum(1) / (w**2).sum(1))
    for i, a in enumerate(found):
        for b in found[:i]:
            assert np.abs(a - b).max() > 0.05


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["uniform copy", "zero fill", "random fill"])
@pytest.mark.parametrize("axis", AXES)
def test_noise_falls_on_making_rows_and_reading_columns_of_new_units_only(models, grown, axis, fill):
    source, recipe = models.weights("gpt2"), f"widen {axis} to {AXES[axis]} with {fill}"
    clean, noisy = grown(recipe), grown(recipe + " noise 0.3")
    old = source[MAKING[axis][0][0]].shape[1] // (3 if axis == "heads" else 1)
    for name, at in MAKING[axis] + READING[axis]:
        noise = matrix(noisy, name, at) - matrix(clean, name, at)
        assert not noise[:old].any(), name
        assert_normal(noise[old:], 0.3 * source[name].std())
    for name in others(axis, source):
        np.testing.assert_array_equal(clean[name], noisy[name], err_msg=name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["uniform copy", "tail copy"])
@pytest.mark.parametrize("axis", AXES)
def test_noise_on_copies_falls_on_reading_columns_of_every_copied_unit(models, grown, axis, fill):
    source, recipe = models.weights("gpt2"), f"widen {axis} to {AXES[axis]} with {fill}"
    clean, noisy = grown(recipe), grown(recipe + " noise 0.3 on copies")
    g = units_of(axis, source, clean)
    several = np.bincount(g)[g] > 1
    for name, at in READING[axis]:
        noise = matrix(noisy, name, at) - matrix(clean, name, at)
        assert not noise[~several].any()
        assert_normal(noise[several], 0.3 * source[name].std())
    reading = {name.replace("h.1", f"h.{i}") for name, _ in READING[axis] for i in range(2)}
    for name in set(clean) - reading:
        np.testing.assert_array_equal(clean[name], noisy[name], err_msg=name)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("split", ["", " split random"])
@pytest.mark.parametrize("fill", ["uniform copy", "last copy"])
@pytest.mark.parametrize("axis", AXES)
def test_balanced_noise_sums_to_zero_over_the_copies_of_a_unit(models, grown, axis, fill, split):
    source, recipe = models.weights("gpt2"), f"widen {axis} to {AXES[axis]} with {fill}{split}"
    clean, noisy = grown(recipe), grown(recipe + " noise 0.3 balanced")
    g = units_of(axis, source, clean)
    several = np.bincount(g)[g] > 1
    for name, at in READING[axis]:
        std = source[name].std()
        noise = matrix(noisy, name, at) - matrix(clean, name, at)
        assert not noise[~several].any()
        assert_normal(noise[several], 0.3 * std)
        total = np.zeros((g.max() + 1, noise.shape[1]))
        np.add.at(total, g, noise)
        assert np.abs(total).max() < 1e-6 * std * several.sum()
    reading = {name.replace("h.1", f"h.{i}") for name, _ in READING[axis] for i in range(2)}
    for name in set(clean) - reading:
        np.testing.assert_array_equal(clean[name], noisy[name], err_msg=name)


# ------------------------------------------------------------------------------- RMSNorm streams

LLAMA = "model.layers.1."


def llama_weights(path: Any) -> Weights:
    """Weights of an exported LLaMA, by torch's names where the exporter keeps them."""
    return {k: v for k, v in stored(path).items() if v.dtype == np.float32 and v.ndim}


@pytest.mark.sampled(4)
@pytest.mark.parametrize("fill", ["uniform copy", "neighbor copy", "tail copy", "last copy"])
def test_copies_on_an_rms_stream_are_weighted_unless_plain(models, grow, fill):
    source = models.weights("llama")
    table, recipe = "model.embed_tokens.weight", f"widen hidden to 64 with {fill}"
    weighted = llama_weights(grow(recipe, "llama", check=False).written)
    plain = llama_weights(grow(recipe + " plain", "llama", check=False, out="plain.onnx").written)
    g = (plain[table].T[:, None] == source[table].T[None]).all(2).argmax(1)
    counts = np.bincount(g)[g]
    assert set(counts) > {1}
    np.testing.assert_array_equal(plain[table], source[table][:, g])
    np.testing.assert_allclose(weighted[table], source[table][:, g] / np.sqrt(counts), rtol=3e-7)
    for name in ("input_layernorm.weight", "post_attention_layernorm.weight"):
        gain = source[LLAMA + name][g]
        np.testing.assert_array_equal(plain[LLAMA + name], gain)
        np.testing.assert_allclose(weighted[LLAMA + name], gain * np.sqrt(counts * 48 / 64), rtol=3e-7)
    last = source["model.norm.weight"][g]
    np.testing.assert_allclose(plain["model.norm.weight"], last / counts, rtol=3e-7)
    np.testing.assert_allclose(weighted["model.norm.weight"], last * np.sqrt(48 / 64), rtol=3e-7)
    for weights in (weighted, plain):
        for name in (
            "self_attn.q_proj",
            "self_attn.k_proj",
            "self_attn.v_proj",
            "mlp.gate_proj",
            "mlp.up_proj",
        ):
            said = source[LLAMA + name + ".weight"].T[g] / counts[:, None]
            assert has(weights, said), name
    assert has(weighted, source[LLAMA + "mlp.down_proj.weight"].T[:, g] / np.sqrt(counts))
    assert has(plain, source[LLAMA + "mlp.down_proj.weight"].T[:, g])
    assert has(weighted, weighted[table].T)


def test_equal_copies_on_an_rms_stream_are_plain(models, grow):
    source, table = models.weights("llama"), "model.embed_tokens.weight"
    result = llama_weights(grow("widen hidden to 96 with cyclic copy", "llama", check=False).written)
    np.testing.assert_array_equal(result[table], np.tile(source[table], 2))
    np.testing.assert_array_equal(result["model.norm.weight"], np.tile(source["model.norm.weight"], 2) / 2)
    name = LLAMA + "input_layernorm.weight"
    np.testing.assert_array_equal(result[name], np.tile(source[name], 2))


def test_zeros_on_an_rms_stream_take_the_gain_and_eps_of_the_smaller_width(models, grow):
    source, name = models.weights("llama"), LLAMA + "input_layernorm.weight"
    result = llama_weights(grow("widen hidden to 64 with zero fill", "llama", check=False).written)
    np.testing.assert_allclose(result[name][:48], source[name] * np.sqrt(48 / 64), rtol=3e-7)
    np.testing.assert_allclose(result[name][48:], source[name].mean() * np.sqrt(48 / 64), rtol=1e-6)
    assert not result["model.embed_tokens.weight"][:, 48:].any()


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("recipe", "factor"),
    [
        ("64 with uniform copy", 48 / 64),
        ("64 with zero fill", 48 / 64),
        ("96 with cyclic copy", 1),
        ("64 with last copy plain", 1),
    ],
)
@pytest.mark.parametrize("flavour", ["torchscript", "dynamo"])
def test_eps_of_rms_norms_follows_the_width(models, grow, recipe, factor, flavour):
    written = grow(f"widen hidden to {recipe}", "llama", flavour, check=False).written
    before, after = (scalars(p) for p in (models.path("llama", flavour), written))
    eps = np.float32(LARGE_EPS)
    assert after.count(pytest.approx(eps * factor, rel=1e-6)) == before.count(eps) > 0
    assert factor == 1 or eps not in after


def has(weights: Weights, array: NDArray[Any]) -> bool:
    """Whether one of the weights holds these values, stored either way round."""
    shown = [w for w in weights.values() if w.shape == array.shape] + [
        w.T for w in weights.values() if w.T.shape == array.shape
    ]
    return any(np.allclose(w, array, rtol=3e-7, atol=1e-9) for w in shown)
