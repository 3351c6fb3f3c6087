"""onnxruntime measures claims about weights that read two functions of one stream."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from graphs import save
from judging import judge
from shared_readers import graphs


def claims(folder: Path, step: int) -> Counter[tuple[bool, bool]]:
    """How many are claimed, and how many are equal."""
    found: Counter[tuple[bool, bool]] = Counter()
    for name, text, given, recipe in list(graphs())[::step]:
        judged = judge(recipe, save(folder / "m.onnx", text, **given), folder / "g.onnx")
        equal = judged.difference <= 1e-5
        assert equal or not judged.certificate.exact, (name, recipe, judged.difference)
        found[judged.certificate.exact, equal] += 1
    return found


def test_some_shared_readers(tmp_path: Path) -> None:
    found = claims(tmp_path, 29)
    assert found[True, True] >= 0.6 * found.total(), found


@pytest.mark.soak
def test_every_shared_reader(tmp_path: Path) -> None:
    found = claims(tmp_path, 1)
    assert found[True, True] >= 0.75 * found.total(), found
    assert found[False, True] <= 0.02 * found.total(), found
