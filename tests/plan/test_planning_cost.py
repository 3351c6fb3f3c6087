"""The cost of planning as a model gets deeper, counted in calls: time would depend on the machine."""

from __future__ import annotations

import cProfile
import importlib.util
import pstats
from itertools import pairwise
from typing import Any

import onnx
import pytest
from graphs import ROOT

from growc import api
from growc.render.inspection import inspect_data, inspect_lines

DEPTHS = (4, 8, 16)


@pytest.fixture(scope="module")
def benchmark() -> Any:
    """The module benchmarks/planning.py."""
    spec = importlib.util.spec_from_file_location("planning", ROOT / "benchmarks/planning.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_work_is_linear_in_the_number_of_layers(benchmark, tmp_path):
    resolved = api.recipe(benchmark.RECIPE)
    counts = []
    for layers in (DEPTHS[0], *DEPTHS):
        path = tmp_path / f"{layers}.onnx"
        onnx.save(benchmark.Transformer().model(layers), path)
        with cProfile.Profile() as profile:
            c = api.compile(resolved, path)
            _ = [*inspect_lines(c)], inspect_data(c)
        counts.append(pstats.Stats(profile).total_calls)  # the first one imports and fills caches
    first, second = (b - a for a, b in pairwise(counts[1:]))
    assert c.plan.certificate.exact
    assert c.roles.sizes("ffn") == [32]
    assert len(c.roles.axes["ffn"]) == DEPTHS[-1]
    assert second < 2.05 * first
