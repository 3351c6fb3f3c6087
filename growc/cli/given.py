"""What several commands are given: the arguments, and the recipes, models, parameters and fields in them."""

from __future__ import annotations

import json
import re
import sys
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from pathlib import Path

from growc.cli.output import waiting
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json
from growc.errors.source import Source
from growc.system.limits import most

JSON = "one JSON object on standard output"


WITH_RECIPE = "(RECIPE | -e STATEMENT…) MODEL [OPTION…]"
"""How commands are used that take a recipe and a model."""


def model_of(options: Namespace) -> list[str]:
    """The model of such a command, where one is given."""
    found: list[str] = options.operands[-1:]
    return found


def take_recipe(parser: ArgumentParser) -> None:
    """A recipe and a model."""
    parser.add_argument(
        "operands", nargs="*", metavar="RECIPE MODEL", help="the recipe (`-`: standard input), the model"
    )
    parser.add_argument(
        "-e", metavar="STATEMENT", action="append", default=[], help="a statement in place of RECIPE"
    )
    parser.add_argument(
        "-p", metavar="NAME=EXPR", action="append", default=[], help="set a `let` of the recipe"
    )
    parser.add_argument(
        "--config",
        metavar="FIELD=VALUE",
        action="append",
        default=[],
        help="decide a field of a checkpoint's config.json",
    )
    take_json(parser)


def take_json(parser: ArgumentParser) -> None:
    """Whether the result is data."""
    parser.add_argument("--json", action="store_true", help=JSON)


def take_out(parser: ArgumentParser, told: str, *, name: str = "OUT", default: Path | None = None) -> None:
    """Where the result goes."""
    parser.add_argument("-o", "--output", dest="out", type=Path, default=default, metavar=name, help=told)


def take_captured_with(parser: ArgumentParser) -> None:
    """What a checkpoint's class is run on."""
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture a checkpoint with")


def take_workers(parser: ArgumentParser, told: str) -> None:
    """How many processes of this machine."""
    parser.add_argument("--workers", type=int, default=1, metavar="N", help=told)


def take_home(parser: ArgumentParser) -> None:
    """Where the config of a folder of weights is."""
    told = "the directory of the config of a distributed checkpoint"
    parser.add_argument("--model", dest="home", type=Path, metavar="DIR", help=told)


def pairs(option: str, form: str, texts: Sequence[str], of_form: str = ".*") -> Iterator[tuple[str, str]]:
    """The names and values that an option gave as `NAME=VALUE`, one for each time. of_form: what a value must
    match. Raises GrowError (G200) for what is not of the `form` that a person is told.
    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not re.fullmatch(of_form, value, re.DOTALL):
            raise wrong(f"`{option} {text}` is not of the form {form}")
        yield name.strip(), value


def read(name: str) -> Source:
    """The recipe in a file, or from standard input."""
    from growc.api import decoded, read_source

    if name != "-":
        return read_source(Path(name))
    return decoded("<stdin>", sys.stdin.buffer.read(most("recipe_bytes") + 1))


def statements(texts: Sequence[str]) -> Source:
    """What several `-e` say: the lines of one text."""
    return Source("-e", "\n".join(texts))


def sources_and_model(options: Namespace) -> tuple[list[Source], Path]:
    """The recipe's source and the model, from RECIPE MODEL or -e … MODEL; or from --prefix … MODEL."""
    prefix: str = getattr(options, "prefix", "")
    if prefix and options.e:
        raise wrong("`--prefix` cuts a model by the recipe in it, and `-e` is another recipe")
    wanted = "MODEL" if options.e or prefix else "RECIPE and MODEL"
    if len(options.operands) != len(wanted.split(" and ")):
        found = ", ".join(f"`{name}`" for name in options.operands) or "nothing"
        remedy = "`-e` stands in the place of RECIPE" if options.e else "`-e STATEMENT` may stand for RECIPE"
        remedy = "`--prefix` stands in the place of RECIPE" if prefix else remedy
        raise wrong(f"expected {wanted}, found {found}", remedy)
    if prefix:
        from growc.formats.nested import prefix as cut

        model = local_model(options.operands[-1])
        return [Source(f"--prefix {prefix}", str(cut(model, prefix)))], model
    if not options.e and _is_model(options.operands[0]):
        first, second = options.operands
        remedy = f"`growc {options.command} {second} {first}`" if Path(second).suffix == ".grow" else ""
        raise wrong(f"`{first}` is a model, and the recipe stands before it", remedy)
    source = statements(options.e) if options.e else read(options.operands[0])
    return [source], local_model(options.operands[-1])


def local_model(given: str | Path) -> Path:
    """The path of a model that a command was given; one that a reference names is fetched first."""
    from growc.files.hub import local
    from growc.files.reference import is_reference

    if not is_reference(given):
        return Path(given)
    with waiting() as advance:
        return local(given, advance)


def _is_model(name: str) -> bool:
    """Whether what stands in a recipe's place is a model."""
    return Path(name).suffix in (".onnx", ".pt2") or Path(name).is_dir()


def parameters(options: Namespace) -> dict[str, str]:
    """What `-p` sets."""
    found: dict[str, str] = {}
    for name, value in pairs("-p", "NAME=EXPR", options.p):
        if name in found:
            raise wrong(f"`-p` sets `{name}` twice")
        found[name] = value
    return found


def decided(options: Namespace) -> dict[str, Json]:
    """What `--config` decides: numbers, truth values, `null` and lists as in JSON, else text."""
    found: dict[str, Json] = {}
    for name, value in pairs("--config", "FIELD=VALUE", options.config):
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def captured_with(inputs: Path | None, model: Path) -> Path | None:
    """The file with the inputs that a checkpoint is captured with."""
    if inputs is not None and not model.is_dir() and model.suffix != ".json":
        raise wrong(f"`--inputs` is what a checkpoint directory is captured with, and `{model}` is none")
    return inputs
