"""What commands say: on standard output to a person or as JSON, errors and progress on standard error."""

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
"""No line is broken before the first column, and none goes on behind the second."""


@dataclass
class Voice:
    """How a command speaks. quiet: only of errors. verbose: of each stage, with its seconds."""

    quiet: bool = False
    verbose: bool = False
    color: str = COLORS[0]

    def take(self, options: Namespace) -> None:
        """What was asked for."""
        self.quiet, self.verbose, self.color = options.quiet, options.verbose, options.color

    def colors(self, stream: TextIO) -> bool:
        """Whether a stream shows colours: `NO_COLOR` and `FORCE_COLOR` say so where nothing was asked for."""
        if self.color != COLORS[0]:
            return self.color == "always"
        return "NO_COLOR" not in os.environ and ("FORCE_COLOR" in os.environ or stream.isatty())


_voice: ContextVar[Voice] = ContextVar("voice")


@contextlib.contextmanager
def speaking() -> Iterator[Voice]:
    """The voice of a command, until it ends."""
    voice = Voice()
    token = _voice.set(voice)
    try:
        yield voice
    finally:
        _voice.reset(token)


def say(lines: Iterable[str], *, fitted: bool = True) -> None:
    """Print for a person, to a reader that may go away: a closed pipe ends the printing, and not the work.

    fitted: whether lines break where a terminal ends; those of a recipe do not, and have no colours.

    Everything that a command prints passes here, or growc.errors.diagnostic.render.
    """
    if _voice.get(Voice()).quiet:
        return
    if fitted:
        _print(_fitting(map(printable, lines), sys.stdout))
    else:
        _print(map(printable, lines), plain=True)


def say_json(data: Json) -> None:
    """One JSON object."""
    _print(map(printable, json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).split("\n")))


def _print(lines: Iterable[str], *, plain: bool = False) -> None:
    from growc.render.text import on_terminal

    ink = on_terminal if not plain and _voice.get(Voice()).colors(sys.stdout) else str
    with contextlib.suppress(BrokenPipeError), last_words():
        for line in lines:
            print(ink(line))
        sys.stdout.flush()


def _fitting(lines: Iterable[str], stream: TextIO) -> Iterator[str]:
    """Lines as wide as the terminal that shows them; in a pipe they stay whole."""
    from growc.render.text import fitted

    if not stream.isatty():
        yield from lines
        return
    width = min(max(shutil.get_terminal_size().columns, NARROW), WIDE)
    for line in lines:
        yield from fitted(line, width)


def waiting() -> AbstractContextManager[Progress]:
    """A function (phrase, done, total) that names what a person waits for."""
    from growc.render.progress import progress

    voice = _voice.get(Voice())
    return progress(quiet=voice.quiet, verbose=voice.verbose)


def report(error: GrowError, given: Sequence[str]) -> int:
    """Show what went wrong: as JSON on standard output, or to a person on standard error."""
    if "--json" in given:
        say_json(error_object(error))
    else:
        color = _voice.get(Voice()).colors(sys.stderr)
        told = "\n\n".join(render(d, color) for d in error.diagnostics)
        with contextlib.suppress(OSError):
            print("\n".join(_fitting(told.split("\n"), sys.stderr)), file=sys.stderr)
    return error.exit_status
