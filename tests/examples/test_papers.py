"""The emitted weights are what the papers' formulas give, computed from the source's weights alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import pytest
from papers import (
    BERT,
    GPT,
    LLAMA,
    Array,
    Map,
    Maps,
    Read,
    Weight,
    blocks,
    constant,
    counts,
    drawn,
    encoder_decoder,
    expanded,
    in_layer,
    of_layer,
    originals,
    parts,
    placed,
    reads,
    restored,
    tail,
    uses,
    weights,
)
from published import example

import growc

Grow = Callable[..., tuple[list[Weight], list[Weight]]]
MODELS = {"tiny-gpt": (GPT, 4), "tiny-bert": (BERT, 3), "tiny-llama": (LLAMA, 3)}
SILENT = ("out", "out_bias", "down", "down_bias")
"""The last weights and biases before a sum."""


@pytest.fixture
def grow(tmp_path: Path) -> Grow:
    """The weights of an example's model before and after its recipe.

    `layers` are the papers' layers: those that are copies must be copies of what the width made of their
    source, with zero outputs if `silent`; the others are given back, as a model of the old depth.
    """

    def apply(
        name: str, layers: Sequence[int] = (), silent: bool = False
    ) -> tuple[list[Weight], list[Weight]]:
        of = example(name)
        model, depth = MODELS[of.model.stem]
        written = growc.apply(of.recipe, of.model, tmp_path / "grown.onnx", check=False).written
        after = weights(written, placed(model, len(layers) or depth))
        if layers:
            assert_copied(after, layers, silent)
            after = originals(after, layers)
        return weights(of.model, placed(model, depth)), after

    return apply


def assert_copied(after: list[Weight], layers: Sequence[int], silent: bool) -> None:
    """Every layer is the first of its kind once more; with zeros before the sums if new layers are silent."""
    for place, layer in enumerate(layers):
        first = layers.index(layer)
        for copy, source in zip(in_layer(after, place), in_layer(after, first), strict=True):
            zero = silent and place != first and copy.name in SILENT
            what = f"{copy.name} of {place}"
            np.testing.assert_array_equal(copy.value, source.value * (not zero), err_msg=what)


def assert_same(actual: Array, expected: Array, what: Weight) -> None:
    name = f"{what.name} of layer {what.layer}"
    assert actual.shape == expected.shape, name
    np.testing.assert_allclose(actual, expected, rtol=3e-6, atol=1e-8, err_msg=name)


def assert_expanded(before: list[Weight], after: list[Weight], maps: Maps) -> None:
    """Every weight is EXPN of its source."""
    for old, new in zip(before, after, strict=True):
        assert_same(new.value, expanded(old, maps), old)


def assert_drawn(values: Array, spread: float, what: Weight, slack: float = 5) -> None:
    """Values look like draws from N(0, spread²)."""
    assert values.size, what.name
    assert abs(values.std() / spread - 1) < slack / np.sqrt(2 * values.size) + 1e-3, what.name


def std(weight: Weight) -> float:
    return float(weight.value.astype(np.float64).std())


# ------------------------------------------------------------------------------------------------- Net2Net


def test_net2net_copies_units_and_divides_by_their_number(grow):
    before, after = grow("net2net")
    read = Read(before, after, 16)
    assert_expanded(before, after, lambda axis, layer: read(axis, layer) if axis == "f" else None)
    for layer in range(4):
        g = read("f", layer)
        assert (g[:384] == np.arange(384)).all()
        assert len(g) == 768


def test_net2net_widens_every_channel_space_of_a_convolutional_network(tmp_path):
    of = example("net2net-conv")
    before = uses(of.model)
    after = uses(growc.apply(of.recipe, of.model, tmp_path / "grown.onnx", check=False).written)
    g = np.arange(3)  # the channels of the image
    for kernel, bias, wide, wide_bias in zip(before[::2], before[1::2], after[::2], after[1::2], strict=True):
        made = np.array([np.flatnonzero(bias == b)[0] for b in wide_bias])
        share = (1 / counts(g)).reshape(1, -1, *[1] * (kernel.ndim - 2))
        np.testing.assert_allclose(wide, kernel[made][:, g] * share, rtol=1e-6)
        assert len(made) == (10 if bias is before[-1] else 2 * len(bias))
        g = made


# ----------------------------------------------------------------------------------------------- bert2BERT


def test_fpi_is_equations_5_to_13(grow):
    before, after = grow("bert2bert-fpi")
    read = Read(before, after, 16)
    assert_expanded(before, after, read)
    for axis, layer, d in (
        ("h", None, 64),
        *(("a", i, 64) for i in range(3)),
        *(("f", i, 256) for i in range(3)),
    ):
        assert (read(axis, layer)[:d] == np.arange(d)).all(), "equations 5 and 6: the old units come first"


# ---------------------------------------------------------------------------------------------- DirectCopy


def test_directcopy_keeps_the_source_in_a_corner_and_draws_the_rest(grow):
    before, after = grow("directcopy")
    for old, new in zip(before, after, strict=True):
        pieces = max(int(a[1]) if a[1:2].isdigit() else 1 for a in old.axes)
        for was, now in zip(np.split(old.value, pieces, -1), np.split(new.value, pieces, -1), strict=True):
            corner = tuple(slice(n) for n in was.shape)
            np.testing.assert_array_equal(now[corner], was)
            fresh = np.ones(now.shape, bool)
            fresh[corner] = False
            rest = now[fresh]
            if old.name.endswith("bias") or old.name == "shift":
                assert (rest == 0).all()
            elif old.name == "gain":
                assert (rest == 1).all()
            elif rest.size:
                assert abs(rest.std() / std(old) - 1) < 5 / np.sqrt(2 * rest.size)
                assert abs(rest.mean()) < 5 * std(old) / np.sqrt(rest.size)


# ------------------------------------------------------------------------------------------- HyperCloning


def test_hypercloning_repeats_blocks_that_sum_to_the_source(grow):
    before, after = grow("hypercloning")
    twice = constant({axis: np.tile(np.arange(d), 2) for axis, d in {"h": 64, "k": 32, "f": 160}.items()})

    def maps(axis, layer):
        return np.tile(np.arange(64), 2) if axis == "a" else twice(axis, layer)

    for old, new in zip(before, after, strict=True):
        if reads(old) not in ("h", "f"):
            assert_same(new.value, expanded(old, maps), old)
            continue
        noise = new.value - expanded(old, maps)
        np.testing.assert_allclose(noise[: len(noise) // 2], -noise[len(noise) // 2 :], atol=2e-6)
        assert abs(noise.std() / (0.1 * std(old)) - 1) < 0.05


# ------------------------------------------------------------------------------------------ GQA, vocabulary


def test_every_query_head_gets_a_copy_of_its_key_and_value_head(grow):
    before, after = grow("gqa-to-mha")
    maps = constant({"k": blocks([0, 0, 1, 1], 16)})
    for old, new in zip(before, after, strict=True):
        assert_same(new.value, expanded(old, maps), old)


def test_new_tokens_are_the_mean_of_the_old(grow):
    before, after = grow("vocabulary")
    for old, new in zip(before, after, strict=True):
        expected = old.value.astype(np.float64)
        if old.name in ("table", "head"):
            expected = np.concatenate([expected, np.tile(expected.mean(0), (16, 1))])
        assert_same(new.value, expected, old)


# ------------------------------------------------------------------------------------- layers alone


@pytest.mark.sampled(4)
@pytest.mark.parametrize(
    ("name", "layers", "silent"),
    [
        ("stackbert", [0, 1, 2, 0, 1, 2], False),
        ("mslt", [0, 1, 2, 1, 2], False),
        ("solar", [0, 1, 1, 2], False),
        ("g-stack", [0, 1, 2] * 4, False),
        ("llama-pro", [0, 1, 2, 2], True),
    ],
)
def test_layers_stand_as_the_paper_says_and_nothing_else_changes(grow, name, layers, silent):
    before, after = grow(name, layers, silent)
    for old, new in zip(before, after, strict=True):
        np.testing.assert_array_equal(new.value, old.value)


# ----------------------------------------------------------------------------------------- AKI, algorithm 1


def assert_advanced(before: list[Weight], after: list[Weight], last: int) -> None:
    """Equations 14 to 16: columns of new units come from the next layer; the last layer takes its own."""
    read = Read(before, after, 16)
    sizes = {"h": 64, "a": 64, "f": 256}
    for place, (old, new) in enumerate(zip(before, after, strict=True)):
        expected = expanded(old, read)
        made = next((i for i, axis in enumerate(old.axes) if axis[0] == "+"), None)
        inside = old.layer is not None and old.name not in ("gain", "shift")
        if inside and made is not None and old.layer != last:
            assert old.layer is not None
            ahead = next(i for i, w in enumerate(before) if w.layer == old.layer + 1) + place
            ahead -= next(i for i, w in enumerate(before) if w.layer == old.layer)
            # the maps are layer l's on both sides: the new head at a place is the next layer's head g(place)
            above = before[ahead]
            upper = expanded(Weight(above.name, old.layer, above.axes, above.value), read)
            fresh = np.arange(expected.shape[made]) >= sizes[old.axes[made][-1]]
            keep = [slice(None)] * expected.ndim
            keep[made] = fresh
            expected[tuple(keep)] = upper[tuple(keep)]
        assert_same(new.value, expected, old)


def test_aki_is_equations_14_to_16(grow):
    before, after = grow("bert2bert-aki")
    assert_advanced(before, after, last=2)


def test_algorithm_1_stacks_what_aki_made(grow):
    before, after = grow("bert2bert", [0, 1, 2, 0, 1, 2])
    assert_advanced(before, after, last=2)


# ------------------------------------------------------------------------------------------------------ NAI


@pytest.mark.sampled(2)
@pytest.mark.parametrize("reading", ["nai", "nai-last-head"])
def test_nai_copies_the_last_heads_or_the_last_head_with_noise(grow, reading):
    before, after = grow(reading, [0, 1, 2, 3, 3, 3, 3, 3], silent=True)
    if reading == "nai":
        maps = {"h": blocks(tail(6, 8), 16), "a": blocks(tail(6, 8), 16), "f": tail(384, 512)}
    else:
        last = blocks([0, 1, 2, 3, 4, 5, 5, 5], 16)
        maps = {"h": last, "a": last, "f": blocks([*range(24), *[23] * 8], 16)}
    for old, new in zip(before, after, strict=True):
        expected = expanded(old, constant(maps))
        matrix = expected.ndim == 2 and old.name not in ("table", "head")  # one tensor, which takes no noise
        noisy = [a for a in range(2) if old.axes[a] != "."] if matrix else []
        fresh = {axis: along(old, axis, constant(maps))[0] for axis in noisy}
        some = np.any(list(fresh.values()), axis=0) if noisy else np.zeros(expected.shape, bool)
        np.testing.assert_allclose(new.value[~some], expected[~some], rtol=3e-6, atol=1e-8)
        for axis in noisy:
            others = [along(old, a, constant(maps))[1] for a in noisy if a != axis]
            alone = fresh[axis] & np.all([fresh[axis], *others], axis=0)
            assert_drawn((new.value - expected)[alone], 0.01 * std(old), old)


def along(old: Weight, axis: int, maps: Maps) -> tuple[Array, Array]:
    """Which entries of the result belong to new units of an axis, and which to units that nothing copies."""
    g = maps(old.axes[axis][-1], old.layer)
    assert g is not None
    times = parts(old.axes[axis])
    single = np.tile(counts(g) == 1, times)
    new = np.tile(np.arange(len(g)) >= len(np.unique(g)), times)
    shape = list(expanded(old, maps).shape)
    wide = [-1 if i == axis else 1 for i in range(len(shape))]
    return np.broadcast_to(new.reshape(wide), shape), np.broadcast_to(single.reshape(wide), shape)


# -------------------------------------------------------------------------------- average expansion, LEMON


def averaged(old: Weight, new: Weight, maps: Maps, size: int = 128) -> tuple[Array, Array]:
    """A weight by LEMON's average expansion of 96 units, and where the expansion leaves it free."""
    w = expanded(old, maps)
    free = np.zeros(new.value.shape, bool)
    for number, axis in enumerate(old.axes):
        if axis not in ("+h", "-h", "/h"):
            continue
        front = np.moveaxis(w, number, 0)
        more = np.broadcast_to(front.mean(0), (size - len(front), *front.shape[1:]))
        if old.name == "shift":
            more = np.zeros_like(more)
        w = np.moveaxis(np.concatenate([front, more]), 0, number)
        if old.name == "gain":
            w = w * np.sqrt(96 / size)
        if axis == "-h":
            np.moveaxis(free, number, 0)[96:] = True
    return w, free


