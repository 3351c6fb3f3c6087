"""`growc diff`."""

from __future__ import annotations

import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import columns, say, say_json, waiting
from growc.cli.shared_arguments import local_model, take_all, take_home, take_json


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc diff`."""
    parser.add_argument("models", type=Path, nargs=2, metavar="MODEL", help="the first, and the second")
    take_all(parser)
    take_home(parser)
    take_json(parser)


def run(options: Namespace) -> int:
    """Show the differences; return 1 if there are any, as `diff` does. Raises GrowError (G310)."""
    from growc.checkpoint.files.config_folders import described_in
    from growc.render.difference import WIDTH, difference_data, difference_lines
    from growc.reports.difference import diff

    before, after = map(local_model, options.models)
    with waiting() as advance, described_in(before, options.home), described_in(after, options.home):
        difference = diff(before, after, progress=advance)
    if options.json:
        say_json(difference_data(difference))
    else:
        say(difference_lines(difference, everything=options.all, width=columns(sys.stdout) or WIDTH))
    return 0 if difference.same else 1


DIFF = Command(
    name="diff",
    usage="MODEL MODEL [OPTION…]",
    purpose="Show what differs between two models.",
    arguments=arguments,
    run=run,
    examples=("diff model.onnx wide.onnx",),
    models=lambda options: options.models,
)
