"""Arguments that several commands share, and the recipes, models, parameters and fields in them."""

from __future__ import annotations

import json
import re
import sys
from argparse import Action, ArgumentParser, Namespace
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

from growc.cli.output import waiting
from growc.errors.diagnostic import wrong
from growc.errors.json_data import Json
from growc.errors.source import RECIPE_SUFFIX, SourceText
from growc.system.limits import most

JSON = "one JSON object on standard output"


WITH_RECIPE = "(RECIPE | -e STATEMENT…) MODEL [OPTION…]"
"""The usage of commands that take a recipe and a model."""


def model_of(options: Namespace) -> list[str]:
    """The model of a command that takes a recipe and a model, if given."""
    model: list[str] = options.operands[-1:]
    return model


def take_recipe(parser: ArgumentParser) -> None:
    """Add the arguments for a recipe and a model."""
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


def offer(action: Action, words: Callable[[], Iterable[str]]) -> None:
    """Let shells complete an argument by words, which it need not be one of."""
    vars(action)["words"] = words


def words_of(action: Action) -> Iterable[str]:
    """The words by which shells complete an argument."""
    words: Callable[[], Iterable[str]] = vars(action).get("words", tuple)
    return words()


def take_json(parser: ArgumentParser) -> None:
    """Add the option for JSON output."""
    parser.add_argument("--json", action="store_true", help=JSON)


def take_all(parser: ArgumentParser) -> None:
    """Add the option for lists at full length."""
    parser.add_argument("--all", action="store_true", help="list every weight")


def take_out(
    parser: ArgumentParser, help_text: str, *, name: str = "OUT", default: Path | None = None
) -> None:
    """Add the option for the result's path."""
    parser.add_argument(
        "-o", "--output", dest="out", type=Path, default=default, metavar=name, help=help_text
    )


def take_captured_with(parser: ArgumentParser) -> None:
    """Add the option for inputs with which a checkpoint's class is captured."""
    parser.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to capture a checkpoint with")


def take_workers(parser: ArgumentParser, help_text: str) -> None:
    """Add the option for the number of processes on this machine."""
    parser.add_argument("--workers", type=int, default=1, metavar="N", help=help_text)


def take_home(parser: ArgumentParser) -> None:
    """Add the option for the folder with the config of a folder of weights."""
    help_text = "the directory of the config of a distributed checkpoint"
    parser.add_argument("--model", dest="home", type=Path, metavar="DIR", help=help_text)


def pairs(option: str, form: str, texts: Sequence[str], of_form: str = ".*") -> Iterator[tuple[str, str]]:
    """The names and values of an option `NAME=VALUE`, one for each use of it.

    form: the form that an error states. of_form: a pattern that a value must match. Raises GrowError (G200)
    for a text of another form.
    """
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not re.fullmatch(of_form, value, re.DOTALL):
            raise wrong(f"`{option} {text}` is not of the form {form}")
        yield name.strip(), value


def read(name: str) -> SourceText:
    """The recipe in a file, or from standard input."""
    from growc.resolve.recipe_forms import decoded, read_source

    if name != "-":
        return read_source(Path(name))
    return decoded("<stdin>", sys.stdin.buffer.read(most("recipe_bytes") + 1))


def statements(texts: Sequence[str]) -> SourceText:
    """The statements of several `-e`, as lines of one text."""
    return SourceText("-e", "\n".join(texts))


def sources_and_model(options: Namespace) -> tuple[list[SourceText], Path]:
    """The recipe's source and the model, from RECIPE MODEL, from -e … MODEL, or from --prefix … MODEL.

    Raises GrowError (G200) if the arguments do not fit.
    """
    prefix: str = getattr(options, "prefix", "")
    if prefix and options.e:
        raise wrong("`--prefix` cuts a model by the recipe in it, and `-e` is another recipe")
    expected = "MODEL" if options.e or prefix else "RECIPE and MODEL"
    if len(options.operands) != len(expected.split(" and ")):
        operands = ", ".join(f"`{name}`" for name in options.operands) or "nothing"
        remedy = "`-e` stands in the place of RECIPE" if options.e else "`-e STATEMENT` may stand for RECIPE"
        remedy = "`--prefix` stands in the place of RECIPE" if prefix else remedy
        raise wrong(f"expected {expected}, found {operands}", remedy)
    if prefix:
        from growc.formats.nested import prefix as cut

        model = local_model(options.operands[-1])
        return [SourceText(f"--prefix {prefix}", str(cut(model, prefix)))], model
    if not options.e and _is_model(options.operands[0]):
        first, second = options.operands
        remedy = f"`growc {options.command} {second} {first}`" if Path(second).suffix == RECIPE_SUFFIX else ""
        raise wrong(f"`{first}` is a model, and the recipe stands before it", remedy)
    source = statements(options.e) if options.e else read(options.operands[0])
    return [source], local_model(options.operands[-1])


def local_model(model: str | Path) -> Path:
    """The path of a model that a command was given; a model named by a reference is fetched first."""
    from growc.files.hub import local
    from growc.files.reference import is_reference

    if not is_reference(model):
        return Path(model)
    with waiting() as advance:
        return local(model, advance)


def _is_model(name: str) -> bool:
    """Whether the argument in a recipe's place is a model."""
    return Path(name).suffix in (".onnx", ".pt2") or Path(name).is_dir()


def parameters(options: Namespace) -> dict[str, str]:
    """The parameters that `-p` sets. Raises GrowError (G200) if one is set twice."""
    values: dict[str, str] = {}
    for name, value in pairs("-p", "NAME=EXPR", options.p):
        if name in values:
            raise wrong(f"`-p` sets `{name}` twice")
        values[name] = value
    return values


def decided(options: Namespace) -> dict[str, Json]:
    """The config fields that `--config` sets: numbers, truth values, `null` and lists as in JSON, else
    text.
    """
    values: dict[str, Json] = {}
    for name, value in pairs("--config", "FIELD=VALUE", options.config):
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return values


def captured_with(inputs: Path | None, model: Path) -> Path | None:
    """The file with the inputs with which a checkpoint is captured.

    Raises GrowError (G200) if the model is no checkpoint.
    """
    if inputs is not None and not model.is_dir() and model.suffix != ".json":
        raise wrong(f"`--inputs` is what a checkpoint directory is captured with, and `{model}` is none")
    return inputs
