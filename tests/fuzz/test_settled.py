"""New layers on streams that are rounded and bounded: what is claimed of them is true."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from judging import judge
from random_settled import random_stack

from growc.errors.diagnostic import GrowError


def verdicts(seeds: Iterable[int], folder: Path) -> Counter[str]:
    """How many claims of each kind there are; fails on a false one."""
    found: Counter[str] = Counter()
    for seed in seeds:
        model, recipe = random_stack(seed, folder / "model.onnx")
        try:
            judged = judge(recipe, model, folder / "deep.onnx")
        except GrowError as refused:
            found[refused.diagnostics[0].code] += 1
            continue
        exact, equal = judged.certificate.exact, judged.difference <= 1e-5
        assert equal or not exact, f"seed {seed}: {recipe}: {judged.difference:.1e}"
        found["exact" if exact else "equal" if equal else "gap"] += 1
    return found


def test_claims_about_rounded_streams_are_true(tmp_path: Path) -> None:
    found = verdicts(range(25), tmp_path)
    assert min(found["exact"], found["gap"]) > 0, found


@pytest.mark.soak
def test_claims_about_many_rounded_streams_are_true(tmp_path: Path) -> None:
    """Most that measure equal are claimed."""
    found = verdicts(range(2000), tmp_path)
    assert found["exact"] > 2 * found["equal"], found
