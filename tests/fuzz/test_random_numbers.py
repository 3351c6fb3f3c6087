"""Look-ups by random numbers: what growc claims of a longer table, judged by onnxruntime."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from random_numbers import exposed, feeds, numbers, opened, outputs

from growc import api
from growc.dialects.onnx.operators.number_ranges import RANGES
from growc.errors.diagnostic import Attempt, GrowError
from growc.passes.dataflow.ranges import Ranges

RECIPE = 'widen axis 0 of "table" to 23 with random fill'
SOUND = ("exact", "gap", "equal gap")


def verdict(seed: int, folder: Path) -> str:
    """exact, gap or refused, where that is true; `ill` where the source runs on no input."""
    source, out = folder / "model.onnx", folder / "grown.onnx"
    onnx.save(numbers(seed), source)
    with Attempt() as attempt:  # no valid graph
        before = outputs(source.read_bytes(), seed)
    if attempt.error is not None:
        return "ill"
    if not any(b is not None for b in before):
        return "ill"
    try:
        done = api.apply(RECIPE, source, out, check=False, force=True)
    except GrowError:
        return "refused"
    pairs = zip(before, outputs(out.read_bytes(), seed), strict=True)
    same = all(b is None or (a is not None and np.array_equal(a, b)) for b, a in pairs)
    exact = done.plan.certificate.exact
    return "exact" if exact and same else "false exact" if exact else "gap" if not same else "equal gap"


def judged(seeds: range, folder: Path) -> Counter[str]:
    """How many verdicts of each kind there are."""
    found: Counter[str] = Counter()
    for seed in seeds:
        kind = verdict(seed, folder)
        assert kind != "false exact", f"seed {seed}"
        found[kind] += 1
    return found


def test_claims_about_random_look_ups_are_true(tmp_path: Path) -> None:
    found = judged(range(60), tmp_path)
    assert found["exact"] >= 5
    assert found["gap"] >= 5


@pytest.mark.soak
def test_many_random_look_ups(tmp_path: Path) -> None:
    judged(range(60, 3000), tmp_path)


def outside(seed: int, folder: Path) -> Iterator[str]:
    """The results of a seed's nodes that leave the ranges that growc finds for them."""
    model, path = numbers(seed), folder / "model.onnx"
    onnx.save(model, path)
    with Attempt() as attempt:  # no valid graph
        session = opened(exposed(model).SerializeToString())
    if attempt.error is not None:
        return
    graph = api.compile(api.recipe(RECIPE), path, analysis_only=True).graph
    values, ranges = {v.name: v for node in graph.nodes for v in node.outputs}, Ranges(RANGES)
    names = [o.name for o in session.get_outputs() if o.name in values]
    for feed in feeds(seed):
        with Attempt() as attempt:  # numbers outside of the table
            results = session.run(names, feed)
        if attempt.error is not None:
            continue
        for name, array in zip(names, results, strict=True):
            told, found = ranges.of(values[name]), np.asarray(array, dtype=np.float64)
            sane = found[~np.isnan(found)]
            slack = 1e-5 * np.abs(sane)  # float32 rounds
            within = ((told.low - slack <= sane) & (sane <= told.high + slack)).all()
            if not within or (sane.size < found.size and not told.wild):
                yield f"seed {seed}: {name} of {told}"


def test_results_lie_in_their_ranges(tmp_path: Path) -> None:
    seeds = (s for s in range(40) if verdict(s, tmp_path) in SOUND)
    assert not [found for seed in seeds for found in outside(seed, tmp_path)]


@pytest.mark.soak
def test_many_results_lie_in_their_ranges(tmp_path: Path) -> None:
    seeds = (s for s in range(40, 1500) if verdict(s, tmp_path) in SOUND)
    assert not [found for seed in seeds for found in outside(seed, tmp_path)]
