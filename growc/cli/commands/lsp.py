"""`growc lsp`."""

from __future__ import annotations

import os
import sys
from argparse import ArgumentParser, Namespace
from importlib.util import find_spec

from growc.cli.command import Command
from growc.cli.multi_process import INTERRUPTED
from growc.cli.process import end_at_once
from growc.errors.diagnostic import wrong


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc lsp`."""
    parser.add_argument("--stdio", action="store_true", help="what editors say; there is no other way")


def run(options: Namespace) -> int:
    """Serve an editor until it disconnects. Raises GrowError (G200) at a terminal, or without pygls."""
    if find_spec("pygls") is None:
        raise wrong("the language server needs pygls, which is not installed", "install `growc[editor]`")
    if sys.stdin.isatty():
        remedy = "docs/editor.md says how editors are told of it"
        raise wrong("`growc lsp` is for an editor, which speaks with it over a pipe", remedy)
    from growc.editor.server import serve

    output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # other output must not get between messages
    try:
        serve(sys.stdin.buffer, output)
    except KeyboardInterrupt:
        end_at_once(INTERRUPTED)
    return 0


LSP = Command(
    name="lsp",
    usage="[--stdio]",
    purpose="Serve an editor: the language server of recipes, on standard input and output.",
    arguments=arguments,
    run=run,
    examples=("lsp",),
)
