"""`growc fmt`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.shared_arguments import read
from growc.errors.diagnostic import Diagnostic, GrowError
from growc.errors.printable import printable


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc fmt`."""
    parser.add_argument(
        "recipes", nargs="+", metavar="RECIPE", help="files, or `-`: standard input to output"
    )
    parser.add_argument(
        "--check", action="store_true", help="change nothing; exit 1 if a recipe would change"
    )


def run(options: Namespace) -> int:
    """Format recipes. Raises GrowError: G1xx, and with `--check` G405 if one would change."""
    from growc import grammar
    from growc.files.new_file import write_file

    problems: list[Diagnostic] = []
    for name in options.recipes:
        try:
            source = read(name)
            text = grammar.format(grammar.parse(source))
        except GrowError as error:
            problems += error.diagnostics
            continue
        if text != source.text and options.check:
            problems.append(
                Diagnostic("G405", f"`{name}` is not formatted", help=f"`growc fmt {name}` formats it")
            )
        elif name == "-" and not options.check:
            sys.stdout.write(printable(text, "\n\t") if sys.stdout.isatty() else text)
        elif text != source.text:
            write_file(Path(name), text.encode())
    if problems:
        raise GrowError(*problems)
    return 0


FMT = Command(
    name="fmt",
    usage="RECIPE… [--check]",
    purpose="Format recipes in place.",
    arguments=arguments,
    run=run,
    examples=(
        "fmt wider.grow",
        "fmt --check recipes/*.grow",
    ),
)
