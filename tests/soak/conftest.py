"""Real models, and the numbers that come of growing them.

Models stand in the folder GROWC_MODELS, as `examples/make_models.py --anon` leaves them; those that are
missing there are made into pytest's cache. Every growth is a process of its own, measured; the numbers are
printed at the end.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from models import FLAVOURS, MAKER

ROWS: list[str] = []


@dataclass(frozen=True)
class Run:
    """A finished `growc`: exit status, what it printed as JSON, what it said, seconds, peak memory in MB."""

    status: int
    report: dict[str, Any]
    said: str
    seconds: float
    peak: float


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.soak)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if ROWS:
        terminalreporter.section("growths")
        header = ("model", "recipe", "exact", "difference", "rounding", "seconds", "peak MB")
        terminalreporter.write_line(ROW.format(*header))
        for row in ROWS:
            terminalreporter.write_line(row)


ROW = "{:28} {:24} {:6} {:>10} {:>9} {:>8} {:>8}"


@pytest.fixture(scope="session")
def real_model(request: pytest.FixtureRequest) -> Callable[[str, str], Path]:
    """The path of a real model in one of FLAVOURS."""
    given = os.environ.get("GROWC_MODELS")
    folders = [Path(given)] if given else []
    folders.append(request.config.cache.mkdir("growc-real-models"))

    def path(name: str, flavour: str) -> Path:
        assert flavour in FLAVOURS
        for folder in folders:
            if (folder / f"{name}.{flavour}.onnx").exists():
                return folder / f"{name}.{flavour}.onnx"
        command = [sys.executable, str(MAKER), "--out", str(folders[-1]), "--only", name, "--anon"]
        subprocess.run([*command, "--exporter", flavour.removesuffix(".anon")], check=True)
        return folders[-1] / f"{name}.{flavour}.onnx"

    return path


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that is gone after the test: results have hundreds of megabytes."""
    path = Path(tempfile.mkdtemp(prefix="growc-soak-"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def grow(folder: Path) -> Callable[..., Run]:
    """Run `growc apply` on a model, into `folder / "grown.onnx"`; the numbers join the table."""

    def apply(model: Path, name: str, recipe: str) -> Run:
        command = [sys.executable, "-m", "growc.cli.main", "apply", "-e", recipe, str(model)]
        done = run([*command, "-o", str(folder / "grown.onnx"), "--json"])
        measured = done.report.get("verification") or {}
        exact = done.report.get("certificate", {}).get("exact", "-")
        numbers = [f"{measured[key]:.1e}" if key in measured else "-" for key in ("relative", "rounding")]
        stem = model.name.removesuffix(".onnx")
        ROWS.append(ROW.format(stem, name, str(exact), *numbers, f"{done.seconds:.1f}", f"{done.peak:.0f}"))
        return done

    return apply


@pytest.fixture
def note() -> Callable[[str], None]:
    """Add a remark to the last row of the table."""

    def add(remark: str) -> None:
        ROWS[-1] = f"{ROWS[-1]}  {remark}"

    return add


def run(command: list[str]) -> Run:
    """Run a command that prints JSON, and measure it."""
    start = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        process = subprocess.Popen(command, stdout=out, stderr=err)
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        seconds = time.monotonic() - start
        out.seek(0)
        err.seek(0)
        text, errors = out.read(), err.read()
    report = json.loads(text) if text.strip() else {}
    return Run(process.returncode, report, errors, seconds, usage.ru_maxrss / 1024)
