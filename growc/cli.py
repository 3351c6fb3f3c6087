"""The command line: arguments, streams and exit codes, and nothing else.

Heavy modules are imported by the command that needs them, so that `growc --help` is instant.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import sys
import tempfile
import threading
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NoReturn

from growc import __version__
from growc.diagnostic import Diagnostic, GrowError, error_object, explain, nearest, render
from growc.source import Source


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. A person never sees a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        with _interruptible():
            status = _run(given)
            sys.stdout.flush()
            return status
    except GrowError as error:
        return _report(error, given)
    except KeyboardInterrupt:
        return _report(GrowError(Diagnostic("G503", "interrupted; nothing was written")), given)
    except OSError as error:
        place = f" `{error.filename}`" if error.filename else ""
        message = f"the system refused{place}: {(error.strerror or str(error)).lower()}"
        return _report(GrowError(Diagnostic("G502", message)), given)
    except Exception as error:  # noqa: BLE001 - a bug, whatever it is
        return _report(_bug(error, given), given)


def _run(given: list[str]) -> int:
    """Find the command's parser, and run the command."""
    parser, commands = _parsers()
    if not given or given[0].startswith("-"):
        parser.parse_args(given)
    if given[0] not in commands:
        near = nearest(given[0], commands)
        help = f"did you mean `{near}`?" if near else f"the commands are {', '.join(commands)}"
        raise GrowError(Diagnostic("G200", f"there is no command `{given[0]}`", help=help))
    options = commands[given[0]].parse_intermixed_args(given[1:])
    return int(options.run(options))


@contextlib.contextmanager
def _interruptible() -> Iterator[None]:
    """SIGTERM ends a command as Ctrl-C does; once one of them came, no other disturbs the cleaning up."""

    def interrupt(*_: object) -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _report(error: GrowError, given: Sequence[str]) -> int:
    """Show what went wrong: as JSON on standard output, or for a person on standard error."""
    if "--json" in given:
        _print_json(error_object(error))
    else:
        color = _colors(sys.stderr)
        text = "\n\n".join(render(d, color) for d in error.diagnostics)
        with contextlib.suppress(OSError):
            print(text, file=sys.stderr)
    return error.exit_status


def _bug(error: Exception, given: Sequence[str]) -> GrowError:
    """A bug: one line for the person, the rest in a report file."""
    with tempfile.NamedTemporaryFile("w", prefix="growc-report-", suffix=".txt", delete=False) as file:
        file.write(f"growc {__version__}\narguments: {list(given)}\n\n")
        file.write("".join(traceback.format_exception(error)))
    message = f"this is a bug in growc ({type(error).__name__}); the report is in {file.name}"
    return GrowError(Diagnostic("G900", message))


def _colors(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ


def _print_json(data: Any) -> None:
    _print([json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False)])


def _print(lines: Iterable[str]) -> None:
    """Print to a reader that may go away: a closed pipe ends the printing, and not the work."""
    from growc.render.text import colored

    ink = colored if _colors(sys.stdout) else str
    try:
        for line in lines:
            print(ink(line))
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


# ------------------------------------------------------------------------------------------ arguments


class _Parser(argparse.ArgumentParser):
    """argparse, with growc's diagnostics."""

    def error(self, message: str) -> NoReturn:
        raise GrowError(Diagnostic("G200", message, help=f"`{self.prog} --help` shows what there is"))


