"""Slow cases: which of them run each time, and that the record names cases that exist."""

from __future__ import annotations

import json
import re

import slow
from graphs import ROOT


def test_the_quickest_of_each_file_stay() -> None:
    known = {"a.py::x": 9.0, "a.py::y[1]": 3.0, "a.py::y[2]": 3.0, "a.py::y[3]": 3.0, "b.py::z": 9.0}
    assert slow.left_out(known) == {"a.py::x", "a.py::y[2]", "a.py::y[3]"}


def test_the_longest_stay_only_as_the_quickest_of_a_folder() -> None:
    known = {"a/a.py::x": 3.0, "a/b.py::x": 60.0, "b/c.py::x": 60.0, "b/c.py::y": 61.0, "b/d.py::x": 62.0}
    assert slow.left_out(known) == {"a/b.py::x", "b/c.py::y", "b/d.py::x"}


def test_recorded_cases_exist() -> None:
    for case in json.loads(slow.FILE.read_text(encoding="utf-8")):
        file, _, rest = case.partition("::")
        name = rest.split("[")[0].split("::")[-1]
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), case
