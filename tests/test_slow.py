"""Slow cases: which of them run each time, and that the record names cases that exist."""

from __future__ import annotations

import json
import re

import slow
from graphs import ROOT


def test_the_quickest_of_each_file_stay() -> None:
    known = {"a.py::x": 9.0, "a.py::y[1]": 3.0, "a.py::y[2]": 3.0, "a.py::y[3]": 3.0, "b.py::z": 60.0}
    assert slow.left_out(known) == {"a.py::x", "a.py::y[2]", "a.py::y[3]", "b.py::z"}


def test_recorded_cases_exist() -> None:
    for case in json.loads(slow.FILE.read_text(encoding="utf-8")):
        file, _, rest = case.partition("::")
        name = rest.split("[")[0].split("::")[-1]
        assert re.search(rf"^ *def {name}\(", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE), case