def _parsers() -> tuple[_Parser, dict[str, _Parser]]:
    parser = _Parser(
        "growc", description="Grow a trained model by a recipe, and know whether the result is exact."
    )
    parser.add_argument("--version", action="version", version=f"growc {__version__}")
    group = parser.add_subparsers(required=True, metavar="COMMAND", title="commands")
    commands: dict[str, _Parser] = {}

    def command(name: str, run: Callable[[argparse.Namespace], int], usage: str, help: str) -> _Parser:
        made = group.add_parser(
            name, help=help, description=help, usage=f"growc {name} {usage}", allow_abbrev=False
        )
        made.set_defaults(run=run)
        commands[name] = made
        return made

    made = command(
        "apply", _apply, f"{_RECIPE} MODEL [-o OUT] [OPTION…]", "Write the model that a recipe describes."
    )
    _takes_recipe_and_model(made)
    made.add_argument("-o", dest="out", type=Path, metavar="OUT", help="default: NAME.grown beside MODEL")
    made.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to verify with")
    made.add_argument("--no-verify", action="store_true", help="do not compare the result with MODEL")
    made.add_argument("--force", action="store_true", help="replace files that growc did not make")
    made.add_argument("--lineage", type=Path, metavar="FILE", help="write where every unit comes from")
    made = command("plan", _plan, f"{_RECIPE} MODEL [OPTION…]", "Show what `apply` would do; write nothing.")
    _takes_recipe_and_model(made)
    made.add_argument("--all", action="store_true", help="list every weight")
    made = command("inspect", _inspect, "MODEL [--json]", "Show the axes of a model, and what is frozen.")
    made.add_argument("model", type=Path, metavar="MODEL")
    made.add_argument("--json", action="store_true", help=_JSON)
    made = command("verify", _verify, "MODEL MODEL [OPTION…]", "Compare the outputs of two models.")
    made.add_argument("models", type=Path, nargs=2, metavar="MODEL", help="the source and the result")
    made.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to compare on")
    made.add_argument("--within", type=float, metavar="X", help="default: 20 times the source's own rounding")
    made.add_argument("--json", action="store_true", help=_JSON)
    made = command(
        "explain", _explain, "(MODEL AXIS | CODE) [--all]", "Tell why axes are tied, or what an error means."
    )
    made.add_argument("what", nargs="+", metavar="MODEL AXIS | CODE")
    made.add_argument("--all", action="store_true", help="list every weight of every layer")
    made = command("check", _check, "RECIPE… [--json]", "Check recipes without a model.")
    made.add_argument("recipes", nargs="+", metavar="RECIPE", help="files, or `-` for standard input")
    made.add_argument("--json", action="store_true", help=_JSON)
    made = command("fmt", _fmt, "RECIPE… [--check]", "Format recipes in place.")
    made.add_argument(
        "recipes", nargs="+", metavar="RECIPE", help="files, or `-` from standard input to output"
    )
    made.add_argument("--check", action="store_true", help="change nothing; exit 1 if a recipe would change")
    return parser, commands


_RECIPE = "(RECIPE | -e STATEMENT…)"
_JSON = "one JSON object on standard output"


def _takes_recipe_and_model(made: _Parser) -> None:
    made.add_argument(
        "operands", nargs="*", metavar="RECIPE MODEL", help="the recipe (`-`: standard input), the model"
    )
    made.add_argument(
        "-e", metavar="STATEMENT", action="append", default=[], help="a statement in place of RECIPE"
    )
    made.add_argument(
        "-p", metavar="NAME=EXPR", action="append", default=[], help="set a `let` of the recipe"
    )
    made.add_argument("--json", action="store_true", help=_JSON)


def _read(name: str) -> Source:
    from growc.api import decoded, read_source

    return decoded("<stdin>", sys.stdin.buffer.read()) if name == "-" else read_source(Path(name))


def _sources(options: argparse.Namespace) -> tuple[list[Source], Path]:
    """The recipe's sources and the model, from RECIPE MODEL or -e … MODEL."""
    wanted = "MODEL" if options.e else "RECIPE and MODEL"
    if len(options.operands) != len(wanted.split(" and ")):
        found = ", ".join(f"`{name}`" for name in options.operands) or "nothing"
        help = (
            "`-e` stands in the place of RECIPE"
            if options.e
            else "`-e STATEMENT` may stand in the place of RECIPE"
        )
        raise GrowError(Diagnostic("G200", f"expected {wanted}, found {found}", help=help))
    sources = [Source("-e", text) for text in options.e] or [_read(options.operands[0])]
    return sources, Path(options.operands[-1])


def _parameters(options: argparse.Namespace) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in options.p:
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or name.strip() in found:
            wrong = "gives a name twice" if name.strip() in found else "is not of the form NAME=EXPR"
            raise GrowError(Diagnostic("G200", f"`-p {text}` {wrong}"))
        found[name.strip()] = value
    return found


# ------------------------------------------------------------------------------------------ commands


