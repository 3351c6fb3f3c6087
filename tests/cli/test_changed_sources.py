"""A source that changes while growc reads it is said to have changed, and nothing is written."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from graphs import STREAM, UP_DOWN, save

from growc.api import apply, verify
from growc.errors.diagnostic import GrowError

WIDER = 'widen axis 1 of "up" to 96 with neighbor copy'


def overwrite(path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(8)
        file.write(b"\1")


def replace(path: Path) -> None:
    path.with_name("copy").write_bytes(path.read_bytes())
    path.with_name("copy").replace(path)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    return save(tmp_path / "source.onnx", UP_DOWN, opset=18, external=True)


@pytest.mark.parametrize("change", [overwrite, replace, Path.unlink])
@pytest.mark.parametrize("ending", [".onnx", ".data"])
def test_a_source_that_changes_after_it_was_planned_refuses_the_result(
    source: Path, change: Callable[[Path], None], ending: str
) -> None:
    changed = next(path for path in source.parent.iterdir() if path.suffix == ending)
    before = set(source.parent.iterdir())
    with pytest.raises(GrowError) as error:
        apply(WIDER, source, check=False, planned=lambda _: change(changed))
    (said,) = error.value.diagnostics
    assert (said.code, error.value.exit_status) == ("G325", 3)
    assert f"`{changed}`" in said.message
    assert set(source.parent.iterdir()) <= before


def test_a_source_that_is_read_or_has_new_neighbours_did_not_change(source: Path) -> None:
    def planned(_: object) -> None:
        source.read_bytes()
        source.with_name("other.onnx").write_bytes(b"1")

    assert apply(WIDER, source, check=False, planned=planned).written.exists()


def test_inputs_that_change_while_models_are_compared_are_named(tmp_path: Path) -> None:
    source = save(tmp_path / "source.onnx", STREAM)
    made = apply("widen ffn to 24 with neighbor copy", source, check=False).written
    inputs = tmp_path / "inputs.npz"
    np.savez(inputs, token=np.zeros(3, np.int64))
    with pytest.raises(GrowError) as error:
        verify(source, made, inputs=inputs, progress=lambda *_: replace(inputs))
    (said,) = error.value.diagnostics
    assert said.code == "G325"
    assert "the inputs" in said.message


@pytest.mark.skipif(not hasattr(signal, "SIGBUS"), reason="this system cuts no mapped file short")
def test_a_source_that_is_cut_short_while_it_is_mapped_is_named(tmp_path: Path) -> None:
    large = UP_DOWN.replace("64", "50000")
    save(tmp_path / "source.onnx", large, opset=18, external=True)
    data = next(path for path in tmp_path.iterdir() if path.suffix == ".data")
    before = set(tmp_path.iterdir())
    program = (
        "import sys, growc.api as api\n"
        "from growc.cli import main\n"
        "usual = api.apply\n"
        f"def cut(_): open({str(data)!r}, 'wb')\n"
        "def apply(*given, planned, **more): return usual(*given, **more, planned=cut)\n"
        "api.apply = apply\n"
        "sys.exit(main.program())\n"
    )
    given = ["apply", "-e", 'widen axis 1 of "up" to 50004 with neighbor copy', "source.onnx", "--no-verify"]
    done = subprocess.run(
        [sys.executable, "-c", program, *given], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, set(tmp_path.iterdir())) == (3, before), done.stderr
    assert f"error[G325]: `{data}`" in done.stderr
