"""The command line: arguments, exit codes, and nothing else.

Heavy modules are imported by the command that needs them, so that `growc --help` is instant.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NoReturn

from growc import __version__
from growc.diagnostic import Diagnostic, GrowError, error_object, explain, render
from growc.source import Source

INTERRUPTED, INTERNAL = 130, 70


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. A person never sees a traceback."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    as_json = "--json" in given
    try:
        options = _parser().parse_args(given)
        return int(options.run(options))
    except GrowError as error:
        _report(error, as_json)
        return error.exit_status
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except OSError as error:
        from growc.api import system_error

        made = system_error(error)
        _report(made, as_json)
        return made.exit_status
    except Exception as error:
        return _internal(error, as_json)


def _report(error: GrowError, as_json: bool) -> None:
    if as_json:
        _print_json(error_object(error))
        return
    color = sys.stderr.isatty()
    print("\n\n".join(render(d, color) for d in error.diagnostics), file=sys.stderr)


def _internal(error: Exception, as_json: bool) -> int:
    """A bug: one line for the person, the rest in a report file."""
    with tempfile.NamedTemporaryFile("w", prefix="growc-report-", suffix=".txt", delete=False) as file:
        file.write(f"growc {__version__}\narguments: {sys.argv[1:]}\n\n")
        file.write("".join(traceback.format_exception(error)))
    message = f"this is a bug in growc ({type(error).__name__}); the report is in {file.name}"
    _report(GrowError(Diagnostic("G900", message)), as_json)
    return INTERNAL


def _print_json(data: Any) -> None:
    print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=True))


def _print(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


# ------------------------------------------------------------------------------------------ arguments


class _Parser(argparse.ArgumentParser):
    """argparse, with growc's diagnostics."""

    def error(self, message: str) -> NoReturn:
        raise GrowError(Diagnostic("G200", message, help=f"`{self.prog} --help` shows what there is"))