def _apply(options: argparse.Namespace) -> int:
    from growc.api import apply
    from growc.plan_json import to_json
    from growc.render.progress import progress
    from growc.render.terminal import applied_lines, plan_lines, verification_data

    sources, model = _sources(options)
    with progress() as advance:
        done = apply(
            sources,
            model,
            options.out,
            _parameters(options),
            inputs=options.inputs,
            check=not options.no_verify,
            force=options.force,
            lineage=options.lineage,
            progress=advance,
            planned=None if options.json else lambda plan: _print([*plan_lines(plan), ""]),
        )
    if options.json:
        result = to_json(done.plan)
        measured = None if done.verification is None else verification_data(done.verification)
        result |= {"written": str(done.written), "verification": measured}
        _print_json(result | ({"reason": done.reason} if done.reason else {}))
    else:
        _print(applied_lines(done))
    return 0


def _plan(options: argparse.Namespace) -> int:
    from growc.api import compile, recipe
    from growc.expectations import judge_plan
    from growc.plan_json import to_json
    from growc.render.terminal import plan_lines

    sources, model = _sources(options)
    resolved = recipe(sources, _parameters(options))
    compilation = compile(resolved, model)
    if options.json:
        judge_plan(resolved.statements, compilation)
        _print_json(to_json(compilation.plan))
    else:
        *lines, tally = plan_lines(compilation.plan, everything=options.all)
        _print([*lines, f"{tally} Nothing was written."])
        judge_plan(resolved.statements, compilation)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from growc.api import inspect
    from growc.render.inspection import inspect_data, inspect_lines

    found = inspect(options.model)
    if options.json:
        _print_json(inspect_data(found))
    else:
        _print(inspect_lines(found))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from growc.render.progress import progress
    from growc.render.terminal import verification_data, verification_lines
    from growc.verify import verify

    for model in options.models:
        if not model.is_file():
            raise GrowError(Diagnostic("G310", f"there is no model at `{model}`"))
    with progress() as advance:
        found = verify(*options.models, inputs=options.inputs, progress=lambda phrase: advance(phrase, 0, 0))
    limit = found.limit if options.within is None else options.within
    passed = not found.refutes_exact() if options.within is None else found.relative <= limit
    difference = f"differ by {found.relative:.1e}, which is more than {limit:.1e}"
    if math.isinf(found.relative):
        difference = "differ in kind: their shapes, or where they are not finite"
    error = GrowError(Diagnostic("G404", f"the outputs {difference}", notes=tuple(found.notes)))
    if options.json:
        _print_json({**verification_data(found), "passed": passed} | ({} if passed else error_object(error)))
        return 0 if passed else error.exit_status
    _print(verification_lines(found))
    if not passed:
        raise error
    _print([f"The outputs are the same within {limit:.1e}."])
    return 0


def _explain(options: argparse.Namespace) -> int:
    if len(options.what) == 1:
        _print([explain(options.what[0].upper())])
        return 0
    if len(options.what) != 2:
        raise GrowError(
            Diagnostic("G200", "expected MODEL AXIS, or CODE", help="an axis of several words is quoted")
        )
    from growc.api import inspect
    from growc.expression import Name, TensorAxis
    from growc.grammar import parse_expression
    from growc.passes.lower import named
    from growc.render.inspection import explain_lines

    model, axis = options.what
    name = parse_expression(Source("AXIS", axis))
    if not isinstance(name, Name | TensorAxis):
        raise GrowError(Diagnostic("G200", f"`{axis}` is no axis"))
    found = inspect(model)
    _print(explain_lines(found, axis, named(name.name, None, found.roles, found.axes), options.all))
    return 0


def _check(options: argparse.Namespace) -> int:
    from growc.resolve import load

    problems: list[Diagnostic] = []
    for name in options.recipes:
        try:
            load([_read(name)], {})
        except GrowError as error:
            problems += error.diagnostics
    if problems:
        raise GrowError(*problems)
    if options.json:
        _print_json({"passed": True})
    else:
        _print(f"{name}: fine" for name in options.recipes)
    return 0


def _fmt(options: argparse.Namespace) -> int:
    from growc.grammar import format, parse

    problems: list[Diagnostic] = []
    for name in options.recipes:
        try:
            source = _read(name)
            text = format(parse(source))
        except GrowError as error:
            problems += error.diagnostics
            continue
        if text != source.text and options.check:
            problems.append(
                Diagnostic("G405", f"`{name}` is not formatted", help=f"`growc fmt {name}` formats it")
            )
        elif name == "-" and not options.check:
            sys.stdout.write(text)
        elif text != source.text:
            Path(name).write_text(text, encoding="utf-8", newline="")
    if problems:
        raise GrowError(*problems)
    return 0


if __name__ == "__main__":
    sys.exit(main())
