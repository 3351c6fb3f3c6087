"""Caches whose key/value heads became means: the result is measured on the means of the source's."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from fused.graphs_of_onnxruntime import GRAPHS
from graphs import save

import growc
from growc.api import compile as compiled
from growc.api import recipe
from growc.passes.finish.interface import ports_of
from growc.passes.finish.interface_json import from_json, to_json
from growc.plans.unitmaps import BlendMap

TWINS = "widen heads to 2 * heads with neighbor copy\nsubclone kv_heads to kv_heads / 2 by mean"
MEANS = "subclone kv_heads to 1 by mean"


@pytest.mark.parametrize("name", ["gpt", "rope"])
def test_means_of_copies_are_measured_to_be_the_same(tmp_path: Path, name: str) -> None:
    model = save(tmp_path / "m.onnx", GRAPHS[name])
    done = growc.apply(TWINS, model, tmp_path / "out.onnx")
    assert done.verification is not None
    assert done.verification.relative < 1e-5
    assert growc.verify(model, done.written).relative < 1e-5


@pytest.mark.parametrize("name", ["gpt", "rope"])
def test_caches_hold_the_means_of_the_source_s_caches(tmp_path: Path, name: str) -> None:
    done = growc.apply(MEANS, save(tmp_path / "m.onnx", GRAPHS[name]), tmp_path / "out.onnx")
    assert done.verification is not None
    found = {n: r for n, r in done.verification.outputs.items() if n.startswith("present")}
    assert found
    assert all(report.relative < 1e-5 for report in found.values())  # one layer: nothing stands before it
    assert done.verification.relative > 1e-2


def test_means_are_kept_in_records_and_through_two_growths(tmp_path: Path) -> None:
    model = save(tmp_path / "m.onnx", GRAPHS["gpt"])
    ports = ports_of(compiled(recipe(MEANS), model))
    again = from_json(to_json(ports))
    [before], [after] = ports.input_maps()["past"], again.input_maps()["past"]
    assert isinstance(before, BlendMap)
    assert isinstance(after, BlendMap)
    assert (before.matrix == after.matrix).all()
    past = np.random.default_rng(0).standard_normal((2, 3, 2, 5, 4)).astype(np.float32)
    assert np.allclose(after.extend(past), past.mean(2, keepdims=True), atol=1e-6)
    first = growc.apply("widen heads to 4 with neighbor copy", model, tmp_path / "wide.onnx")
    second = growc.apply("subclone kv_heads to 2 by mean", first.written, tmp_path / "out.onnx")
    assert growc.verify(model, second.written).relative < 1e-5
