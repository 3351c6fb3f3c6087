"""The notebooks of the documentation: they run, and show what their pages show."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import nbformat
import pytest
from graphs import ROOT
from nbclient import NotebookClient
from test_site import MOST, sentences

NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
QUICK = "stranger"
MEASURED = re.compile(r"\d+\.\d+(e[+-]\d+)?|\d+e[+-]\d+|\d+%")
"""Numbers that another machine may round in another way."""


def executed(path: Path, folder: Path) -> Any:
    """A notebook that was run in a folder, without what libraries say and without progress."""
    book: Any = nbformat.read(path, as_version=4)
    told = {"metadata": {"path": str(folder)}}
    NotebookClient(book, timeout=600, record_timing=False, resources=told).execute()
    book.metadata.pop("language_info", None)
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if kept(one)]
    return book


def kept(output: Any) -> bool:
    """Whether an output is a result, or was printed."""
    return output.output_type == "execute_result" or output.get("name") == "stdout"


def shown(book: Any) -> list[tuple[str, list[str]]]:
    """Each cell with its outputs, without what was measured."""
    return [(cell.source, [said(one) for one in cell.get("outputs", ())]) for cell in book.cells]


def said(output: Any) -> str:
    data = output.get("data", {})
    text = data.get("text/html") or data.get("text/plain") or output.get("text", "")
    return " ".join(MEASURED.sub("#", text).split())


@pytest.mark.parametrize(
    "path",
    [
        pytest.param(path, id=path.stem, marks=pytest.mark.smoke if path.stem == QUICK else pytest.mark.soak)
        for path in NOTEBOOKS
    ],
)
def test_a_notebook_runs_and_shows_what_its_page_shows(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    pytest.importorskip("torch")
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    folder = tmp_path / "docs/notebooks"
    folder.mkdir(parents=True)
    book = executed(path, folder)
    if request.config.getoption("--update-golden"):
        nbformat.write(book, path)
    assert shown(book) == shown(nbformat.read(path, as_version=4))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_sentences_of_a_notebook_have_at_most_thirty_words(path: Path):
    for cell in nbformat.read(path, as_version=4).cells:
        if cell.cell_type == "markdown":
            for sentence in sentences(cell.source):
                assert len(sentence.split()) <= MOST, sentence
