"""The command line's grammar: commands, their arguments, and what `--help` says of them."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NoReturn

from growc.errors.diagnostic import nearest, wrong
from growc.system.limits import LIMITS
from growc.version import __version__

_JSON = "one JSON object on standard output"


class _Parser(argparse.ArgumentParser):
    """argparse, with growc's diagnostics."""

    def error(self, message: str) -> NoReturn:
        raise wrong(message, f"`{self.prog} --help` shows what there is")


def read_arguments(given: Sequence[str]) -> argparse.Namespace:
    """What was asked for; `command` is its name. Raises GrowError (G200), and SystemExit after `--help`."""
    parser = _Parser("growc", description="Grow a trained model by a recipe, and know whether it is exact.")
    parser.add_argument("--version", action="version", version=f"growc {__version__}")
    commands = _Commands(parser).group.choices
    if given and given[0].startswith("-"):
        parser.parse_args(given)
    if not given or given[0] not in commands:
        near = nearest(given[0], commands) if given else None
        message = f"there is no command `{given[0]}`" if given else "a command is missing"
        raise wrong(message, f"did you mean `{near}`?" if near else f"the commands are {', '.join(commands)}")
    options = commands[given[0]].parse_intermixed_args(given[1:])
    options.command, options.limits = given[0], _limits(options.limit)
    if getattr(options, "inputs", None) is not None and not options.inputs.is_file():
        raise wrong(
            f"there is no file `{options.inputs}`", "`--inputs` takes a .npz with the model's inputs by name"
        )
    if getattr(options, "model_class", None) is not None:
        _require_checkpoint(options)
    return options


def _require_checkpoint(options: argparse.Namespace) -> None:
    """Raises GrowError (G200) for `--class` with a model that is not of a class."""
    read = {"verify": "models", "explain": "what", "inspect": "model", "measure": "model"}
    found = getattr(options, read.get(options.command, "operands"))
    last = found[-1] if options.command in ("apply", "plan") and found else found
    model = Path(last[0] if isinstance(last, list) and last else last or ".")
    if not model.is_dir() and model.suffix != ".json":
        raise wrong(f"`--class` is the class of a checkpoint directory, and `{model}` is none")


