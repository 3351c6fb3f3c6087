"""A run that is killed, or that the system refuses a step, leaves the old result or the new one, whole.

`make faults` lets every step of every form fail in every way; here some steps of an ONNX file do.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from harness import FAULTS, FORMS, Bench


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
def test_a_fault_at_a_step_leaves_one_whole_result(first: bool, tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path, first=first)
    steps = bench.steps()
    assert steps > 20
    chosen = range(2, steps + 1, steps // 6)
    found = [bench.wrong(step, FAULTS[k % len(FAULTS)]) for k, step in enumerate(chosen)]
    assert not list(filter(None, found))


def test_a_result_that_is_neither_of_both_is_seen(tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path)
    bench.after = {**bench.after, "made.onnx": b"half"}
    assert "status 0" in bench.wrong(0, "kill")
