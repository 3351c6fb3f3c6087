"""`growc clean`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.errors.printable import printable


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc clean`."""
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="default: here")


def run(options: Namespace) -> int:
    """Remove folders that killed runs left behind."""
    from growc.system.workshop import clean

    cleaned = clean(options.folder)
    for folder in cleaned.removed:
        print(printable(f"removed `{folder}`"))
    for folder, owner in cleaned.busy.items():
        print(printable(f"`{folder}` stays: process {owner.process} works there"))
    for folder in cleaned.unsure:
        print(printable(f"`{folder}` stays: this file system has no locks, and its process may still live"))
    if not (cleaned.removed or cleaned.busy or cleaned.unsure):
        print(printable(f"nothing was left behind in `{options.folder}`"))
    return 0


CLEAN = Command(
    name="clean",
    usage="[DIR]",
    purpose="Remove what runs left behind that were killed.",
    arguments=arguments,
    run=run,
    examples=("clean",),
)
