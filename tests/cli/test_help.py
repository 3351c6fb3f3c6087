"""Help, hints and manners of the command line."""

from __future__ import annotations

import os
import pty
import re
import struct
import subprocess
import sys
import termios
from fcntl import ioctl

import numpy as np
import pytest
import shtab
from graphs import DEMO, STREAM, TINY, save

from growc.cli.arguments import parsers
from growc.cli.commands import COMMANDS
from growc.cli.commands.completion import SHELLS
from growc.render.text import fitted

GROWC = [sys.executable, "-m", "growc"]
WIDEN = "widen hidden to 12 with neighbor copy"


@pytest.mark.parametrize("given", [[], ["help"], ["--help"]], ids=["bare", "help", "option"])
def test_help_has_examples_and_says_where_more_stands(growc, given):
    said = growc(*given).out
    assert said.count("\n  growc ") == 3
    assert all(f"\n    {name}" in said for name in COMMANDS)
    assert "docs/language.md" in said


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_a_command_shows_its_examples(growc, name):
    said = growc("help", name).out
    assert said == growc(name, "--help").out
    assert all(f"\n  growc {example}" in said for example in COMMANDS[name].examples)
    assert COMMANDS[name].examples


def test_help_of_a_command_that_there_is_not_names_a_near_one(growc):
    assert "did you mean `plan`?" in growc("help", "plam").err


def test_the_version_is_told_by_either_option(growc):
    assert growc("-V").out == growc("--version").out


@pytest.mark.parametrize(
    ("given", "near"),
    [
        (["plan", "--al"], "--all"),
        (["apply", "--no-verfy"], "--no-verify"),
        (["apply", "--optimiser=x"], "--optimizer"),
    ],
)
def test_an_unknown_option_names_a_near_one(growc, given, near):
    assert f"did you mean `{near}`?" in growc(*given, "a.grow", "b.onnx").err


def test_a_model_in_the_place_of_the_recipe_is_told(growc):
    said = growc("plan", "stream.onnx", "wider.grow").err
    assert "`growc plan wider.grow stream.onnx`" in said
    assert said.count("error[") == 1


def test_a_file_of_bytes_is_no_recipe(growc, tmp_path):
    (tmp_path / "bytes.grow").write_bytes(b"\x08\0\x12")
    assert growc("check", "bytes.grow").err.count("error[") == 1


@pytest.mark.parametrize(
    ("statement", "remedy"),
    [
        ("widen head to 8 with neighbor copy", "did you mean `heads`?"),
        ("stack layer to 8 by last", "did you mean `layers`?"),
        ("widen ffn to 2 * head with cyclic copy", "did you mean `heads`?"),
        ("widen fnn to 8 with neighbor copy", "did you mean `ffn`?"),
        ("grow ffn to 8 with neighbor copy", "did you mean `widen`?"),
        ("shrink ffn to 8 by magnitude", "did you mean `subclone`?"),
        ("widen ffn to 1.5 * ffn with cyclic copy", "write `3 * ffn / 2`"),
        ("widen ffn to 2.25*hidden with cyclic copy", "write `9 * hidden / 4`"),
        ("widen ffn to 1e3 with cyclic copy", "write `1000`"),
        ("widen ffn to 150% with cyclic copy", "a share is a fraction, as in `3 * ffn / 2`"),
        ("widen ffn to 8 with cyclic copy;", "each statement stands on a line of its own"),
        ("widen: ffn to 8 with cyclic copy", "leave it out"),
    ],
)
def test_a_word_of_another_language_leads_to_the_right_one(growc, statement, remedy):
    said = growc("check", "-e", statement).err
    assert f"= help: {remedy}" in said


def test_two_statements_on_a_line_are_told_apart(growc):
    said = growc("check", "-e", f"{WIDEN} widen ffn to 8 with cyclic copy").err
    assert "a statement starts on a line of its own" in said
    assert said.count("error[") == 1


def test_quiet_says_nothing_but_errors(growc):
    growc("apply", "-q", "-e", WIDEN, "stream.onnx", "-o", "out.onnx")
    done = growc("apply", "--quiet", "-e", WIDEN, "stream.onnx", "--output", "out.onnx", "--force")
    assert (done.out, done.err) == ("", "")
    assert "error[G310]" in growc("plan", "-q", "-e", WIDEN, "missing.onnx").err
    assert growc("plan", "-q", "--json", "-e", WIDEN, "stream.onnx").json["parameters"]


def test_verbose_tells_stages_with_their_seconds(growc):
    said = growc("apply", "-v", "-e", WIDEN, "stream.onnx", "-o", "out.onnx").err
    stages = re.findall(r"^(.*): \d+\.\d s$", said, re.MULTILINE)
    assert stages[:2] == ["reading stream.onnx", "planning"]


@pytest.mark.parametrize(("choice", "shown"), [("always", True), ("never", False), ("auto", False)])
def test_colors_are_shown_where_they_are_asked_for(growc, choice, shown):
    assert ("\033[" in growc("plan", "--color", choice, "-e", WIDEN, "stream.onnx").out) == shown


def on_terminal(columns, *words, cwd):
    """The output of a command on a terminal of so many columns, without colours."""
    master, slave = pty.openpty()
    ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [*GROWC, *words], stdout=slave, stderr=subprocess.DEVNULL, cwd=cwd, env={**kept, "NO_COLOR": "1"}
    )
    os.close(slave)
    said = b""
    while chunk := _read(master):
        said += chunk
    process.wait()
    os.close(master)
    return said.decode().replace("\r\n", "\n")


