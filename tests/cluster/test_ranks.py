"""One run in several processes under torchrun: bytes, refusals, and what a restart goes on with."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from tiny_llama import save_llama

from growc.errors.diagnostic import Diagnostic, GrowError
from growc.system.ranks import ALONE, Ranks, _portable
from growc.system.workshop import DRAFTS, draft_folder, notes

RECIPE = "widen ffn to 2 * ffn with neighbor copy\nstack layers to 4 by last with zero outputs\n"


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """A tiny model in bfloat16, and a recipe beside it."""
    folder = tmp_path_factory.mktemp("cluster")
    save_llama(folder / "model")
    (folder / "wider.grow").write_text(RECIPE)
    return folder


def torchrun(folder, *arguments, ranks=2):
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    command += ["-m", "growc", "apply", *arguments]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, env=environment, timeout=300)


def content(folder):
    return {p.relative_to(folder).as_posix(): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def test_two_ranks_write_the_bytes_of_one(checkpoint):
    given = ["wider.grow", "model", "--shard-size", "10KB", "--no-verify", "-o"]
    done = torchrun(checkpoint, *given, "by-two")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("Written:") == 1
    alone = [sys.executable, "-m", "growc", "apply", *given, "by-one"]
    subprocess.run(alone, cwd=checkpoint, check=True, capture_output=True)
    assert content(checkpoint / "by-two") == content(checkpoint / "by-one")
    assert len([*(checkpoint / "by-two").glob("*.safetensors")]) > 3


def test_a_refusal_is_printed_once_and_has_its_status(checkpoint):
    command = [sys.executable, "-m", "growc", "apply", "-e", "widen ffn to 49 with neighbor copy"]
    done = subprocess.run(
        [*command, "model", "-o", "none", "--workers", "2", "-e", "expect ffn == 50"],
        cwd=checkpoint,
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr.count("error[") == 1
    assert "Traceback" not in done.stderr
    assert not (checkpoint / "none").exists()


def test_a_process_alone_does_everything_itself():
    assert ALONE.each(lambda rank, size: (rank, size)) == [(0, 1)]
    assert ALONE.each(lambda *_: 1, own=lambda *_: 2) == [2]
    assert (
        "torch"
        not in subprocess.run(
            [sys.executable, "-c", "import sys, growc.system.ranks; print(*sys.modules)"],
            capture_output=True,
            text=True,
            check=True,
        ).stdout.split()
    )


def test_an_error_of_another_process_keeps_its_words():
    refused = GrowError(Diagnostic("G502", "the disk is full"))
    assert str(_portable(refused)) == str(refused)
    strange = ValueError(lambda: None)
    assert str(_portable(strange)).startswith("ValueError: ")


def test_workers_are_one_or_more(checkpoint, capsys):
    from growc.cli.main import main

    assert main(["apply", "wider.grow", str(checkpoint / "model"), "--workers", "0"]) == 2
    assert "`--workers 0` is no number of processes" in capsys.readouterr().err


def left(target, key, *, content="draft"):
    """The folder of drafts that a run leaves when it fails and is to be started anew."""
    found = []

    def run():
        with draft_folder(target, key, stays=True) as drafts:
            found.append(drafts)
            (drafts / target.name).write_text(content)
            (drafts / "copies").mkdir()
            (drafts / "copies/of").write_text("what is compared")
            (notes(drafts) / "0.jsonl").write_text("{}")
            raise ValueError("fails")

    with pytest.raises(ValueError, match="fails"):
        run()
    return found[0]


def test_a_run_with_the_same_key_goes_on_with_what_was_left(tmp_path):
    target = tmp_path / "out"
    drafts = left(target, "key")
    with draft_folder(target, "key") as again:
        assert again == drafts
        assert (again / "out").read_text() == "draft"
        assert [path.name for path in again.iterdir()] == ["out"]
        assert (notes(again) / "0.jsonl").read_text() == "{}"
        owner = json.loads((again.parent / ".owner").read_text())
        assert owner["process"] == os.getpid()
    assert [*tmp_path.iterdir()] == []


@pytest.mark.parametrize(("name", "key"), [("out", "other"), ("out", ""), ("elsewhere", "key")])
def test_another_run_removes_what_was_left(tmp_path, name, key):
    drafts = left(tmp_path / "out", "key")
    with draft_folder(tmp_path / name, key) as again:
        assert again != drafts
        assert not drafts.exists()
        assert [*again.iterdir()] == []
    assert [*tmp_path.iterdir()] == []


def test_drafts_that_began_to_commit_are_not_continued(tmp_path):
    drafts = left(tmp_path / "out", "key")
    (drafts.parent / ".moves").write_text("{}")
    with draft_folder(tmp_path / "out", "key") as again:
        assert again != drafts


def test_a_run_that_is_not_started_anew_leaves_nothing(tmp_path):
    def run():
        with draft_folder(tmp_path / "out", "key") as drafts:
            assert drafts.name == DRAFTS
            raise ValueError("fails")

    with pytest.raises(ValueError, match="fails"):
        run()
    assert [*Path(tmp_path).iterdir()] == []


def test_ranks_know_whether_they_are_started_anew():
    assert not Ranks(0, 2).again
    assert not ALONE.again
