"""The output of commands: results on standard output as text or JSON, errors and progress on standard
error.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import sys
from argparse import Namespace
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TextIO

from growc.cli.process import last_words
from growc.errors.diagnostic import GrowError, error_object, render
from growc.errors.json_data import Json
from growc.errors.printable import printable
from growc.errors.progress import Progress

COLORS = ("auto", "always", "never")
NARROW, WIDE = 60, 200
"""No line is broken before the first column, and none extends beyond the second."""


@dataclass
class OutputSettings:
    """Output settings of a command.

    quiet: show only errors. verbose: show each stage with its seconds.
    """

    quiet: bool = False
    verbose: bool = False
    color: str = COLORS[0]

    def take(self, options: Namespace) -> None:
        """Take the settings from the options."""
        self.quiet, self.verbose, self.color = options.quiet, options.verbose, options.color

    def colors(self, stream: TextIO) -> bool:
        """Whether a stream shows colours; by default `NO_COLOR` and `FORCE_COLOR` decide."""
        if self.color != COLORS[0]:
            return self.color == "always"
        return "NO_COLOR" not in os.environ and ("FORCE_COLOR" in os.environ or stream.isatty())


_voice: ContextVar[OutputSettings] = ContextVar("voice")


@contextlib.contextmanager
def output_settings() -> Iterator[OutputSettings]:
    """The output settings of a command, until it ends."""
    voice = OutputSettings()
    token = _voice.set(voice)
    try:
        yield voice
    finally:
        _voice.reset(token)


def say(lines: Iterable[str], *, fitted: bool = True) -> None:
    """Print text for people. If the reader closes the pipe, printing ends, but not the work.

    fitted: whether lines are broken at the terminal's width; lines of a recipe are not, and have no colours.

    All output of commands passes through here, or through growc.errors.diagnostic.render.
    """
    if _voice.get(OutputSettings()).quiet:
        return
    if fitted:
        _print(_fitting(map(printable, lines), sys.stdout))
    else:
        _print(map(printable, lines), plain=True)


def say_json(data: Json) -> None:
    """Print one JSON object."""
    _print(map(printable, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).split("\n")))


def _print(lines: Iterable[str], *, plain: bool = False) -> None:
    from growc.render.progress import erase
    from growc.render.text import on_terminal

    erase()
    ink = on_terminal if not plain and _voice.get(OutputSettings()).colors(sys.stdout) else str
    with contextlib.suppress(BrokenPipeError), last_words():
        for line in lines:
            print(ink(line))
        sys.stdout.flush()


def _fitting(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Lines broken at the width of the terminal; in a pipe they stay whole."""
    from growc.render.text import fitted

    width = columns(stream)
    for line in lines:
        yield from [line] if width is None else fitted(line, width)


def columns(stream: TextIO) -> int | None:
    """The columns that lines may have on a terminal; None for a pipe, whose lines are not broken."""
    return min(max(shutil.get_terminal_size().columns, NARROW), WIDE) if stream.isatty() else None


def waiting() -> AbstractContextManager[Progress]:
    """A context with a function (phrase, done, total) that shows the current step."""
    from growc.render.progress import progress

    voice = _voice.get(OutputSettings())
    return progress(quiet=voice.quiet, verbose=voice.verbose)


def report(error: GrowError, arguments: Sequence[str]) -> int:
    """Show an error, as JSON on standard output or as text on standard error, and return its exit status."""
    if "--json" in arguments:
        say_json(error_object(error))
    else:
        voice = _voice.get(OutputSettings())
        rendered = [render(d, voice.colors(sys.stderr)) for d in error.diagnostics]
        rendered += [] if voice.quiet else _read_more(error)
        with contextlib.suppress(OSError):
            print("\n".join(_fitting("\n\n".join(rendered).split("\n"), sys.stderr)), file=sys.stderr)
    return error.exit_status


def _read_more(error: GrowError) -> list[str]:
    """Where the codes of all errors are explained; who interrupts a command needs no explanation."""
    codes = sorted({diagnostic.code for diagnostic in error.diagnostics} - {"G503"})
    listed = codes[0] if len(codes) == 1 else f"CODE, with {', '.join(codes)}"
    return [f"To read more: growc explain {listed}"] if codes else []
