"""Folders appear whole or not at all, and stand in for others without a gap."""

from __future__ import annotations

from pathlib import Path

import pytest

from growc.files import atomic_rename as placing
from growc.files.commit import commit


def folder(path: Path, content: str) -> Path:
    path.mkdir()
    (path / "file").write_text(content)
    return path


@pytest.fixture
def workshop(tmp_path):
    made = tmp_path / "workshop" / "drafts"
    made.mkdir(parents=True)
    return made


@pytest.fixture(params=[True, False])
def system(request, monkeypatch):
    """A system that can exchange names, and one that cannot."""
    if not request.param:
        monkeypatch.setattr(placing, "exchange", lambda one, other: False)


def test_a_folder_appears(tmp_path, workshop):
    commit([(folder(workshop / "new", "new"), tmp_path / "out")], lambda: None)
    assert (tmp_path / "out/file").read_text() == "new"


@pytest.mark.usefixtures("system")
def test_a_folder_takes_the_place_of_another(tmp_path, workshop):
    folder(tmp_path / "out", "old")
    commit([(folder(workshop / "new", "new"), tmp_path / "out")], lambda: None)
    assert [p.name for p in (tmp_path / "out").iterdir()] == ["file"]
    assert (tmp_path / "out/file").read_text() == "new"
    assert not any("new" in path.read_text() for path in workshop.rglob("file"))


@pytest.mark.usefixtures("system")
@pytest.mark.parametrize("taken", [True, False])
def test_old_files_are_restored_when_a_later_move_fails(tmp_path, workshop, taken):
    if taken:
        folder(tmp_path / "out", "old")
    (workshop / "record").write_text("{}")
    moves = [
        (folder(workshop / "new", "new"), tmp_path / "out"),
        (workshop / "record", tmp_path / "nowhere/record"),
    ]
    with pytest.raises(OSError, match="nowhere"):
        commit(moves, lambda: None)
    assert (tmp_path / "out").exists() == taken
    assert not taken or (tmp_path / "out/file").read_text() == "old"


def test_a_folder_takes_the_place_of_another_in_one_step(tmp_path, workshop, monkeypatch):
    """No step behind the exchange can fail, which would leave the new folder and be told as an error."""

    def refuses(*_: object) -> None:
        raise OSError("no space left on device")

    folder(tmp_path / "out", "old")
    draft = folder(workshop / "new", "new")
    for step in ("rename", "replace", "unlink"):
        monkeypatch.setattr(Path, step, refuses)
    undo = placing.put(draft, tmp_path / "out", workshop / "before")
    assert (tmp_path / "out/file").read_text() == "new"
    undo()
    assert (tmp_path / "out/file").read_text() == "old"


def test_names_are_exchanged_at_once(tmp_path):
    one, other = folder(tmp_path / "one", "1"), folder(tmp_path / "other", "2")
    assert placing.exchange(one, other)
    assert ((one / "file").read_text(), (other / "file").read_text()) == ("2", "1")
    assert not placing.exchange(one, tmp_path / "missing")
