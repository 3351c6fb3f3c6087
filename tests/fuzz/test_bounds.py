"""Inputs that stand for much end in seconds, within a gigabyte, and never as a fault of growc."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import bad_checkpoints
import bounds
import numpy as np
import pytest
from safetensors import safe_open

import growc
from growc.cli.main import main
from growc.errors.diagnostic import GrowError, render
from growc.errors.source import SourceText
from growc.grammar import parse
from growc.system.limits import LIMITS

SECONDS, MEGABYTES = 30, 1024
"""Bounds on a machine that does much else: the seconds are three times those promised."""
MEASURED = """
import resource, subprocess, sys, time
started = time.monotonic()
status = subprocess.run(sys.argv[1:], stdout=sys.stderr).returncode
print(status, time.monotonic() - started, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""A process starts with the memory of the one that starts it, and remembers the most: a small one does it."""
NAMES = [name for name, _ in bounds.cases(Path(), Path())]


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("good")
    bad_checkpoints.save_good(folder)
    return folder


def ended(arguments: list[str], folder: Path) -> tuple[int, float, float, str]:
    """The exit status of a command, its seconds, its megabytes, and what it said."""
    said = folder / "said"
    with said.open("wb") as file:
        command = [sys.executable, "-c", MEASURED, sys.executable, "-m", "growc", *arguments]
        told = subprocess.run(command, stdout=subprocess.PIPE, stderr=file, cwd=folder, check=True)
    status, seconds, kilobytes = told.stdout.split()
    return int(status), float(seconds), int(kilobytes) / 1024, said.read_text(errors="replace")


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.sampled(4)
def test_an_input_that_stands_for_much_ends_in_time_and_within_memory(
    name: str, good: Path, tmp_path: Path
) -> None:
    make = dict(bounds.cases(good / "plain", good / "m.pt2"))[name]
    status, seconds, megabytes, said = ended(make(tmp_path), tmp_path)
    assert status in range(5), said[-500:]
    assert "Traceback" not in said
    assert seconds < SECONDS
    assert megabytes < MEGABYTES
    assert len(said) < 1_000_000


# ---------------------------------------------------------------------------------------- limits


def outcome(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str]:
    capsys.readouterr()
    status = main([str(one) for one in arguments])
    return status, capsys.readouterr().err


def over(name: str, good: Path, folder: Path) -> tuple[list[str], int]:
    """A command that needs so much of a limit, and how much that is."""
    (folder / "m.onnx").write_bytes(bounds.MODELS["20,000 nodes"]().SerializeToString())
    out = ["-o", str(folder / "out.onnx")]
    match name:
        case "recipe_bytes":
            return ["check", "-e", bounds.WIDEN.strip()], len(bounds.WIDEN.strip())
        case "statements":
            return ["check", *("-e", "untie head") * 4], 4
        case "layers":
            return ["plan", "-e", "stack layers to 7 by last", str(bounds.MODEL)], 7
        case "nodes":
            return ["inspect", str(folder / "m.onnx")], 20_000
        case "calls":
            (folder / "f.onnx").write_bytes(bounds.doubled(3).SerializeToString())
            return ["inspect", str(folder / "f.onnx")], 15
        case "tensors":
            with safe_open(good / "plain" / "model.safetensors", "np") as file:
                return ["inspect", str(good / "plain")], len(file.keys())
        case "json_bytes":
            head = (good / "plain" / "model.safetensors").read_bytes()[:8]
            config = (good / "plain" / "config.json").stat().st_size
            return ["inspect", str(good / "plain")], max(int.from_bytes(head, "little"), config)
        case "unpacked_bytes":
            np.savez_compressed(folder / "i.npz", input_ids=np.zeros((1, 32), np.int64))
            read = ["--inputs", str(folder / "i.npz")]
            return ["apply", "-e", bounds.WIDEN, str(bounds.MODEL), *out, *read], 128 + 8 * 32
        case "constant_bytes":
            return ["inspect", str(good / "plain")], 2 * 4 * 4  # rotary frequencies, and their originals
    raise AssertionError(name)


@pytest.mark.parametrize("name", LIMITS)
def test_a_limit_refuses_what_is_above_it_and_lets_through_what_is_not(
    name: str, good: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, need = over(name, good, tmp_path)
    status, said = outcome(capsys, *command, "--limit", f"{name}={need - 1}")
    assert status in (2, 3)
    assert f"more than {need - 1:,} {LIMITS[name].counts.split()[0]}" in said
    assert f"--limit {name}=N" in said
    assert outcome(capsys, *command, "--limit", f"{name}={need}")[0] == 0


def test_a_limit_in_python_holds_for_a_while() -> None:
    deep = "stack layers to 7 by last"
    with growc.limits(layers=6), pytest.raises(GrowError, match="more than 6 layers"):
        growc.plan(deep, bounds.MODEL)
    growc.plan(deep, bounds.MODEL)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("layer=5", "did you mean `layers`?"),
        ("layers", "not of the form NAME=N"),
        ("layers=-1", "not of the form NAME=N"),
        ("layers=0", "a positive integer"),
        ("layers=many", "not of the form NAME=N"),
    ],
)
def test_a_limit_that_is_none_is_refused(
    given: str, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, words = outcome(capsys, "check", "-e", "untie head", "--limit", given)
    assert (status, said in words) == (2, True)


@pytest.mark.parametrize("out", ["", ".", "/", "..", "a/.."])
def test_an_output_without_a_name_is_refused(
    out: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a").mkdir()
    status, said = outcome(capsys, "apply", "-e", bounds.WIDEN, str(bounds.MODEL), "-o", out)
    assert status == 2
    assert "names no file" in said


def test_an_output_that_is_a_link_to_itself_is_replaced(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "o.onnx").symlink_to("o.onnx")
    command = ["apply", "-e", bounds.WIDEN, str(bounds.MODEL), "-o", str(tmp_path / "o.onnx"), "--no-verify"]
    assert outcome(capsys, *command)[0] == 0
    assert (tmp_path / "o.onnx").is_file()
    assert not (tmp_path / "o.onnx").is_symlink()


@pytest.mark.parametrize("option", ["model", "out", "inputs", "lineage"])
def test_a_zero_byte_in_a_path_is_a_mistake_of_the_caller(option: str, tmp_path: Path) -> None:
    paths = {"model": bounds.MODEL, "out": tmp_path / "o.onnx"}
    given: dict[str, Any] = {**paths, option: f"{tmp_path}/a\0b"}
    with pytest.raises(GrowError):
        growc.apply(bounds.WIDEN, given.pop("model"), given.pop("out"), **given)


def test_a_zero_byte_in_a_recipe_is_a_mistake_of_the_recipe(tmp_path: Path) -> None:
    for text in ('include "a\0b"', 'measure importance on "a\0b"\nsubclone ffn to 8 by importance', "\0"):
        with pytest.raises(GrowError):
            growc.plan(text, bounds.MODEL)


def test_a_long_line_is_shown_around_the_mistake() -> None:
    with pytest.raises(GrowError) as found:
        parse(SourceText("r.grow", "widen ffn to " + "1 + " * 50 + "x" * 3_000 + " ^"))
    assert len(render(found.value.diagnostics[0])) < 2_000
