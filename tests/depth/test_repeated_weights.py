"""Weights of copied layers: a data file is the same whether a repeat is computed or read from it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from graphs import TINY

from growc import api
from growc.dialects.onnx.files import repeats as module
from growc.dialects.onnx.files import save
from growc.plans.plan import Layout, LeafStep

WIDER = "widen hidden to 128 with average fill\nwiden ffn to 500 with cyclic copy noise 0.1 seed 3\n"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """The tiny GPT with its weights in a second file."""
    path = tmp_path / "outside.onnx"
    onnx.save(onnx.load(TINY), path, save_as_external_data=True, location="outside.data", size_threshold=0)
    return path


def _data(recipe: str, source: Path, out: Path) -> bytes:
    api.apply(recipe, source, out, check=False, force=True)
    (data,) = out.parent.glob(f"{out.stem}-*.data")
    return data.read_bytes()


@pytest.mark.parametrize("order", ["whole with zero outputs", "last", "each with zero outputs"])
def test_a_repeat_has_the_bytes_that_its_plan_computes(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: str
) -> None:
    found: list[dict[str, str]] = []
    monkeypatch.setattr(save, "repeats", lambda tensors: found.append(module.repeats(tensors)) or found[-1])
    recipe = f"{WIDER}stack layers to 8 by {order}"
    made = _data(recipe, outside, tmp_path / "read.onnx")
    assert len(found[0]) >= 4
    monkeypatch.setattr(save, "repeats", lambda tensors: {})
    assert _data(recipe, outside, tmp_path / "computed.onnx") == made


def test_a_repeat_is_computed_where_no_file_can_be_mapped(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recipe = f"{WIDER}stack layers to 8 by last"
    made = _data(recipe, outside, tmp_path / "read.onnx")
    mapped = np.memmap

    def refused(path: Path, *given: object) -> object:
        if ".growc" in str(path):
            raise OSError(19, "No such device")
        return mapped(path, *given)

    monkeypatch.setattr(np, "memmap", refused)
    assert _data(recipe, outside, tmp_path / "computed.onnx") == made


@pytest.mark.parametrize("recipe", [WIDER, f"stack layers to 8 by last\n{WIDER}"])
def test_weights_that_are_drawn_apart_are_no_repeats(
    outside: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recipe: str
) -> None:
    found: list[dict[str, str]] = []
    monkeypatch.setattr(save, "repeats", lambda tensors: found.append(module.repeats(tensors)) or found[-1])
    made = _data(recipe, outside, tmp_path / "read.onnx")
    monkeypatch.setattr(save, "repeats", lambda tensors: {})
    assert _data(recipe, outside, tmp_path / "computed.onnx") == made
    drawn = {name for name in found[0] if "mlp.c_" in name and name.endswith("weight")}
    assert drawn == set()


def test_layouts_with_the_same_indices_of_other_factors_have_other_signatures() -> None:
    """Rows 0 and 1 of each of three are other rows than rows 0 and 1 of each of two."""
    two, three = (replace(LeafStep.keep(2), before=size) for size in (2, 3))
    first, second = (
        Layout("product", (Layout("leaf", step=a), Layout("leaf", step=b)))
        for a, b in ((two, three), (three, two))
    )
    assert first.before == second.before
    assert not np.array_equal(first.as_map().index, second.as_map().index)
    assert first.signature != second.signature
