"""Running commands as a user does, in a folder with a few small models."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from graphs import MLP, STREAM, save

from growc.cli.main import main


@dataclass(frozen=True)
class Run:
    """The output of a command, and its exit status."""

    status: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The one object on standard output, in strict JSON."""

        def refuse(word: str) -> None:
            raise ValueError(f"{word} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


Growc = Callable[..., Run]


@pytest.fixture
def growc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Growc:
    """Run a command in an empty folder with `stream.onnx` and `mlp.onnx`."""
    monkeypatch.chdir(tmp_path)
    save(tmp_path / "stream.onnx", STREAM)
    save(tmp_path / "mlp.onnx", MLP)

    def run(*arguments: object) -> Run:
        capsys.readouterr()
        status = main([str(a) for a in arguments])
        printed = capsys.readouterr()
        return Run(status, printed.out, printed.err)

    return run
