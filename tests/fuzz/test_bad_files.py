"""Files that are no good are refused: no internal error, no traceback, and not for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import bad_checkpoints
import bad_files
import pytest
from bad_files import Case

from growc.cli.main import main

LIMIT = 20
"""Seconds that a refusal may take."""


def wrong(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """The error in how growc ends on a case; empty where it ends as it should."""
    name, make = case
    folder.mkdir()
    os.chdir(folder)
    arguments = make(folder)
    signal.alarm(LIMIT)
    status = main(arguments)
    signal.alarm(0)
    printed = capsys.readouterr()
    said = printed.out + printed.err
    if status not in range(5) or "Traceback" in said or "called" in said or "\x1b[31m" in said:
        return f"{name}: {arguments} ends with {status}: {said[-300:]}"
    return ""


def assert_refused(cases: Iterable[Case], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = [wrong(case, folder / str(k), capsys) for k, case in enumerate(cases)]
    assert found
    assert not list(filter(None, found))


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)

    def late(*_: object) -> None:
        raise SystemExit(f"more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


@pytest.fixture
def good(tmp_path: Path) -> Path:
    bad_checkpoints.save_good(tmp_path / "good")
    return tmp_path / "good"


def test_a_few_bad_files_are_refused(tmp_path, capsys):
    assert_refused(list(bad_files.cases(range(8)))[::9], tmp_path, capsys)


@pytest.mark.soak
def test_hundreds_of_bad_files_are_refused(tmp_path, capsys):
    assert_refused(bad_files.cases(range(400)), tmp_path, capsys)


def test_a_few_bad_checkpoints_are_refused(tmp_path, good, capsys):
    assert_refused(list(bad_checkpoints.cases(good, range(3)))[::37], tmp_path, capsys)


@pytest.mark.soak
def test_hundreds_of_bad_checkpoints_are_refused(tmp_path, good, capsys):
    assert_refused(bad_checkpoints.cases(good, range(100)), tmp_path, capsys)
