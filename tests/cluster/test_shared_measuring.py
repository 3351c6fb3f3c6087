"""Measurements that several processes share: the numbers of one, and what a killed one goes on from."""

import json
import os
import subprocess
import sys

import numpy as np
import pytest
import torch
from tiny_llama import save_llama

RECIPE = 'measure importance on "data.npz"\nsubclone ffn to ffn / 2 by importance\n'
ROWS = 41


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A tiny model that a recipe trims, and data of an odd number of batches."""
    folder = tmp_path_factory.mktemp("measuring")
    save_llama(folder / "model", torch.float32)
    words = np.random.default_rng(0).integers(0, 64, (ROWS, 12))
    np.savez(folder / "data.npz", input_ids=words)
    (folder / "trim.grow").write_text(RECIPE)
    return folder


def growc(folder, *arguments):
    command = [sys.executable, "-m", "growc", *map(str, arguments)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def measured(folder, workers):
    given = ["model", "--inputs", "data.npz", "--layers", "--json", "-o", f"scores{workers}.npz"]
    return json.loads(growc(folder, "measure", *given, "--workers", workers))


@pytest.mark.parametrize("workers", [2])
def test_scores_and_layers_are_those_of_one(folder, workers):
    one, several = measured(folder, 1), measured(folder, workers)
    assert one["scores"].keys() == several["scores"].keys()
    for name, scores in one["scores"].items():
        assert several["scores"][name] == pytest.approx(scores, rel=1e-5)
        assert np.array_equal(np.argsort(several["scores"][name]), np.argsort(scores))
    assert one["loss"] == pytest.approx(several["loss"])
    for own, other in zip(one["layers"], several["layers"], strict=True):
        for change in ("removed", "doubled"):
            assert own[change]["outputs"]["logits"] == pytest.approx(other[change]["outputs"]["logits"])
            assert own[change]["loss"] == pytest.approx(other[change]["loss"])


@pytest.mark.soak
@pytest.mark.parametrize(
    ("recipe", "statistic"),
    [(RECIPE, "importance"), ('subclone ffn to ffn / 2 by taylor on "data.npz"\n', "taylor")],
)
def test_a_recipe_that_measures_makes_the_same_model(folder, recipe, statistic):
    (folder / "trim.grow").write_text(recipe)
    told = []
    for workers in (1, 2):
        out = f"{statistic}{workers}"
        told.append(growc(folder, "apply", "trim.grow", "model", "-o", out, "--workers", workers))
        (folder / f"model.{statistic}.npz").unlink()  # a kept measurement would be used again
    one, two = ((folder / f"{statistic}{n}" / "model.safetensors").read_bytes() for n in (1, 2))
    assert one == two
    losses = [line for text in told for line in text.splitlines() if "loss" in line.lower()]
    assert losses[: len(losses) // 2] == losses[len(losses) // 2 :]
    assert losses or statistic == "taylor"