def test_the_exact_nai_fills_the_stream_with_means(grow):
    before, after = grow("nai-exact", [0, 1, 2, 3, 3, 3, 3, 3], silent=True)
    maps = constant({"a": blocks(tail(6, 8), 16), "f": tail(384, 512)})
    for old, new in zip(before, after, strict=True):
        expected, free = averaged(old, new, maps)
        axis = reads(old)
        if axis in ("a", "f"):
            g = maps(axis, old.layer)
            assert g is not None
            shared = counts(g) > 1
            noise = new.value[shared] - expected[shared]
            assert_drawn(noise, 0.01 * std(old), old)
            total = [noise[g[shared] == i].sum(0) for i in np.unique(g[shared])]
            np.testing.assert_allclose(total, 0, atol=1e-6)
            np.testing.assert_allclose(new.value[~shared], expected[~shared], rtol=1e-5, atol=1e-7)
            continue
        np.testing.assert_allclose(new.value[~free], expected[~free], rtol=1e-5, atol=1e-7, err_msg=old.name)
        if free.any():
            assert_drawn(new.value[free], std(old), old)


def test_lemon_shares_what_reads_copies_in_parts_that_sum_to_one(grow):
    before, after = grow("lemon", [0, 1, 1, 2, 3, 3], silent=True)
    g = {"a": blocks(np.arange(8) % 6, 16), "f": np.arange(512) % 384}
    for old, new in zip(before, after, strict=True):
        axis = reads(old)
        if axis not in g:
            expected, free = averaged(old, new, constant(g))
            np.testing.assert_allclose(new.value[~free], expected[~free], rtol=1e-5, atol=1e-7)
            continue
        shares = (new.value[:, :96] / np.take(old.value, g[axis], 0)).mean(1)
        total = np.array([shares[g[axis] == i].sum() for i in range(len(old.value))])
        np.testing.assert_allclose(total, 1, atol=1e-4)
        expected, _ = averaged(Weight(old.name, old.layer, (".", "+h"), old.value), new, constant({}))
        np.testing.assert_allclose(new.value, expected[g[axis]] * shares[:, None], rtol=1e-3, atol=1e-5)
        copied = np.flatnonzero(counts(g[axis]) > 1)
        assert (abs(shares[copied] - 0.5) > 1e-4).any(), "alpha is not beta"


