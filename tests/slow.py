"""Slow cases: `make test` runs the quickest of each file, `make soak` the others.

tests/slow.json has the seconds of every case that took long when all ran last; `pytest --record-slow` renews
the entries of the cases that it runs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

import pytest

FILE = Path(__file__).with_name("slow.json")
SLOW = 2.0
"""Seconds from which on a case is slow."""

SHARE = 4.0
"""Seconds that the slow cases of one file may take each time; at least one of them runs."""

LONGEST = 10.0
"""Seconds from which on a case runs each time only as the quickest slow one of its folder."""


def left_out(known: Mapping[str, float]) -> set[str]:
    """The slow cases that only `make soak` runs: those of a file beyond its share, and the longest ones.

    known: seconds by case.
    """
    leaving: set[str] = set()
    spent: dict[str, float] = defaultdict(float)
    folders: set[str] = set()
    for case in sorted(known, key=lambda case: (known[case], case)):
        file = case.partition("::")[0]
        folder = file.rpartition("/")[0]
        too_long = known[case] >= LONGEST and folder in folders
        if too_long or (file in spent and spent[file] + known[case] > SHARE):
            leaving.add(case)
        spent[file] += known[case]
        folders.add(folder)
    return leaving


def mark(items: Iterable[pytest.Item]) -> None:
    """Mark those cases `soak`, except where a test is marked `smoke`."""
    known = json.loads(FILE.read_text(encoding="utf-8"))
    leaving = left_out(known)
    for item in items:
        if item.nodeid in leaving and item.get_closest_marker("smoke") is None:
            item.add_marker(pytest.mark.soak)


class Recorder:
    """A plugin that adds up the seconds of each case, and writes the slow ones down at the end."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self.seconds[report.nodeid] += report.duration

    def pytest_sessionfinish(self) -> None:
        known = json.loads(FILE.read_text(encoding="utf-8"))
        kept = {case: seconds for case, seconds in known.items() if case not in self.seconds}
        slow = {case: round(seconds, 1) for case, seconds in self.seconds.items() if seconds >= SLOW}
        FILE.write_text(json.dumps(dict(sorted((kept | slow).items())), indent=0) + "\n", encoding="utf-8")
