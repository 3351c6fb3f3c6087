"""However the same model is written, the same becomes of its weights, bit by bit."""

from __future__ import annotations

import random
from pathlib import Path

import onnx
import pytest
from choices import Choices
from metamorphoses import WAYS, merged, outcome, parted
from models import Models
from random_models import random_model

RECIPES = (
    "widen ffn to 2 * ffn with uniform copy split random noise 0.1 balanced",
    "widen heads to 2 * heads with neighbor copy split random",
    "widen hidden to 2 * hidden with cyclic copy split random noise 0.1 balanced",
    "widen channels to 2 * channels with uniform copy split random",
)


@pytest.mark.sampled(7)
@pytest.mark.parametrize("seed", range(20_000, 20_008))
def test_random_models_are_planned_alike_however_they_are_written(tmp_path: Path, seed: int) -> None:
    written_in_all_ways(tmp_path, seed)


@pytest.mark.soak
def test_many_random_models(tmp_path: Path) -> None:
    for seed in range(21_000, 21_300):
        written_in_all_ways(tmp_path, seed)


def written_in_all_ways(folder: Path, seed: int) -> None:
    net = random_model(Choices(seed))
    names = {"ffn", "heads", "hidden", "channels"} & net.roles.keys()
    unchanged(net.save(folder / "model.onnx"), [r for r in RECIPES if r.split()[1] in names], seed)


@pytest.mark.sampled(9)
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_exported_models_are_planned_alike_however_they_are_written(
    tmp_path: Path, models: Models, name: str
) -> None:
    proto = onnx.load(models.path(name, "torchscript"))
    onnx.save(proto, tmp_path / "model.onnx")
    unchanged(tmp_path / "model.onnx", RECIPES[:3], 0)


def unchanged(path: Path, recipes: list[str] | tuple[str, ...], seed: int) -> None:
    """A recipe on every way to write the model at `path`."""
    model = onnx.load(path)
    before = {text: outcome(path, text, {}) for text in recipes}
    for way in WAYS:
        other = onnx.ModelProto()
        other.CopyFrom(model)
        names = way(other, random.Random(seed))
        written = path.with_name(f"{way.__name__}.onnx")
        onnx.save(other, written)
        for text in recipes:
            seen, expected = outcome(written, text, names), before[text]
            if way in (parted, merged):  # a weight that is stored once or twice has one name or two
                seen, expected = _regardless_of_names(seen), _regardless_of_names(expected)
            assert seen == expected, f"{way.__name__}: {text}"


def _regardless_of_names(found: object) -> object:
    if isinstance(found, list):
        return found
    exact, gaps, weights = found
    return exact, gaps, set().union(*weights.values())