# ----------------------------------------------------------------------------------------------------- ELLE


@pytest.mark.parametrize("balanced", [False, True])
def test_elle_adds_noise_to_what_reads_copies(grow, balanced):
    before, after = grow("elle-balanced" if balanced else "elle", [0, 1, 1, 2, 3, 3])
    read = Noisy(before, after, 16)
    for old, new in zip(before, after, strict=True):
        expected, axis = expanded(old, read), reads(old)
        noise = new.value - expected
        if axis is None:
            assert_same(new.value, expected, old)
            continue
        copied = counts(read(axis, old.layer)) > 1
        np.testing.assert_allclose(noise[~copied], 0, atol=3e-6)
        assert_drawn(noise[copied], 0.01 * std(old), old, slack=40)  # copied columns share their noise
        if balanced:
            np.testing.assert_allclose(restored(new, old, read), old.value, rtol=1e-4, atol=3e-6)


class Noisy(Read):
    """The maps of heads and units by the biases that make them, which take no noise."""

    def find(self, axis: str, layer: int | None) -> Map:
        if axis == "h":
            return super().find(axis, layer)
        name = {"a": "qkv_bias", "f": "up_bias"}[axis]
        old, new = of_layer(self.before, layer, name).value, of_layer(self.after, layer, name).value
        if axis == "f":
            return np.array([np.flatnonzero(old == b)[0] for b in new])
        heads = old[:96].reshape(6, 16)
        units = [np.flatnonzero((heads == b).all(1))[0] for b in new[:128].reshape(8, 16)]
        return blocks(units, 16)


