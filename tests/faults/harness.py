"""One fault at one step of one run, and what is wrong with what it left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from graphs import UP_DOWN, save

DRIVER = Path(__file__).with_name("driver.py")
FAULTS = ("kill", "interrupt", "ENOSPC", "EIO", "EACCES")
ENDS = {"kill": (0, -9), "interrupt": (0, 130)}
"""The exit statuses after a signal; after an error it is 3 or 4, or 0 behind the commit."""
State = Mapping[str, bytes]
"""The files of a folder by name."""


@dataclass(frozen=True)
class Form:
    """A form of models: how a small one is saved, two statements for it, and more arguments."""

    name: str
    save: Callable[[Path], Path]
    statements: tuple[str, str]
    out: str
    more: tuple[str, ...] = ()


def _onnx(folder: Path) -> Path:
    return save(folder / "source.onnx", UP_DOWN, opset=18, external=True)


def _directory(folder: Path) -> Path:
    import torch
    import transformers

    torch.manual_seed(0)
    sizes = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}
    config = transformers.LlamaConfig(**sizes, num_key_value_heads=2, vocab_size=48)
    transformers.LlamaForCausalLM(config).save_pretrained(folder / "source")
    return folder / "source"


def _program(folder: Path) -> Path:
    import torch

    layer = torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.ReLU(), torch.nn.Linear(8, 5))
    torch.export.save(torch.export.export(layer, (torch.zeros(2, 6),)), folder / "source.pt2")
    return folder / "source.pt2"


_UP = tuple(f'widen axis 1 of "up" to {size} with neighbor copy' for size in (96, 112))
_FFN = tuple(f"widen ffn to {size} with neighbor copy" for size in (64, 96))
FORMS = {
    form.name: form
    for form in (
        Form("onnx", _onnx, (_UP[0], _UP[1]), "made.onnx", ("--lineage", "lineage.json")),
        Form("directory", _directory, (_FFN[0], _FFN[1]), "made", ("--shard-size", "40KB")),
        Form("program", _program, (_FFN[0], _FFN[1]), "made.pt2"),
    )
}


class Bench:
    """A form of models with a first result, and runs for a second one that fail."""

    def __init__(self, form: Form, folder: Path, *, first: bool = False) -> None:
        """first: there is no result yet, and what fails is the first run."""
        self.form, self.folder, self.first = form, folder, first
        self.source = form.save(folder)
        self.made, self.temporary = folder / "made", folder / "temporary"
        self.temporary.mkdir()
        self.environment = {**os.environ, "TMPDIR": str(self.temporary), "PYTHONDONTWRITEBYTECODE": "1"}
        self.fresh()
        self.apply(1)
        self.after = self.state()
        self.fresh()
        self.before = self.state()

    def fresh(self) -> None:
        """The target as it is before the run that fails."""
        for path in sorted(self.made.rglob("*"), reverse=True) if self.made.exists() else ():
            path.rmdir() if path.is_dir() else path.unlink()
        self.made.mkdir(exist_ok=True)
        if not self.first:
            self.apply(0)

    def state(self) -> State:
        """All that stands where results are made."""
        files = (path for path in self.made.rglob("*") if path.is_file())
        return {str(path.relative_to(self.made)): path.read_bytes() for path in files}

    def apply(self, statement: int, at: int = 0, fault: str = "kill") -> int:
        """Run growc; its exit status, below zero for a signal."""
        return self.start(statement, at, fault).wait()

    def start(
        self, statement: int, at: int = 0, fault: str = "kill", condition: Sequence[str] = ()
    ) -> subprocess.Popen[bytes]:
        """A run of growc under a condition: a command that runs the one behind it."""
        given = ["apply", "-e", self.form.statements[statement], str(self.source), "-o", self.form.out]
        steps = "-" if condition else str(self.folder / "steps")
        command = [str(DRIVER), str(at), fault, steps, *given, "--no-verify", "--force"]
        with (self.folder / "said").open("wb") as log:
            return subprocess.Popen(
                [*condition, sys.executable, *command, *self.form.more],
                cwd=self.made,
                env=self.environment,
                stdout=log,
                stderr=log,
            )

    def steps(self) -> int:
        """How many steps a run has that does not fail."""
        self.apply(1)
        count = int((self.folder / "steps").read_text())
        self.fresh()
        return count

    def wrong(self, at: int, fault: str) -> str:
        """The error after a fault at a step; empty where all is as promised."""
        status = self.apply(1, at, fault)
        return self.judged(f"{fault} at {at}", status, ENDS.get(fault, (0, 3, 4)))

    def judged(self, condition: str, status: int, allowed: Sequence[int]) -> str:
        """The error in the state that a run under a condition left; empty where all is as promised."""
        log = (self.folder / "said").read_text(errors="replace")[-300:]
        clean = [sys.executable, "-m", "growc", "clean", str(self.made)]
        subprocess.run(clean, env=self.environment, check=True, capture_output=True)
        now, left = self.state(), sorted(path.name for path in self.temporary.glob("growc-*"))
        whole = now == (self.after if status == 0 else self.before) or (status == -9 and now == self.after)
        if "which nothing uses any more, stays" in log:  # a fault behind the commit is a warning
            whole |= status == 0 and {**self.before, **self.after} == now
        if "interrupted: the result is written" in log:
            whole = status == 130 and now == self.after
        if now != self.before:
            self.fresh()
        for name in left:
            (self.temporary / name).unlink()  # a report of a bug
        if whole and not left and status in allowed and "Traceback" not in log:
            return ""
        odd = sorted({*now} ^ {*self.before}) or "other bytes"
        return f"{self.form.name}, {condition}: status {status}: {odd}, {left}: {log}"
