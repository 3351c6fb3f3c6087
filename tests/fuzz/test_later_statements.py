"""Random models under statements that came after version 1: what growc says is true."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from choices import Choices
from later_recipes import later_recipe
from random_models import random_model
from verdicts import BAD, feeds_of, judged

HERE, LATER = range(24, 48), range(3_000)


def kinds_of(seeds: range, folder: Path) -> Counter[str]:
    kinds = Counter[str]()
    for seed in seeds:
        choices = Choices(seed)
        net = random_model(choices)
        text = later_recipe(choices, net)
        verdict = judged(net.save(folder / "model.onnx"), text, feeds_of(net))
        assert verdict.kind not in BAD, f"seed {seed}: {verdict}\n{text}"
        kinds[verdict.kind] += 1
    return kinds


def test_claims_about_later_statements_are_true(tmp_path: Path) -> None:
    kinds = kinds_of(HERE, tmp_path)
    assert kinds["exact"]
    assert kinds["gap"]


@pytest.mark.soak
def test_claims_about_many_later_statements_are_true(tmp_path: Path) -> None:
    kinds_of(LATER, tmp_path)
