"""`std S` and `reset P`: what new entries are drawn from, and how many of the new units are drawn."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, save
from models import stored

import growc
from growc.errors.diagnostic import GrowError

RANDOM = np.random.default_rng(5)
FAR = {name: RANDOM.normal(3, 2, shape).astype(np.float32) for name, shape in [("up_weight", (8, 400))]}
FAR["down_weight"] = RANDOM.normal(-1, 0.5, (400, 8)).astype(np.float32)
WIDE = STREAM.replace("8, 12] up", "8, 400] up").replace("12] up_b", "400] up_b").replace("12, 8]", "400, 8]")
"""A model with many units, whose weights have means far from 0."""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    return save(tmp_path / "m.onnx", WIDE, **FAR)


@pytest.fixture
def grown(model: Path, tmp_path: Path):
    def grow(recipe: str) -> dict[str, np.ndarray]:
        return stored(growc.apply(recipe, model, tmp_path / "out.onnx", check=False).written)

    return grow


def test_a_fixed_deviation_stands_in_the_place_of_the_tensor_s(grown):
    plain, fixed = (
        grown("widen ffn to 700 with random fill"),
        grown("widen ffn to 700 with random fill std 0.25"),
    )
    for name, new in (("up_weight", np.s_[:, 400:]), ("down_weight", np.s_[400:])):
        spread = FAR[name].astype(np.float64).std()
        np.testing.assert_allclose(fixed[name][new] / 0.25, plain[name][new] / spread, rtol=1e-5)
        assert abs(fixed[name][new].std() - 0.25) < 0.02
        old = np.s_[:, :400] if name == "up_weight" else np.s_[:400]
        assert (fixed[name][old] == FAR[name]).all()
    assert (fixed["up_bias"][400:] == 0).all()


@pytest.mark.parametrize("part", [0.25, 0.29, 1])
def test_a_part_of_the_copies_is_drawn_with_the_mean_and_deviation_of_the_tensor(grown, part):
    found = grown(f"widen ffn to 1000 with cyclic copy reset {part}")
    up, down = found["up_weight"], found["down_weight"]
    copied = np.array([(up[:, j] == FAR["up_weight"][:, j % 400]).all() for j in range(1000)])
    drawn = np.flatnonzero(~copied)
    assert copied[:400].all()
    assert len(drawn) == round(part * 600)
    counts = np.bincount(np.arange(1000)[copied] % 400, minlength=400)
    for j in np.flatnonzero(copied):
        np.testing.assert_allclose(down[j], FAR["down_weight"][j % 400] / counts[j % 400], rtol=1e-6)
    for name, values in (("up_weight", up[:, drawn]), ("down_weight", down[drawn])):
        mean, spread = FAR[name].astype(np.float64).mean(), FAR[name].astype(np.float64).std()
        assert abs(values.mean() - mean) < 5 * spread / np.sqrt(values.size)
        assert abs(values.std() / spread - 1) < 5 / np.sqrt(2 * values.size)
    assert (found["up_bias"][drawn] == 0).all()


def test_reset_units_follow_the_seed_and_lie_in_both_halves_of_the_axis(grown):
    def which(seed: int) -> set[int]:
        up = grown(f"widen ffn to 800 with cyclic copy reset 0.5 seed {seed}")["up_weight"]
        return {j for j in range(400, 800) if (up[:, j] != FAR["up_weight"][:, j - 400]).any()}

    assert which(1) == which(1) != which(2)
    assert 60 < sum(j < 600 for j in which(1)) < 140


def test_a_reset_with_a_fixed_deviation_has_no_mean(grown):
    found = grown("widen ffn to 800 with cyclic copy reset 1 std 0.1")
    assert abs(found["up_weight"][:, 400:].mean()) < 0.01
    assert abs(found["up_weight"][:, 400:].std() - 0.1) < 0.01


def test_blocks_are_reset_as_wholes(grown):
    up = grown("widen ffn to 800 with cyclic copy in blocks of 40 reset 0.5")["up_weight"]
    drawn = np.array([(up[:, j] != FAR["up_weight"][:, j - 400]).any() for j in range(400, 800)])
    blocks = drawn.reshape(10, 40)
    assert (blocks.all(1) | ~blocks.any(1)).all()
    assert blocks.all(1).sum() == 5


@pytest.mark.parametrize(
    ("options", "exact"),
    [("reset 0.5", False), ("reset 0", True), ("reset 0.5 with zero outputs", True), ("reset 0.001", True)],
)
def test_a_reset_is_a_gap_but_where_no_unit_is_drawn_or_read(tmp_path, options, exact):
    model = save(tmp_path / "m.onnx", STREAM)
    done = growc.apply(f"widen ffn to 24 with uniform copy {options}", model, tmp_path / "out.onnx")
    assert done.plan.certificate.exact == exact
    assert done.verification is not None
    assert (done.verification.relative < 1e-5) == exact


def test_a_weight_of_zeros_stays_zero(tmp_path):
    model = save(tmp_path / "m.onnx", STREAM, down_weight=np.zeros((12, 8), np.float32))
    done = growc.apply("widen ffn to 24 with random fill std 3", model, tmp_path / "out.onnx", check=False)
    assert not stored(done.written)["down_weight"].any()


def test_new_layers_are_drawn_with_a_fixed_deviation(model, tmp_path):
    def drawn(options: str) -> dict[str, np.ndarray]:
        recipe = f"stack layers to 2 by last with random fill {options}"
        return stored(growc.apply(recipe, model, tmp_path / "out.onnx", check=False, force=True).written)

    plain, fixed = drawn("seed 3"), drawn("std 0.05 seed 3")
    new = [name for name, values in fixed.items() if values.ndim == 2 and (values != plain[name]).any()]
    assert sorted(plain[name].shape for name in new) == [(8, 400), (400, 8)]
    for name in new:
        source = FAR["up_weight" if plain[name].shape == (8, 400) else "down_weight"]
        spread = source.astype(np.float64).std()
        np.testing.assert_allclose(fixed[name] / 0.05, plain[name] / spread, rtol=1e-5)


@pytest.mark.parametrize(
    "text",
    [
        "widen ffn to 8 with tail copy std 0.1",
        "widen ffn to 8 with average fill reset 0.5",
        "widen ffn to 8 with rescaled copy reset 0.5",
        "widen ffn to 8 with random fill reset 0.5",
    ],
)
def test_options_that_find_nothing_to_draw_are_contradictions(text):
    with pytest.raises(GrowError) as caught:
        growc.api.recipe(text)
    assert [problem.code for problem in caught.value.diagnostics] == ["G204"]


def test_a_module_is_reset_as_its_file(tmp_path):
    pytest.importorskip("torch.nn")  # without torch, the folder tests/torch would have its name
    import torch

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3)).eval()
    inputs = (torch.randn(5, 4),)
    torch.export.save(torch.export.export(module, inputs), tmp_path / "m.pt2")
    recipe = "widen ffn to 20 with cyclic copy reset 0.5 std 0.3"
    found = growc.apply(module, recipe, inputs)
    written = growc.apply(recipe, tmp_path / "m.pt2", tmp_path / "out.pt2").written
    program = torch.export.load(written).module()
    assert all(torch.equal(a, b) for a, b in zip(found.parameters(), program.parameters(), strict=True))
    assert 0.1 < found.get_parameter("0.weight")[8:].std() < 0.8
