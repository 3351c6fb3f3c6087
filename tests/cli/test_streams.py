"""Streams, signals and exit codes, where only a process of its own shows them."""

from __future__ import annotations

import os
import pty
import re
import resource
import signal
import statistics
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphs import DEMO, MLP, STREAM, TINY, save

from growc.cli.commands import COMMANDS
from growc.cli.main import main

GROWC = [sys.executable, "-m", "growc.cli.main"]
WIDER = ["-e", "widen ffn to 24 with tail copy"]


def run(*arguments: object, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*GROWC, *map(str, arguments)], capture_output=True, text=True, timeout=120, **options
    )


def test_help_is_instant():
    def seconds() -> float:
        """Of the processor, for the machine may be busy with other tests."""
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        assert run("--help").returncode == 0
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    assert statistics.median(seconds() for _ in range(5)) < 0.3


IMPORTED = """
import atexit, sys
from growc.cli.main import main
atexit.register(lambda: print(*sys.modules, sep="\\n"))
main(sys.argv[1:])
"""


def imported(*arguments: str, **options: Any) -> set[str]:
    """The packages that a command imports."""
    command = [sys.executable, "-c", IMPORTED, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, **options)
    return {name.partition(".")[0] for name in done.stdout.splitlines()}


def test_help_imports_no_library():
    found = imported("--help")
    assert "growc" in found
    assert not found & {"numpy", "onnx", "onnx_ir", "lark", "networkx", "sympy", "torch", "transformers"}


def test_a_command_without_a_model_imports_no_model_library(tmp_path):
    (tmp_path / "wide.grow").write_text("widen ffn to 2 * ffn with zero fill\n")
    assert not imported("check", "wide.grow", cwd=tmp_path) & {"onnx", "onnx_ir", "onnxruntime", "torch"}


@pytest.mark.parametrize("command", [("plan",), ("apply", "--no-verify")], ids=lambda c: c[0])
def test_a_command_imports_what_it_uses(tmp_path, command):
    save(tmp_path / "stream.onnx", STREAM)
    found = imported(*command, "-e", "widen hidden to 12 with cyclic copy", "stream.onnx", cwd=tmp_path)
    assert "onnx_ir" in found
    assert not found & {"networkx", "onnxruntime", "sympy", "torch", "transformers"}


def test_a_postponed_module_is_imported_when_it_is_read():
    said = """
import sys
from growc.system.delayed_imports import postponed
with postponed("json", "csv"):
    import json
    import csv
assert not {"json", "csv"} & sys.modules.keys()
assert json.loads("[1]") == [1]
import json as now, csv as own
assert json.dumps is now.dumps and csv.reader is own.reader
with postponed("json"):
    import json as same
assert same is now
"""
    subprocess.run([sys.executable, "-c", said], check=True)


def test_sizes_with_names_are_computed_by_the_postponed_library():
    said = """
import growc.dialects.onnx, onnx_ir, sys
assert "sympy" not in sys.modules
assert str(onnx_ir.SymbolicDim("n") * 2 + 1) == "2*n + 1"
import sympy.core
assert isinstance(sympy.Symbol("n"), sympy.core.Symbol)
"""
    subprocess.run([sys.executable, "-c", said], check=True)


def test_a_recipe_comes_from_standard_input(tmp_path):
    save(tmp_path / "stream.onnx", STREAM)
    done = run("plan", "-", "stream.onnx", cwd=tmp_path, input="widen ffn to 24 with tail copy\n")
    assert done.returncode == 0
    assert "12 -> 24" in done.stdout
    wrong = run("plan", "-", "stream.onnx", cwd=tmp_path, input="\nwiden fnn to 24 with tail copy\n")
    assert wrong.returncode == 2
    assert "--> <stdin>:2:7" in wrong.stderr
    formatted = run("fmt", "-", input="untie    head")
    assert formatted.stdout == "untie head\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_apply_leaves_nothing_behind(tmp_path, number):
    graph = STREAM.replace("[16, 8]", "[400000, 8]").replace("N, 16]", "N, 400000]")
    save(tmp_path / "large.onnx", graph, external=True)
    before = set(tmp_path.iterdir())
    command = [*GROWC, "apply", "-e", "widen hidden to 128 with cyclic copy", "large.onnx"]
    for _ in range(5):
        process = subprocess.Popen(
            command, cwd=tmp_path, stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        end = time.monotonic() + 60
        while set(tmp_path.iterdir()) == before and time.monotonic() < end:
            time.sleep(0.01)
        process.send_signal(number)
        _, said = process.communicate(timeout=120)
        if process.returncode:
            break
        for late in set(tmp_path.iterdir()) - before:  # a busy machine let the signal come after the end
            late.unlink()
    assert process.returncode == 130
    assert said == "error[G503]: interrupted: nothing was written\n"
    assert set(tmp_path.iterdir()) == before


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_after_the_end_changes_nothing(tmp_path, number):
    program = (
        "import atexit, os, sys\n"
        "from growc.cli.main import program\n"
        f"atexit.register(os.kill, os.getpid(), {int(number)})\n"
        "sys.exit(program())"
    )
    done = subprocess.run([sys.executable, "-c", program, "--version"], capture_output=True, timeout=120)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_signal_that_nohup_lets_a_command_ignore_is_ignored(tmp_path):
    program = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
        "from growc.cli import main\n"
        "from dataclasses import replace\n"
        "run = lambda options: os.kill(os.getpid(), signal.SIGHUP) or 0\n"
        "main.COMMANDS['check'] = replace(main.COMMANDS['check'], run=run)\n"
        "sys.exit(main.program())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "check", "a.grow"], capture_output=True, timeout=120
    )
    assert (done.returncode, done.stderr) == (0, b"")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interrupted_exec_ends_as_any_other_command(tmp_path, number):
    """As dataclasses are made by one: an import may be interrupted there."""
    text = f"import os, time; os.kill(os.getpid(), {int(number)}); time.sleep(9)"
    (tmp_path / "execs.py").write_text(
        "import sys\n"
        "from growc.cli import main\n"
        "from dataclasses import replace\n"
        f"main.COMMANDS['check'] = replace(main.COMMANDS['check'], run=lambda options: exec({text!r}))\n"
        "sys.exit(main.program())"
    )
    command = [sys.executable, "-m", "execs", "check", "a.grow"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, text=True)
    assert (done.returncode, done.stderr) == (130, "error[G503]: interrupted: nothing was written\n")


