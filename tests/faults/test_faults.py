"""A run that is killed, or that the system refuses a step, leaves the old result or the new one, whole.

`make faults` lets every step of every form fail in every way; here some steps of an ONNX file do.
"""

from __future__ import annotations

import mmap
import signal
from dataclasses import replace
from pathlib import Path

import pytest
from conditions import at_random, closed, limited
from harness import FAULTS, FORMS, Bench

from growc.cli import main
from growc.cli.process import SPARE

STATM = Path("/proc/self/statm")
"""The pages of memory that this process has."""


@pytest.mark.parametrize("first", [True, False], ids=["first", "second"])
@pytest.mark.sampled(5)
def test_a_fault_at_a_step_leaves_one_whole_result(first: bool, tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path, first=first)
    steps = bench.steps()
    assert steps > 20
    chosen = range(2, steps + 1, steps // 6)
    found = [bench.wrong(step, FAULTS[k % len(FAULTS)]) for k, step in enumerate(chosen)]
    assert not list(filter(None, found))


@pytest.mark.parametrize(
    "first", [pytest.param(True, id="first"), pytest.param(False, id="second", marks=pytest.mark.soak)]
)
def test_an_interrupt_leaves_one_whole_result_and_says_which(first: bool, tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path, first=first)
    steps = bench.steps()
    chosen = (*range(1, 6), *range(steps - 8, steps + 1))
    assert not list(filter(None, (bench.wrong(step, "interrupt") for step in chosen)))


def test_a_result_that_is_neither_of_both_is_seen(tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path)
    bench.after = {**bench.after, "made.onnx": b"half"}
    assert "status 0" in bench.wrong(0, "kill")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_at_any_time_leaves_one_whole_result(number: signal.Signals, tmp_path: Path) -> None:
    bench = Bench(FORMS["onnx"], tmp_path)
    assert not list(filter(None, at_random(bench, 3, int(number), (number,))))


@pytest.mark.sampled(2)
@pytest.mark.parametrize("streams", [">&-", "<&- >&- 2>&-"])
def test_streams_that_are_closed_do_not_stop_the_work(streams: str, tmp_path: Path) -> None:
    assert not closed(Bench(FORMS["onnx"], tmp_path, first=True), streams)


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    "limit",
    [("RLIMIT_FSIZE", 10_000), ("RLIMIT_NOFILE", 10), ("RLIMIT_AS", 200 << 20)],
    ids=lambda one: one[0],
)
def test_a_limit_of_the_process_leaves_one_whole_result(limit: tuple[str, int], tmp_path: Path) -> None:
    assert not limited(Bench(FORMS["onnx"], tmp_path), *limit)


@pytest.mark.parametrize("fault", ["ENOSPC", "EACCES"])
@pytest.mark.sampled(5)
def test_a_program_whose_archive_may_not_be_added_to_is_not_emptied(fault: str, tmp_path: Path) -> None:
    bench = Bench(FORMS["program"], tmp_path)
    assert not list(filter(None, (bench.wrong(step, fault) for step in (5, 6, 7))))


def test_a_refusal_of_the_system_to_a_library_is_no_bug(tmp_path: Path) -> None:
    assert not limited(Bench(FORMS["program"], tmp_path), "RLIMIT_NOFILE", 8)


@pytest.mark.skipif(not STATM.exists(), reason="only Linux tells it there")
def test_memory_is_spared_to_tell_that_it_ran_out(monkeypatch: pytest.MonkeyPatch) -> None:
    pages = []

    def taken(*_: object) -> int:
        pages.append(int(STATM.read_text().split()[0]))
        return 4

    def without_memory(options: object) -> None:
        taken()
        raise MemoryError

    monkeypatch.setitem(main.COMMANDS, "clean", replace(main.COMMANDS["clean"], run=without_memory))
    monkeypatch.setattr(main, "report", taken)
    assert main.main(["clean", "."]) == 4
    assert pages[0] - pages[1] >= SPARE // mmap.PAGESIZE
