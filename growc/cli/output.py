"""What commands say: on standard output to a person or as JSON, errors on standard error."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from growc.cli.process import last_words
from growc.errors.diagnostic import GrowError, error_object, render
from growc.errors.json_data import Json
from growc.errors.printable import printable


def say(lines: Iterable[str]) -> None:
    """Print to a reader that may go away: a closed pipe ends the printing, and not the work.

    Everything that a command prints passes here, or growc.errors.diagnostic.render.
    """
    from growc.render.text import colored

    ink = colored if _colors(sys.stdout) else str
    with contextlib.suppress(BrokenPipeError), last_words():
        for line in lines:
            print(ink(printable(line)))
        sys.stdout.flush()


def say_json(data: Json) -> None:
    """One JSON object."""
    say(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).split("\n"))


def report(error: GrowError, given: Sequence[str]) -> int:
    """Show what went wrong: as JSON on standard output, or to a person on standard error."""
    if "--json" in given:
        say_json(error_object(error))
    else:
        color = _colors(sys.stderr)
        with contextlib.suppress(OSError):
            print("\n\n".join(render(d, color) for d in error.diagnostics), file=sys.stderr)
    return error.exit_status


def _colors(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ
