"""Killed runs leave the target as it was or as it is to be; the next run finds what else they left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import onnx_ir as ir
import pytest
from graphs import UP_DOWN, save

from growc import api
from growc.dialects.onnx.files.load import load
from growc.errors.diagnostic import GrowError
from growc.files.commit import own_data, record_path
from growc.system import workshop as workshops
from growc.system.workshop import BESIDE, OWNER, SCRATCH, alone, clean, draft_folder

FIRST, SECOND = (f'widen axis 1 of "up" to {size} with neighbor copy' for size in (96, 112))
KILLED = """
import os, pathlib, sys
from growc import api
left = int(sys.argv[4])
for name in ("replace", "rename", "link", "unlink"):
    def dying(*given, usual=getattr(os, name), **named):
        global left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), 9)
        return usual(*given, **named)
    setattr(os, name, dying)
api.apply(sys.argv[1], sys.argv[2], sys.argv[3], check=False, lineage=sys.argv[5])
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    (tmp_path / "made").mkdir()
    return save(tmp_path / "source.onnx", UP_DOWN, opset=18, external=True)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder for temporary files of this test's own."""
    place = tmp_path / "temporary"
    place.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(place))
    monkeypatch.setenv("TMPDIR", str(place))
    return place


def killed(source: Path, target: Path, step: int) -> bool:
    """Run growc for a second result, and kill it at the nth change of a name; whether it came to that."""
    given = [SECOND, str(source), str(target), str(step), str(target.parent / "lineage.json")]
    ran = subprocess.run([sys.executable, "-c", KILLED, *given], capture_output=True, check=False)
    assert ran.returncode in (0, -signal.SIGKILL), ran.stderr.decode()
    return ran.returncode != 0


def state(target: Path) -> dict[str, bytes]:
    """A result with all that belongs to it."""
    files = [target, *own_data(target), record_path(target), target.parent / "lineage.json"]
    return {path.name: path.read_bytes() for path in files}


STEPS = [pytest.param(n, marks=pytest.mark.soak if n % 4 else ()) for n in range(1, 25)]


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.usefixtures("temporary")
def test_a_run_killed_between_renames_leaves_one_result(source: Path, tmp_path: Path, step: int) -> None:
    target = tmp_path / "made/o.onnx"
    told = {"check": False, "force": True}
    states = []
    for recipe in (SECOND, FIRST):
        api.apply(recipe, source, target, lineage=tmp_path / "made/lineage.json", **told)
        states.append(state(target))
    died = killed(source, target, step)
    assert bool(clean(target.parent).removed) == died
    assert state(target) in states
    assert {path.name for path in target.parent.iterdir()} == set(state(target))


def abandoned(place: Path, prefix: str, target: str = "") -> Path:
    """A folder of a process that was killed."""
    folder = place / f"{prefix}abandoned"
    folder.mkdir()
    owner = {"process": 2**22 + 1, "host": "here", "target": target}
    (folder / OWNER).write_text(json.dumps(owner))
    (folder / "draft").write_bytes(b"much")
    return folder


def test_the_next_run_removes_what_was_left(source: Path, tmp_path: Path, temporary: Path) -> None:
    left = abandoned(tmp_path / "made", BESIDE), abandoned(temporary, SCRATCH)
    api.apply(FIRST, source, tmp_path / "made/o.onnx")
    assert not any(folder.exists() for folder in left)
    assert not list(temporary.glob("growc-*"))


def test_folders_that_are_not_growc_s_stay(tmp_path: Path, temporary: Path) -> None:
    kept = tmp_path / f"{BESIDE}notes"
    kept.mkdir()
    (kept / "text").write_text("mine")
    place = tmp_path / "elsewhere"
    place.mkdir()
    (tmp_path / f"{BESIDE}link").symlink_to(place)
    (place / OWNER).write_text("{}")
    (empty := temporary / "growc-of-others").mkdir()
    found = clean(tmp_path)
    assert empty.is_dir()
    assert (found.removed, found.busy, found.unsure) == ([], {}, [])
    assert (kept / "text").read_text() == "mine"
    assert (place / OWNER).exists()


@pytest.mark.usefixtures("temporary")
def test_a_folder_that_vanishes_while_it_is_looked_at_is_in_nobody_s_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshops, "_own_folders", lambda place, prefix: [place / f"{prefix}gone"])
    found = clean(tmp_path)
    assert (found.removed, found.busy, found.unsure) == ([], {}, [])
    with draft_folder(tmp_path / "o.onnx") as folder:
        assert folder.is_dir()


@pytest.mark.usefixtures("temporary")
def test_a_list_of_renames_names_nothing_elsewhere(tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("kept")
    (tmp_path / "made").mkdir()
    folder = abandoned(tmp_path / "made", BESIDE)
    moves = [["../victim", victim.stat().st_ino, "../victim"]]
    said = {"model": [str(victim), 1], "moves": moves, "stale": ["../victim"]}
    (folder / workshops.MOVES).write_text(json.dumps(said))
    clean(tmp_path / "made")
    assert victim.read_text() == "kept"
    assert not folder.exists()


@pytest.mark.usefixtures("temporary")
def test_a_second_run_for_a_target_says_who_makes_it(tmp_path: Path) -> None:
    script = f"""
import pathlib, sys
from growc.system.workshop import draft_folder
with draft_folder(pathlib.Path({str(tmp_path / "o.onnx")!r})):
    print("here", flush=True)
    sys.stdin.read()
"""
    run = [sys.executable, "-c", script]
    with subprocess.Popen(run, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        other.stdout.readline()
        said = pytest.raises(GrowError, match=f"is being made by process {other.pid}")
        with said, draft_folder(tmp_path / "o.onnx"):
            pass
        with draft_folder(tmp_path / "another.onnx"):
            assert list(clean(tmp_path).busy)
        other.communicate(b"")
    with draft_folder(tmp_path / "o.onnx") as folder:
        assert [path for path in tmp_path.iterdir() if path.name.startswith(BESIDE)] == [folder.parent]


def test_a_folder_that_cannot_be_removed_is_removed_by_the_next_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with draft_folder(tmp_path / "o.onnx") as folder:
        (folder / "old").mkdir()
        monkeypatch.setattr(shutil, "rmtree", lambda *_, **__: None)
    assert (folder.parent / OWNER).exists()
    monkeypatch.undo()
    assert clean(tmp_path).removed == [folder.parent]
    assert not list(tmp_path.iterdir())


WAITS = """
import os, pathlib, signal, sys, threading
from growc.system.interrupts import SignalState, Interrupted, interruptible
from growc.system.workshop import draft_folder
threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM)).start()
try:
    with interruptible(SignalState()), draft_folder(pathlib.Path(sys.argv[1])):
        print("made")
except Interrupted:
    print("interrupted")
"""


def test_waiting_for_what_another_run_commits_can_be_interrupted(tmp_path: Path) -> None:
    with alone(tmp_path):
        given = [sys.executable, "-c", WAITS, str(tmp_path / "o.onnx")]
        ran = subprocess.run(given, capture_output=True, text=True, check=True, timeout=60)
    assert ran.stdout == "interrupted\n"
    assert not list(tmp_path.iterdir())


def test_without_locks_what_was_left_waits_for_the_command(
    source: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(workshops, "_lock", lambda handle, wait=False: None)
    monkeypatch.setattr("socket.gethostname", lambda: "here")
    left = abandoned(tmp_path / "made", BESIDE)
    api.apply(FIRST, source, tmp_path / "made/o.onnx", check=False)
    assert left.exists()
    assert clean(tmp_path / "made").removed == [left]
    assert not left.exists()


def test_data_that_nothing_uses_any_more_may_stay(
    source: Path, tmp_path: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target = tmp_path / "made/o.onnx"
    api.apply(FIRST, source, target, check=False)
    [data] = own_data(target)
    usual = os.unlink

    def unlink(path, **more):
        if Path(path).name == data.name:
            raise PermissionError(13, "Permission denied", str(path))
        usual(path, **more)

    monkeypatch.setattr(os, "unlink", unlink)
    done = api.apply(SECOND, source, target, check=False)
    assert done.remarks == (f"`{data}`, which nothing uses any more, stays: permission denied",)
    assert len(own_data(target)) == 1


@pytest.mark.parametrize("name", [".moves", ".owner", "record", "single", "drafts"])
@pytest.mark.usefixtures("temporary")
def test_a_result_may_have_a_name_that_growc_has_for_files_of_its_own(
    source: Path, tmp_path: Path, name: str
) -> None:
    usual, target = tmp_path / "made/o.onnx", tmp_path / "other" / name
    target.parent.mkdir()
    for recipe in (SECOND, FIRST):
        for place in (usual, target):
            api.apply(recipe, source, place, force=True)
    made = [load(place).graph.initializers["up"].const_value.numpy() for place in (usual, target)]
    assert (made[0] == made[1]).all()
    beside = {path.name for path in target.parent.iterdir()}
    assert beside == {name, record_path(target).name, *(path.name for path in own_data(target))}


def test_a_run_for_a_link_that_is_killed_leaves_one_result(source: Path, tmp_path: Path) -> None:
    """The rename replaces the link, not what it leads to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    for step in range(12, 24):
        target = tmp_path / f"made{step}/o.onnx"
        target.parent.mkdir()
        api.apply(FIRST, source, elsewhere / "o.onnx", check=False, force=True)
        target.symlink_to(elsewhere / "o.onnx")
        if not killed(source, target, step):
            break
        clean(target.parent)
        ir.load(target).graph.initializers["up"].const_value.numpy()