# ----------------------------------------------------------------------------------- staged training, T5


def test_staged_training_doubles_width_and_depth(grow):
    before, after = grow("staged-training", [0, 0, 1, 1, 2, 2, 3, 3], silent=True)
    maps = {"h": np.tile(np.arange(96), 2), "a": np.tile(np.arange(96), 2), "f": np.tile(np.arange(384), 2)}
    assert_expanded(before, after, constant(maps))


def test_fpi_on_an_encoder_decoder(tmp_path):
    of = example("t5")
    written = growc.apply(of.recipe, of.model, tmp_path / "grown.onnx", check=False).written
    before, after = (weights(path, encoder_decoder(2)) for path in (of.model, written))
    heads = {"e": 0, "d": 2, "c": 2}
    known: dict[tuple[str, int | None], Map] = {}

    def maps(axis: str, layer: int | None) -> Map:
        where = layer if axis == "f" else None
        if (axis, where) not in known:
            known[axis, where] = found(axis, layer)
        return known[axis, where]

    def found(axis: str, layer: int | None) -> Map:
        if axis in "ED":
            return maps(axis.lower(), None).reshape(-1, 8)[:, 0] // 8
        name, at = ("table", None) if axis == "h" else ("down", layer)
        if axis in heads:
            name, at = f"out_{axis}", heads[axis]
        old, new = of_layer(before, at, name).value, of_layer(after, at, name).value
        if axis == "h":
            return drawn(new.T, old.T)
        stream = maps("h", None)
        new = new[:, [np.flatnonzero(stream == i)[0] for i in range(32)]]
        return blocks(drawn(new.reshape(16, -1), old.reshape(4, -1)), 8) if axis in heads else drawn(new, old)

    assert_expanded(before, after, maps)