def test_an_import_that_turns_an_interrupt_into_an_error_is_interrupted(tmp_path):
    (tmp_path / "hides.py").write_text(
        "import os, signal, sys, time\n"
        "from growc.cli import main\n"
        "def check(options):\n"
        "    try:\n"
        "        os.kill(os.getpid(), signal.SIGINT); time.sleep(9)\n"
        "    except BaseException:\n"
        "        pass\n"
        "    raise ImportError('numpy')\n"
        "from dataclasses import replace\n"
        "main.COMMANDS['check'] = replace(main.COMMANDS['check'], run=check)\n"
        "sys.exit(main.program())"
    )
    command = [sys.executable, "-m", "hides", "check", "a.grow"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, timeout=120, text=True)
    assert (done.returncode, done.stderr) == (130, "error[G503]: interrupted: nothing was written\n")


def test_a_reader_that_goes_away_does_not_stop_the_work(tmp_path):
    save(tmp_path / "stream.onnx", STREAM)
    process = subprocess.Popen(
        [*GROWC, "apply", *WIDER, "stream.onnx"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.wait(120) == 0
    assert process.stderr is not None
    assert process.stderr.read() == b""
    process.stderr.close()
    assert (tmp_path / "stream.grown.onnx").exists()


@pytest.mark.sampled(2)
@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.skipif(not Path("/dev/full").exists(), reason="this system has no /dev/full")
def test_an_output_that_is_full_is_exit_4(tmp_path, unbuffered):
    save(tmp_path / "mlp.onnx", MLP)
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*GROWC, "inspect", tmp_path / "mlp.onnx"],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 4
    assert "error[G502]" in done.stderr


def test_a_disk_that_is_full_is_exit_4(tmp_path):
    done = subprocess.run(
        [
            "bash",
            "-c",
            'ulimit -f 2000; exec "$@"',
            "-",
            *GROWC,
            "apply",
            str(DEMO),
            str(TINY),
            "-o",
            "out.onnx",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 4
    assert "`out.onnx` cannot be written" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_bug_is_one_line_and_a_report(monkeypatch, capsys, tmp_path):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.setattr("growc.resolve.resolve.load", lambda *_: 1 / 0)
    monkeypatch.setitem(COMMANDS, "check", replace(COMMANDS["check"], run=lambda options: 1 // 0))
    assert main(["check", "x.grow"]) == 70
    said = capsys.readouterr().err
    assert "Traceback" not in said
    report = re.search(r"the report is in (\S+)", said)
    assert report is not None
    assert "ZeroDivisionError" in Path(report[1]).read_text()


def terminal(*arguments: object, cwd: Path) -> str:
    """The output of a command on a terminal of 100 columns."""
    ours, theirs = pty.openpty()
    environment = os.environ | {"TERM": "xterm", "COLUMNS": "100"}
    with subprocess.Popen(
        [*GROWC, *map(str, arguments)], cwd=cwd, stdout=theirs, stderr=theirs, env=environment
    ) as process:
        os.close(theirs)
        shown = b""
        while True:
            try:
                block = os.read(ours, 65536)
            except OSError:
                break
            shown += block
            if not block:
                break
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_progress_with_rate_and_time_left_is_shown_on_a_terminal_only(tmp_path):
    graph = STREAM.replace("[16, 8]", "[400000, 8]").replace("N, 16]", "N, 400000]")
    save(tmp_path / "large.onnx", graph, external=True)
    command = ("apply", "-e", "widen hidden to 64 with cyclic copy", "large.onnx", "--no-verify")
    shown = terminal(*command, cwd=tmp_path)
    assert re.search(r"writing \S+", shown)
    assert re.search(r"[\d.]+/102\.4 MB", shown)
    assert "\033[2Klarge.onnx" in shown, "the bar is erased before the plan is printed"
    assert "\033[33m  ~ " in shown
    quiet = run(*command, cwd=tmp_path)
    assert quiet.stderr == ""
    assert "\033" not in quiet.stdout
