"""The arguments of the command line: options that all commands share, and the texts of `--help`."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Collection, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from textwrap import fill
from typing import NoReturn

from growc.cli.command import Command
from growc.cli.commands import COMMANDS
from growc.cli.output import COLORS, NARROW
from growc.cli.shared_arguments import offer, pairs
from growc.errors.diagnostic import nearest, wrong
from growc.files.reference import Reference, is_reference
from growc.system.limits import LIMITS
from growc.version import __version__

PURPOSE = """\
Grow a trained model by a recipe, and know whether
the result computes the same function."""
FIRST = """\
three to begin with:
  growc inspect model.onnx
  growc plan -e 'widen ffn to 2 * ffn with cyclic copy' model.onnx
  growc apply recipe.grow model.onnx -o grown.onnx

`growc help COMMAND` says more of a command,
`growc explain CODE` of an error. MODEL is an ONNX file,
a checkpoint directory of transformers, or a `.pt2`
program of torch.export. The language of recipes
stands in docs/language.md.
"""


class _Parser(argparse.ArgumentParser):
    """An argparse parser that raises growc's diagnostics."""

    def error(self, message: str) -> NoReturn:
        near = ""
        if match := re.fullmatch(r"unrecognized arguments: (.*)", message):
            names = (name for action in self._actions for name in action.option_strings)
            option_names = {name.strip("-"): name for name in names}
            word = next((word for word in match[1].split() if word.startswith("-")), "")
            near = option_names.get(nearest(word.strip("-").partition("=")[0], option_names) or "", "")
        remedy = f"`{self.prog} --help` shows what there is"
        raise wrong(message, f"did you mean `{near}`? {remedy}" if near else remedy)


def parsers() -> tuple[argparse.ArgumentParser, Mapping[str, argparse.ArgumentParser]]:
    """The parser of the command line, and the parser of each command."""
    raw_text = argparse.RawDescriptionHelpFormatter
    parser = _Parser("growc", description=PURPOSE, epilog=FIRST, formatter_class=raw_text)
    parser.add_argument("-V", "--version", action="version", version=f"growc {__version__}")
    group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    for command in COMMANDS.values():
        usage, examples = f"growc {command.name} {command.usage}", "\n".join(command.examples)
        subparser = group.add_parser(
            command.name,
            help=command.purpose,
            description=fill(command.purpose, NARROW),
            usage=usage,
            epilog="examples:\n" + re.sub("^", "  growc ", examples, flags=re.MULTILINE),
            formatter_class=raw_text,
            allow_abbrev=False,
        )
        command.arguments(subparser)
        _take_common(subparser, command)
    return parser, group.choices


def _take_common(parser: argparse.ArgumentParser, command: Command) -> None:
    """Add the options that every command takes."""
    if command.models is not None:
        help_text = "the class of a checkpoint that transformers does not have"
        parser.add_argument("--class", dest="model_class", metavar="MODULE:NAME", help=help_text)
    help_text = f"set a limit on what is taken of files: {', '.join(LIMITS)}"
    limit = parser.add_argument("--limit", metavar="NAME=N", action="append", default=[], help=help_text)
    offer(limit, lambda: (f"{name}=" for name in LIMITS))
    _take_voice(parser)


def _take_voice(parser: argparse.ArgumentParser) -> None:
    """Add the options for output, which may stand in front of a command as well."""
    parser.add_argument("-q", "--quiet", action="store_true", help="say nothing but what is wrong")
    parser.add_argument("-v", "--verbose", action="store_true", help="tell each stage, and its seconds")
    parser.add_argument(
        "--color", choices=COLORS, default=COLORS[0], help="default: where a terminal shows it"
    )


def read_arguments(arguments: Sequence[str]) -> argparse.Namespace:
    """The parsed options; `command` is the command's name.

    Raises GrowError (G200), and SystemExit after `--help`.
    """
    parser, commands = parsers()
    arguments = _command_first(arguments, commands)
    if not arguments or arguments[0] == "help":
        _help(parser, commands, arguments[1:])
    if arguments[0].startswith("-"):
        parser.parse_args(arguments)
    if arguments[0] not in commands:
        raise _unknown(arguments[0], commands)
    options = commands[arguments[0]].parse_intermixed_args(arguments[1:])
    options.command, options.limits = arguments[0], _limits(options.limit)
    options.parsers = parser, commands
    if any(not word and not before.startswith("-") for before, word in pairwise(arguments)):
        raise wrong("an argument is empty", "a variable of the shell may have no value")
    if getattr(options, "inputs", None) is not None and not options.inputs.is_file():
        raise wrong(
            f"there is no file `{options.inputs}`", "`--inputs` takes a .npz with the model's inputs by name"
        )
    if getattr(options, "model_class", None) is not None:
        _require_checkpoint(options)
    return options


def _command_first(arguments: Sequence[str], commands: Collection[str]) -> Sequence[str]:
    """The arguments with those options for output that stand in front of the command behind it."""
    place = next((k for k, word in enumerate(arguments) if word in commands), 0)
    if not place:
        return arguments
    voice = argparse.ArgumentParser(add_help=False, exit_on_error=False)
    _take_voice(voice)
    with contextlib.suppress(argparse.ArgumentError):
        if not voice.parse_known_args(arguments[:place])[1]:
            return [arguments[place], *arguments[:place], *arguments[place + 1 :]]
    return arguments


def _help(
    parser: argparse.ArgumentParser, commands: Mapping[str, argparse.ArgumentParser], names: Sequence[str]
) -> NoReturn:
    """Show the help of growc or of one command. Raises SystemExit, or GrowError (G200)."""
    name = "" if not names or names[0] == "help" else names[0]
    if name and name not in commands:
        raise _unknown(name, commands)
    (commands[name] if name else parser).print_help()
    raise SystemExit(0)


def _unknown(name: str, commands: Mapping[str, argparse.ArgumentParser]) -> Exception:
    """The error for an unknown command."""
    near = nearest(name, commands)
    remedy = f"did you mean `{near}`?" if near else f"the commands are {', '.join(commands)}"
    return wrong(f"there is no command `{name}`", remedy)


def _require_checkpoint(options: argparse.Namespace) -> None:
    """Raise GrowError (G200) for `--class` with a model that is not of a class."""
    models = COMMANDS[options.command].models
    for model in [] if models is None else map(Path, models(options)):
        if is_reference(model):
            of_class = not Reference.read(model).file.endswith(".onnx")
        else:
            of_class = model.is_dir() or model.suffix == ".json"
        if not of_class:
            raise wrong(f"`--class` is the class of a checkpoint directory, and `{model}` is none")


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """The limits that `--limit NAME=N` sets. Raises GrowError (G200)."""
    return {name: int(number) for name, number in pairs("--limit", "NAME=N", texts, "[0-9]{1,18}")}
