"""Forty results of the corpus: what is emitted stays as it is, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import DIFFERENT, OTHER_SOURCE, SAME, differences, recorded, verdict
from corpus_cases import Case, smoke

RESULTS = recorded()["results"]


@pytest.mark.parametrize("case", smoke(), ids=lambda case: case.name)
def test_emitted_files_and_plans_are_those_on_record(tmp_path: Path, case: Case) -> None:
    found, known = dict(case.make(tmp_path)), RESULTS.get(case.name)
    told = verdict(found, known)
    if told == OTHER_SOURCE:
        pytest.skip("this machine makes another source")
    assert told == SAME, differences(found, known) if told == DIFFERENT else told
