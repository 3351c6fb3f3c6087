"""Helpers of scripts that run something in full: a file of results, signals, a process's memory."""

from __future__ import annotations

import json
import signal
import subprocess
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any


class Record:
    """A file of results by name, with revision and date; results of other names stay."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.known = json.loads(path.read_text()) if path.exists() else {}
        asked = subprocess.run(["git", "rev-parse", "HEAD"], capture_output=True, text=True, check=False)
        self.told = {"revision": asked.stdout.strip(), "date": date.today().isoformat()}

    def add(self, name: str, found: Mapping[str, Any]) -> None:
        """Write it down, at once."""
        self.known[name] = {**self.told, **found}
        self.path.write_text(json.dumps(self.known, indent=1) + "\n")


def heed_interrupts() -> None:
    """Undo what `nohup` and `&` of a shell ignore: what a test starts would ignore it too."""
    for number in (signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) == signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)


def anonymous(pid: int) -> int:
    """Bytes that a process holds which are in no file; 0 where the system does not say."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
        return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("RssAnon"))
    except (OSError, StopIteration):
        return 0
