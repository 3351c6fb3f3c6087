"""Files that are no good are refused: no internal error, no traceback, and not for ever."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from bad_files import Case, cases

from growc.cli import main

LIMIT = 20
"""Seconds that a refusal may take."""


def refused(case: Case, folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    """What is wrong with how growc ends on a case; nothing where it ends as it should."""
    name, make = case
    folder.mkdir()
    os.chdir(folder)
    arguments = make(folder)
    signal.alarm(LIMIT)
    status = main(arguments)
    signal.alarm(0)
    printed = capsys.readouterr()
    if status not in range(5) or "Traceback" in printed.err:
        return f"{name}: {arguments} ends with {status}: {printed.err[-300:]}"
    return ""


@pytest.fixture(autouse=True)
def limited(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.chdir(tmp_path)

    def late(*_: object) -> None:
        raise SystemExit(f"more than {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def test_a_few_bad_files_are_refused(tmp_path, capsys):
    some = list(cases(range(8)))[::9]
    found = [refused(case, tmp_path / str(k), capsys) for k, case in enumerate(some)]
    assert not list(filter(None, found))


@pytest.mark.soak
def test_hundreds_of_bad_files_are_refused(tmp_path, capsys):
    found = [refused(case, tmp_path / str(k), capsys) for k, case in enumerate(cases(range(400)))]
    assert not list(filter(None, found))