def _parser() -> argparse.ArgumentParser:
    parser = _Parser("growc", description="Grow or shrink a trained model by a recipe, and know whether it is exact.")
    parser.add_argument("--version", action="version", version=f"growc {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, run: Callable[[argparse.Namespace], int], help: str) -> argparse.ArgumentParser:
        made: argparse.ArgumentParser = commands.add_parser(name, help=help, description=help)
        made.set_defaults(run=run)
        return made

    def recipe_and_model(made: argparse.ArgumentParser) -> None:
        made.add_argument("-e", metavar="STATEMENT", action="append", default=[], help="a statement in place of RECIPE")
        made.add_argument("-p", metavar="NAME=EXPR", action="append", default=[], help="set a `let` of the recipe")
        made.add_argument("--json", action="store_true", help="one JSON object on standard output")
        made.add_argument("operands", nargs="+", metavar="RECIPE MODEL", help="the recipe (`-`: standard input), the model")

    made = command("apply", _apply, "Write the model that the recipe describes, verified.")
    recipe_and_model(made)
    made.add_argument("-o", dest="out", type=Path, metavar="OUT", help="default: NAME.grown beside MODEL")
    made.add_argument("--inputs", type=Path, metavar="FILE.npz", help="inputs to verify with")
    made.add_argument("--no-verify", action="store_true", help="do not compare source and result")
    made.add_argument("--force", action="store_true", help="replace a file that growc did not make")
    made.add_argument("--lineage", type=Path, metavar="FILE", help="write where every unit comes from")
    made = command("plan", _plan, "Show what `apply` would do, without writing.")
    recipe_and_model(made)
    made.add_argument("--all", action="store_true", help="list every weight")
    made = command("inspect", _inspect, "Show the axes of a model, and what is frozen.")
    made.add_argument("model", type=Path)
    made.add_argument("--json", action="store_true")
    made = command("verify", _verify, "Compare the outputs of two models.")
    made.add_argument("models", type=Path, nargs=2, metavar="MODEL")
    made.add_argument("--inputs", type=Path, metavar="FILE.npz")
    made.add_argument("--within", type=float, metavar="X", help="default: 20 times the model's own rounding")
    made.add_argument("--json", action="store_true")
    made = command("explain", _explain, "Explain why axes are tied (MODEL AXIS), or an error (CODE).")
    made.add_argument("what", nargs="+", metavar="MODEL AXIS | CODE")
    made = command("check", _check, "Check recipes without a model.")
    made.add_argument("recipes", nargs="+", metavar="RECIPE")
    made.add_argument("--json", action="store_true")
    made = command("fmt", _fmt, "Format recipes in place.")
    made.add_argument("recipes", nargs="+", metavar="RECIPE")
    made.add_argument("--check", action="store_true", help="change nothing; exit 1 if a recipe would change")
    return parser


def _read(name: str) -> Source:
    from growc.api import read_source

    return Source("<stdin>", sys.stdin.read()) if name == "-" else read_source(Path(name))


def _sources(options: argparse.Namespace) -> tuple[list[Source], Path]:
    """The recipe's sources and the model, from RECIPE MODEL or -e … MODEL."""
    wanted = 1 if options.e else 2
    if len(options.operands) != wanted:
        what = "MODEL after the statements" if options.e else "RECIPE and MODEL"
        raise GrowError(Diagnostic("G200", f"expected {what}, and found {len(options.operands)} names"))
    sources = [Source("-e", text) for text in options.e] or [_read(options.operands[0])]
    return sources, Path(options.operands[-1])


def _parameters(options: argparse.Namespace) -> dict[str, str]:
    found = {}
    for text in options.p:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise GrowError(Diagnostic("G200", f"`-p {text}` is not of the form NAME=EXPR"))
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
        result |= {"written": str(done.written), "verification": verification_data(done.verification)}
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
        _print([*plan_lines(compilation.plan, everything=options.all), "Nothing was written."])
        judge_plan(resolved.statements, compilation)
    return 0


def _inspect(options: argparse.Namespace) -> int:
    from growc.api import inspect
    from growc.render.terminal import inspect_data, inspect_lines

    found = inspect(options.model)
    if options.json:
        _print_json(inspect_data(found))
    else:
        _print(inspect_lines(found))
    return 0


def _verify(options: argparse.Namespace) -> int:
    from growc.render.progress import progress
    from growc.render.terminal import verification_lines
    from growc.verify import verify

    with progress() as advance:
        found = verify(*options.models, inputs=options.inputs, progress=lambda phrase: advance(phrase, 0, 0))
    limit = found.limit if options.within is None else options.within
    passed = found.relative <= limit if options.within is not None else not found.refutes_exact()
    if options.json:
        outputs = {n: {"relative": r.relative} for n, r in found.outputs.items()}
        data = {"max_abs": found.max_abs, "relative": found.relative, "passed": passed, "outputs": outputs}
        if passed:
            _print_json(data)
            return 0
    elif passed:
        _print(verification_lines(found))
        return 0
    message = f"the outputs differ by {found.relative:.1e}, which is more than {limit:.1e}"
    error = GrowError(Diagnostic("G404", message, notes=tuple(found.notes)))
    if options.json:
        _print_json(data | error_object(error))
        return error.exit_status
    raise error


def _explain(options: argparse.Namespace) -> int:
    if len(options.what) == 1:
        print(explain(options.what[0]))
        return 0
    if len(options.what) != 2:
        raise GrowError(Diagnostic("G200", "expected MODEL AXIS, or CODE"))
    from growc.api import inspect
    from growc.axisgraph import paths
    from growc.passes.lower import named
    from growc.render.terminal import explain_lines

    model, axis = options.what
    found = inspect(model)
    for role in named(axis, None, found.roles, found.axes):
        _print(explain_lines(found, axis, paths(found.axes, list(found.ties), role)))
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
        source = _read(name)
        text = format(parse(source))
        if name == "-":
            sys.stdout.write(text)
        elif text != source.text and options.check:
            problems.append(Diagnostic("G405", f"`{name}` is not formatted", help=f"`growc fmt {name}` formats it"))
        elif text != source.text:
            Path(name).write_text(text, encoding="utf-8")
    if problems:
        raise GrowError(*problems)
    return 0


if __name__ == "__main__":
    sys.exit(main())
