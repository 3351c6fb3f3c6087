"""`growc check`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace

from growc.cli.command import Command
from growc.cli.output import say, say_json
from growc.cli.shared_arguments import read, statements, take_json
from growc.errors.diagnostic import Diagnostic, GrowError, wrong


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc check`."""
    parser.add_argument("recipes", nargs="*", metavar="RECIPE", help="files, or `-` for standard input")
    parser.add_argument(
        "-e", metavar="STATEMENT", action="append", default=[], help="a statement; all are one recipe"
    )
    take_json(parser)


def run(options: Namespace) -> int:
    """Read recipes, and report their problems. Raises GrowError (G200 without recipes) with all of them."""
    from growc.resolve.resolve import load

    names = [*options.recipes, *(["-e"] if options.e else [])]
    if not names:
        raise wrong("expected RECIPE, found nothing", "`-e STATEMENT` may stand for RECIPE")
    problems: list[Diagnostic] = []
    for name in names:
        try:
            load([statements(options.e) if name == "-e" else read(name)], {})
        except GrowError as error:
            problems += error.diagnostics
    if problems:
        raise GrowError(*problems)
    if options.json:
        say_json({"passed": True})
    else:
        say(f"{name}: fine" for name in names)
    return 0


CHECK = Command(
    name="check",
    usage="(RECIPE | -e STATEMENT)… [--json]",
    purpose="Check recipes without a model.",
    arguments=arguments,
    run=run,
    examples=("check wider.grow",),
)
