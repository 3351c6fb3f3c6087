"""Forty results of the corpus: what is emitted stays as it is, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest
from corpus import DIFFERENT, OTHER_MACHINE, OTHER_SOURCE, SAME, differences, recorded, verdict
from corpus_cases import Case, smoke
from digests import versions

RECORD = recorded()


@pytest.mark.parametrize("case", smoke(), ids=lambda case: case.name)
def test_emitted_files_and_plans_are_those_on_record(tmp_path: Path, case: Case) -> None:
    found = dict(case.make(tmp_path))
    told = verdict(found, case.name, RECORD)
    if told in (OTHER_SOURCE, OTHER_MACHINE) and RECORD["versions"] != versions():
        pytest.skip(told)
    assert told == SAME, differences(found, RECORD["results"][case.name]) if told == DIFFERENT else told