# ------------------------------------------------------------------------------------- Gesmundo and Maile


def test_the_six_expansions_are_zero_where_the_paper_says(tmp_path):
    of = example("gesmundo-maile")
    written = growc.apply(of.recipe, of.model, tmp_path / "grown.onnx", check=False).written
    before, grown = weights(of.model, encoder_decoder(2)), weights(written, encoder_decoder(3))
    encoder, decoder = [0, 1, 1], [2, 3, 3]
    after = originals(grown, [*encoder, *decoder])
    for place in (2, 5):
        for weight in in_layer(grown, place):
            assert (weight.name not in ("out_e", "out_d", "out_c", "down")) or not weight.value.any()
    for old, new in zip(before, after, strict=True):
        assert_zero_filled(old, new)


def assert_zero_filled(old: Weight, new: Weight) -> None:
    """The source stands in its corner (of each head); what makes new units of the stream is zero."""
    w, d = new.value, old.value
    if old.name == "gain":
        np.testing.assert_allclose(w[:32], d * np.sqrt(32 / 64), rtol=1e-6)
        return
    heads = next((i for i, axis in enumerate(old.axes) if axis[1:] in ("e", "d", "c")), None)
    if heads is not None:
        w = np.moveaxis(np.moveaxis(w, heads, 0).reshape(8, 16, -1)[:4, :8].reshape(32, -1), 0, heads)
        w = w[: d.shape[0], : d.shape[1]] if heads == 1 else w[:, : d.shape[1]]
    corner = tuple(slice(n) for n in d.shape)
    np.testing.assert_array_equal(w[corner], d, err_msg=old.name)
    if "+h" in old.axes:
        stream = np.moveaxis(new.value, old.axes.index("+h"), 0)
        assert not stream[32:].any(), old.name
    if reads(old) == "f":
        assert not new.value[64:].any()
    if reads(old) in ("e", "d", "c"):
        of_new_heads = new.value.reshape(8, 16, -1)[4:]
        assert not of_new_heads[:, :8].any(), (
            "their new units are zero themselves, so what reads those is free"
        )


def test_upcycling_copies_the_network(tmp_path: Path) -> None:
    """Every expert is the dense network: E_i = W for all i; everything else stays (2212.05055, section 2)."""
    of = example("upcycling")
    written = growc.apply(of.recipe, of.model, tmp_path / "mixture.onnx").written
    before, after = (
        {t.name: onnx.numpy_helper.to_array(t) for t in onnx.load(path).graph.initializer}
        for path in (of.model, written)
    )
    stacks = {name for name in before if after[name].ndim > before[name].ndim}
    assert len(stacks) == 3 * 3
    for name, w in before.items():
        if w.dtype.kind == "f":
            assert (after[name] == (np.stack([w] * 8)[:, None] if name in stacks else w)).all()
    routers = [w for name, w in after.items() if name not in before and w.dtype.kind == "f"]
    assert [w.shape for w in routers] == [(64, 8)] * 3