def _read(master):
    try:
        return os.read(master, 1 << 16)
    except OSError:  # the other end is closed
        return b""


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_lines_fit_the_terminal(tmp_path, columns):
    recipe = ["-e", "widen hidden to 128 with neighbor copy", "-e", "drop layers 1..2"]
    said = on_terminal(columns, "plan", *recipe, str(TINY), cwd=tmp_path)
    assert max(map(len, said.splitlines())) <= columns
    piped = subprocess.run([*GROWC, "plan", *recipe, str(TINY)], capture_output=True, text=True, check=True)
    assert "".join(said.split()) == "".join(piped.stdout.split())


def test_a_row_breaks_between_its_columns_first():
    row = "  ~ a.long.name.of.a.weight   [96, 288] -> [128, 288]   reads hidden"
    assert fitted(row, 60) == ["  ~ a.long.name.of.a.weight   [96, 288] -> [128, 288]", "      reads hidden"]
    assert fitted(row, 70) == [row]
    assert fitted("1 | " + "x " * 60, 60) == ["1 | " + "x " * 60]


def test_a_plan_lists_weights_that_go_and_weights_that_move(growc, tmp_path):
    plan = growc("plan", "-e", "drop layers 1..2", str(TINY), "--all").out
    gone = re.findall(r"^  - (\S+) +\[", plan, re.MULTILINE)
    moved = dict(re.findall(r"^  > (\S+) \(was (\S+)\)", plan, re.MULTILINE))
    assert {name.split(".")[2] for name in gone} == {"1"}
    assert all(old == re.sub(r"h\.(\d)", lambda n: f"h.{int(n[1]) + 1}", new) for new, old in moved.items())
    data = growc("plan", "-e", "drop layers 1..2", str(TINY), "--json").json
    assert [one["name"] for one in data["gone"]] == gone
    growc("apply", "-e", "drop layers 1..2", str(TINY), "-o", "out.onnx", "--no-verify")


def test_a_plan_that_grows_lists_nothing_that_goes(growc):
    assert growc("plan", "-e", "stack layers to 6 by last", str(TINY), "--json").json["gone"] == []


def test_every_shell_that_completes_is_known_to_the_library(growc):
    assert set(SHELLS) <= set(shtab.SUPPORTED_SHELLS)


def test_bash_completes_commands_options_files_and_their_words(tmp_path):
    save(tmp_path / "stream.onnx", STREAM)
    script = subprocess.run([*GROWC, "completion", "bash"], capture_output=True, text=True, check=True).stdout
    (tmp_path / "growc.bash").write_text(script)
    asked = """
        source growc.bash
        asked() {
            COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=(); _shtab_growc; echo "${COMPREPLY[@]}"
        }
        asked growc pl; asked growc apply --no-v; asked growc inspect str
        asked growc recipes lem; asked growc apply --weights d; asked growc plan --print-after fit
    """
    done = subprocess.run(["bash", "-c", asked], cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.splitlines() == [
        *("plan", "--no-verify", "stream.onnx"),
        *("lemon", "distcp", "fit_config"),
    ]


def test_the_demo_is_quiet_about_what_it_does_not_know(growc):
    assert growc("check", str(DEMO)).out == f"{DEMO}: fine\n"


@pytest.mark.parametrize("first", [["-q"], ["--color", "never"], ["--color=never", "-v"]])
def test_options_for_output_may_stand_in_front_of_the_command(growc, first):
    behind = growc("inspect", "stream.onnx", *first)
    before = growc(*first, "inspect", "stream.onnx")
    assert (before.status, before.out) == (behind.status, behind.out)


def test_other_options_in_front_of_a_command_are_refused(growc):
    assert growc("--json", "inspect", "stream.onnx").status == 2
    assert growc("--color", "inspect", "stream.onnx").status == 2


@pytest.mark.parametrize("command", ["inspect", "init", "measure --inputs inputs.npz"])
def test_a_recipe_or_nothing_in_the_place_of_a_model_is_named(growc, tmp_path, monkeypatch, command):
    monkeypatch.chdir(tmp_path)
    np.savez("inputs.npz", x=np.zeros((1, 8), np.float32))
    assert f"`{DEMO}` is a recipe, and no model" in growc(*command.split(), str(DEMO)).err
    assert "an argument is empty" in growc(*command.split(), "").err


def test_lists_are_as_wide_as_the_terminal(growc, monkeypatch):
    widths = {}
    for width in (60, 120):
        monkeypatch.setattr("growc.cli.output.columns", lambda stream, width=width: width)
        monkeypatch.setattr("growc.cli.commands.recipes.columns", lambda stream, width=width: width)
        widths[width] = max(map(len, growc("recipes").out.splitlines()))
    assert widths[60] <= 60 < widths[120] <= 120


def test_help_about_help_is_help(growc):
    assert growc("help", "help").out == growc("help").out


def test_prose_of_help_fits_sixty_columns(monkeypatch):
    monkeypatch.setenv("COLUMNS", "60")
    parser, commands = parsers()
    for one in (parser, *commands.values()):
        prose = (line for line in one.format_help().splitlines() if not line.startswith("  growc "))
        assert max(map(len, prose)) <= 60
