"""Where runs stand: a JSON file each, checkpoints and final weights beside, one runner at a time."""

from __future__ import annotations

import fcntl
import json
import os
import re
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks.savings.tables import Row, Table

FOLDER = Path(__file__).parent
RUNS, WORK = FOLDER / "runs", FOLDER / "work"


@dataclass(frozen=True)
class Places:
    """`runs`: the records, which are committed. `work`: checkpoints and weights, which are not."""

    runs: Path = RUNS
    work: Path = WORK

    def record(self, table: Table, row: Row, seed: int) -> Path:
        """The JSON file of a run."""
        return self.runs / table.name / f"{slug(row.name)}-{seed}.json"

    def at_work(self, table: Table, row: Row, seed: int, kind: str) -> Path:
        """The checkpoint, the initial or the final weights of a run, or its lock."""
        return self.work / table.name / f"{slug(row.name)}-{seed}.{kind}"

    def finished(self, table: Table, row: Row, seed: int) -> dict[str, Any] | None:
        """The record of a run that has ended after as many steps as the table has."""
        path = self.record(table, row, seed)
        record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
        ended = record.get("finished") and record["steps"] == table.steps
        return record if ended else None


def slug(name: str) -> str:
    """A name as part of a file's name."""
    return re.sub(r"[^a-z0-9.]+", "-", name.lower()).strip("-")


def write_json(path: Path, record: Mapping[str, Any]) -> None:
    """Put a record in place as a whole."""
    lines = ",\n".join(f" {json.dumps(name)}: {json.dumps(value)}" for name, value in record.items())
    _replace(path, lambda beside: beside.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8"))


def write_tensors(path: Path, state: Mapping[str, Any]) -> None:
    """Put a checkpoint in place as a whole."""
    _replace(path, lambda beside: torch.save(dict(state), beside))


def _replace(path: Path, write: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    write(beside)
    beside.replace(path)


@contextmanager
def locked(path: Path) -> Iterator[bool]:
    """Whether this process has the file for itself; the lock ends with the process."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True


def revision() -> str:
    """The commit that the code is of, with a mark where code was changed since."""
    try:
        head = _git("rev-parse", "HEAD")
        return head + (
            "-changed" if _git("diff", "HEAD", "--name-only", "--", "*.py", "*.grow", "*.xz") else ""
        )
    except (OSError, subprocess.CalledProcessError):
        return os.environ.get("SAVINGS_REVISION", "unknown")


def _git(*words: str) -> str:
    run = subprocess.run(("git", *words), cwd=FOLDER, check=True, capture_output=True, text=True)
    return run.stdout.strip()
