"""Fuzzing: a few new cases of each kind, and the files that earlier ones left in the corpus."""

from __future__ import annotations

from pathlib import Path

import pytest
from fuzz import imported, judged_apart
from kinds import CORPUS, KINDS, STATEMENTS, Stock, stock

from growc.cli.main import main

FEW = {"recipe-grammar": 400, "recipe-bytes": 400, "safetensors": 4, "json": 4, "pt2": 10}
"""Cases in CI; of the other kinds 40. `make fuzz` judges all."""


@pytest.fixture(scope="module")
def given(tmp_path_factory: pytest.TempPathFactory) -> Stock:
    imported()
    return stock(tmp_path_factory.mktemp("stock"))


@pytest.mark.parametrize("kind", KINDS)
def test_cases_at_random_end_with_a_diagnostic(kind: str, given: Stock) -> None:
    cases = list(judged_apart(kind, range(FEW.get(kind, 40)), given))
    assert len({case.said for case in cases}) > 1
    assert not [case for case in cases if case.wrong]


@pytest.mark.parametrize("path", sorted(CORPUS.iterdir()), ids=lambda path: path.name)
def test_a_file_of_the_corpus_ends_with_a_diagnostic(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    given = ["check", str(path)] if path.suffix == ".grow" else ["plan", "-e", STATEMENTS[0], str(path)]
    assert main(given) in range(5)
    assert "Traceback" not in capsys.readouterr().err


def test_a_case_that_dies_is_seen(given: Stock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("growc.cli.main.main", lambda _: 70)
    assert [case.wrong != "" for case in judged_apart("npz", range(2), given)] == [True, True]
