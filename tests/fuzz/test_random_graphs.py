"""Random models under random recipes: what growc says is true, and it says so wherever it can.

A seed makes a model and a recipe. A failure is shown on the smallest case that fails in the same way.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from seeds import judge_all, smallest
from verdicts import BAD, case

HERE, LATER = range(200), range(10_000)
CHUNKS = [HERE[k : k + 20] for k in range(0, len(HERE), 20)]


@pytest.mark.sampled(10)
@pytest.mark.parametrize("seeds", CHUNKS, ids=str)
def test_what_is_claimed_of_random_graphs_is_true(tmp_path: Path, seeds: range) -> None:
    for seed in seeds:
        verdict, choices, _ = case(seed, tmp_path)
        assert verdict.kind not in BAD, smallest(seed, verdict, choices.taken, tmp_path)


@pytest.mark.soak
def test_ten_thousand_random_graphs(tmp_path: Path) -> None:
    """No false claim, no crash; most recipes are done, and nearly all that measure equal are claimed."""
    kinds = judge_all(LATER, tmp_path, print)
    emitted = kinds["exact"] + kinds["gap"] + kinds["false gap"]
    assert not BAD & kinds.keys(), kinds
    assert emitted >= 0.7 * len(LATER)
    assert kinds["exact"] >= 0.4 * len(LATER)
    assert kinds["exact"] >= 0.99 * (kinds["exact"] + kinds["false gap"])
    assert kinds["ill"] <= 0.002 * len(LATER)