def pairs(option: str, form: str, texts: Sequence[str], of_form: str = ".*") -> Iterator[tuple[str, str]]:
    """The names and values that an option gave as `NAME=VALUE`, one for each time. of_form: what a value must
    match. Raises GrowError (G200) for what is not of the `form` that a person is told.
    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not re.fullmatch(of_form, value, re.DOTALL):
            raise wrong(f"`{option} {text}` is not of the form {form}")
        yield name.strip(), value


def _limits(texts: Sequence[str]) -> dict[str, int]:
    """What each `--limit NAME=N` sets. Raises GrowError (G200)."""
    return {name: int(number) for name, number in pairs("--limit", "NAME=N", texts, "[0-9]{1,18}")}


WITHOUT_MODEL = ("check", "clean", "fmt")


class _Commands:
    """The parser of every command, by name."""

    def __init__(self, parser: argparse.ArgumentParser) -> None:
        self.group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
        self.apply()
        self.plan()
        self.inspect()
        self.verify()
        self.measure()
        self.explain()
        self.check()
        self.fmt()
        self.clean()

    def add(self, name: str, usage: str, purpose: str) -> argparse.ArgumentParser:
        usage = f"growc {name} {usage}"
        made: argparse.ArgumentParser = self.group.add_parser(
            name, help=purpose, description=purpose, usage=usage, allow_abbrev=False
        )
        told = f"set a limit on what is taken of files: {', '.join(LIMITS)}"
        made.add_argument("--limit", metavar="NAME=N", action="append", default=[], help=told)
        if name not in WITHOUT_MODEL:
            told = "the class of a checkpoint that transformers does not have"
            made.add_argument("--class", dest="model_class", metavar="MODULE:NAME", help=told)
        return made

    def add_with_recipe(self, name: str, purpose: str) -> argparse.ArgumentParser:
        made = self.add(name, "(RECIPE | -e STATEMENT…) MODEL [OPTION…]", purpose)
        made.add_argument(
            "operands", nargs="*", metavar="RECIPE MODEL", help="the recipe (`-`: standard input), the model"
        )
        made.add_argument(
            "-e", metavar="STATEMENT", action="append", default=[], help="a statement in place of RECIPE"
        )
        made.add_argument(
            "-p", metavar="NAME=EXPR", action="append", default=[], help="set a `let` of the recipe"
        )
        made.add_argument(
            "--config",
            metavar="FIELD=VALUE",
            action="append",
            default=[],
            help="decide a field of a checkpoint's config.json",
        )
        made.add_argument("--json", action="store_true", help=_JSON)
        return made

    def add_captured_with(self, made: argparse.ArgumentParser) -> None:
        told = "inputs to capture a checkpoint with"
        made.add_argument("--inputs", type=Path, metavar="FILE.npz", help=told)

    def add_shared(self, made: argparse.ArgumentParser, told: str) -> None:
        made.add_argument("--workers", type=int, default=1, metavar="N", help=told)

    def add_described_in(self, made: argparse.ArgumentParser) -> None:
        told = "the directory of the config of a distributed checkpoint"
        made.add_argument("--model", dest="home", type=Path, metavar="DIR", help=told)

    def apply(self) -> None:
        made = self.add_with_recipe("apply", "Write the model that a recipe describes.")
        made.add_argument("-o", dest="out", type=Path, metavar="OUT", help="default: NAME.grown beside MODEL")
        made.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture and verify with")
        made.add_argument("--no-verify", action="store_true", help="do not compare the result with MODEL")
        made.add_argument("--force", action="store_true", help="replace files that growc did not make")
        made.add_argument("--lineage", type=Path, metavar="FILE", help="write where every unit comes from")
        made.add_argument(
            "--shard-size", default="", metavar="SIZE", help="largest file of a checkpoint (`5GB`)"
        )
        made.add_argument(
            "--memory", default="", metavar="SIZE", help="refuse what takes more to write (`256M`)"
        )
        self.add_shared(made, "measure, and write a checkpoint directory, by so many processes")
        self.add_described_in(made)
        made.add_argument("--weights", metavar="KIND", help="write a checkpoint as `safetensors` or `distcp`")
        made.add_argument(
            "--optimizer", type=Path, metavar="FILE", help="carry a checkpoint's optimizer state along"
        )
        made.add_argument(
            "--optimizer-new",
            metavar="STATE",
            help="what new units have in that state: `mapped` (default) or `zero`",
        )

    def plan(self) -> None:
        made = self.add_with_recipe("plan", "Show what `apply` would do; write nothing.")
        self.add_captured_with(made)
        self.add_described_in(made)
        made.add_argument("--all", action="store_true", help="list every weight")
        made.add_argument(
            "--ranks",
            dest="processes",
            type=int,
            metavar="N",
            help="show what each of so many processes reads and writes",
        )
        made.add_argument(
            "--bandwidth", default="", metavar="SIZE", help="what each of them moves in a second (`1GB`)"
        )
        made.add_argument(
            "--print-after",
            metavar="PASS",
            action="append",
            default=[],
            help="show what a pass of growc made, or `all` of them",
        )

    def inspect(self) -> None:
        made = self.add("inspect", "MODEL [OPTION…]", "Show the axes of a model, and what is frozen.")
        made.add_argument("model", type=Path, metavar="MODEL")
        self.add_captured_with(made)
        made.add_argument("--json", action="store_true", help=_JSON)

    def verify(self) -> None:
        made = self.add("verify", "MODEL MODEL [OPTION…]", "Compare the outputs of two models.")
        made.add_argument("models", type=Path, nargs=2, metavar="MODEL", help="the source and the result")
        made.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to compare on")
        self.add_described_in(made)
        made.add_argument(
            "--within", type=float, metavar="X", help="default: 20 times the source's own rounding"
        )
        made.add_argument("--json", action="store_true", help=_JSON)

    def measure(self) -> None:
        made = self.add(
            "measure", "MODEL --inputs FILE [OPTION…]", "Measure how much units and layers matter."
        )
        made.add_argument("model", type=Path, metavar="MODEL")
        made.add_argument(
            "--inputs", type=Path, metavar="FILE.npz", required=True, help="inputs to measure on"
        )
        made.add_argument("--samples", type=int, metavar="N", help="use the first N rows")
        made.add_argument("--layers", action="store_true", help="remove and double each layer, too")
        made.add_argument("-o", dest="out", type=Path, metavar="OUT", help="where the scores are kept")
        made.add_argument("--force", action="store_true", help="replace scores of another measurement")
        self.add_shared(made, "measure by so many processes")
        made.add_argument("--json", action="store_true", help=_JSON)

    def explain(self) -> None:
        made = self.add(
            "explain", "(MODEL AXIS | CODE) [--all]", "Tell why axes are tied, or what an error means."
        )
        made.add_argument("what", nargs="+", metavar="MODEL AXIS | CODE")
        made.add_argument("--all", action="store_true", help="list every weight of every layer")

    def check(self) -> None:
        made = self.add("check", "(RECIPE | -e STATEMENT)… [--json]", "Check recipes without a model.")
        made.add_argument("recipes", nargs="*", metavar="RECIPE", help="files, or `-` for standard input")
        made.add_argument(
            "-e", metavar="STATEMENT", action="append", default=[], help="a statement; all are one recipe"
        )
        made.add_argument("--json", action="store_true", help=_JSON)

    def clean(self) -> None:
        made = self.add("clean", "[DIR]", "Remove what runs left behind that were killed.")
        made.add_argument("folder", nargs="?", type=Path, default=Path(), metavar="DIR", help="default: here")

    def fmt(self) -> None:
        made = self.add("fmt", "RECIPE… [--check]", "Format recipes in place.")
        made.add_argument(
            "recipes", nargs="+", metavar="RECIPE", help="files, or `-`: standard input to output"
        )
        made.add_argument(
            "--check", action="store_true", help="change nothing; exit 1 if a recipe would change"
        )
