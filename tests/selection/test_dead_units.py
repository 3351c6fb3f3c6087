"""Units that contribute nothing, at random places of trained models, leave without a trace."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from judging import run
from planted import killed
from published import ROOT

import growc

LIMIT = 2e-5

UNITS = {
    "tiny-gpt": {"hidden": 96, "heads": 6, "ffn": 384},
    "tiny-bert": {"heads": 4, "ffn": 256},
    "tiny-llama": {"hidden": 64, "kv_heads": 2, "ffn": 160},
    "tiny-t5": {"hidden": 32, "heads": 4, "ffn": 64},
    "tiny-vit": {"hidden": 48, "heads": 6, "ffn": 192},
}
"""How many units of each axis there are."""

CENTRED = {"tiny-gpt", "tiny-vit"}
"""Models whose norms centre the stream: its living part has to be centred by itself."""


def inputs(name: str) -> dict[str, np.ndarray]:
    random = np.random.default_rng(0)
    if name == "tiny-vit":
        return {"pixel_values": random.random((6, 1, 8, 8)).astype(np.float32)}
    if name == "tiny-conv":
        return {"image": random.standard_normal((6, 3, 16, 16)).astype(np.float32)}
    ids = random.integers(0, 128, (6, 16))
    others = {
        "tiny-bert": {"attention_mask": np.ones_like(ids)},
        "tiny-t5": {"decoder_input_ids": ids[:, :9]},
    }
    return {"input_ids": ids} | others.get(name, {})


def cost(model: Path, statement: str, name: str) -> float:
    """The relative difference that a statement makes."""
    np.savez(model.with_name("data.npz"), **inputs(name))
    recipe = model.with_name("r.grow")
    recipe.write_text(f'measure importance on "data.npz"\n{statement}\n')
    made = growc.apply(recipe, model, model.with_name("out.onnx"), check=False).written
    before, after = run(model, inputs(name)), run(made, inputs(name))
    return max(float(np.abs(before[k] - after[k]).max() / np.abs(before[k]).max()) for k in before)


def cases() -> Iterator[Any]:
    """All of them; those of one model, and the axes that it lacks, whenever tests are run."""
    quick = {("tiny-vit", axis) for axis in UNITS["tiny-vit"]}
    quick |= {("tiny-llama", "hidden"), ("tiny-llama", "kv_heads")}
    for name, axes in UNITS.items():
        for axis in axes:
            yield pytest.param(name, axis, marks=() if (name, axis) in quick else pytest.mark.soak)


@pytest.mark.sampled(4)
@pytest.mark.parametrize("ranking", ["importance", "magnitude"])
@pytest.mark.parametrize(("name", "axis"), list(cases()))
def test_dead_units_leave_without_a_trace(tmp_path: Path, name: str, axis: str, ranking: str) -> None:
    size = UNITS[name][axis]
    living = np.sort(np.random.default_rng(3).permutation(size)[: size // 2]).tolist()
    source = ROOT / "examples" / "models" / f"{name}.onnx"
    centred = axis == "hidden" and name in CENTRED
    model = killed(source, axis, living, tmp_path / "m.onnx", centred=centred)
    where = "rescaled in norms" if axis == "hidden" else "unscaled"
    statement = f"subclone {axis} to {size // 2} by {ranking} {where}"
    assert cost(model, statement, name) <= LIMIT


@pytest.mark.parametrize("ranking", ["importance", "magnitude"])
def test_dead_channels_leave_without_a_trace(tmp_path: Path, ranking: str) -> None:
    source = ROOT / "examples" / "models" / "tiny-conv.onnx"
    axis = 'axis 0 of "0.weight"'
    model = killed(source, axis, [1, 4, 5, 7], tmp_path / "m.onnx")
    statement = f"subclone {axis} to 4 by {ranking} unscaled"
    assert cost(model, statement, "tiny-conv") <= LIMIT
