"""The command line's grammar: what all commands take, and what `--help` says of them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from growc.cli.command import Command
from growc.cli.commands import COMMANDS
from growc.cli.given import pairs
from growc.errors.diagnostic import nearest, wrong
from growc.system.limits import LIMITS
from growc.version import __version__


class _Parser(argparse.ArgumentParser):
    """argparse, with growc's diagnostics."""

    def error(self, message: str) -> NoReturn:
        raise wrong(message, f"`{self.prog} --help` shows what there is")


def read_arguments(given: Sequence[str]) -> argparse.Namespace:
    """What was asked for; `command` is its name. Raises GrowError (G200), and SystemExit after `--help`."""
    parser = _Parser("growc", description="Grow a trained model by a recipe, and know whether it is exact.")
    parser.add_argument("--version", action="version", version=f"growc {__version__}")
    group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for command in COMMANDS.values():
        _add(group, command)
    if given and given[0].startswith("-"):
        parser.parse_args(given)
    if not given or given[0] not in COMMANDS:
        near = nearest(given[0], COMMANDS) if given else None
        message = f"there is no command `{given[0]}`" if given else "a command is missing"
        raise wrong(message, f"did you mean `{near}`?" if near else f"the commands are {', '.join(COMMANDS)}")
    options = group.choices[given[0]].parse_intermixed_args(given[1:])
    options.command, options.limits = given[0], _limits(options.limit)
    if getattr(options, "inputs", None) is not None and not options.inputs.is_file():
        raise wrong(
            f"there is no file `{options.inputs}`", "`--inputs` takes a .npz with the model's inputs by name"
        )
    if getattr(options, "model_class", None) is not None:
        _require_checkpoint(options)
    return options


def _add(group: argparse._SubParsersAction[_Parser], command: Command) -> None:
    """The parser of a command."""
    usage = f"growc {command.name} {command.usage}"
    made = group.add_parser(
        command.name, help=command.purpose, description=command.purpose, usage=usage, allow_abbrev=False
    )
    command.arguments(made)
    told = f"set a limit on what is taken of files: {', '.join(LIMITS)}"
    made.add_argument("--limit", metavar="NAME=N", action="append", default=[], help=told)
    if command.models is not None:
        told = "the class of a checkpoint that transformers does not have"
        made.add_argument("--class", dest="model_class", metavar="MODULE:NAME", help=told)


def _require_checkpoint(options: argparse.Namespace) -> None:
    """Raises GrowError (G200) for `--class` with a model that is not of a class."""
    models = COMMANDS[options.command].models
    for model in [] if models is None else map(Path, models(options)):
        if not model.is_dir() and model.suffix != ".json":
            raise wrong(f"`--class` is the class of a checkpoint directory, and `{model}` is none")


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """What each `--limit NAME=N` sets. Raises GrowError (G200)."""
    return {name: int(number) for name, number in pairs("--limit", "NAME=N", texts, "[0-9]{1,18}")}
