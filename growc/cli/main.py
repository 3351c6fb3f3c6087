"""The command line: streams, exit codes, one function for each command, and no logic.

Heavy modules are imported by the command that needs them, so that `growc --help` is instant.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import sys
from argparse import Namespace
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from growc.cli import several
from growc.cli.arguments import pairs, read_arguments
from growc.cli.process import (
    end_at_once,
    last_words,
    no_loggers,
    own_process,
    refused,
    spare_memory,
    unexpected,
)
from growc.dialects.transformers.named_class import class_named
from growc.errors.diagnostic import Diagnostic, GrowError, error_object, explain, nearest, render, wrong
from growc.errors.json_data import Json
from growc.errors.printable import printable
from growc.errors.source import Source
from growc.system.interrupts import Command, interruptible
from growc.system.limits import limits, most
from growc.system.ranks import started_by_torchrun

if TYPE_CHECKING:
    from growc.passes import compilation
    from growc.passes.compilation import After


DONE = {"fmt": "what was formatted stays so", "measure": "what was measured is kept"}
"""By command: what an interrupt leaves that one may ask for."""


def program() -> int:
    """`growc` as a process of its own."""
    with own_process():
        status = main()
    if started_by_torchrun():
        end_at_once(status)
    return status


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns its exit status. A person never sees a traceback."""
    given, command = list(sys.argv[1:] if arguments is None else arguments), Command()
    try:
        with interruptible(command), no_loggers(), spare_memory():
            options = read_arguments(given)
            with limits(**options.limits), class_named(getattr(options, "model_class", None)):
                status = several.run(COMMANDS[options.command], options, given)
            with last_words():
                sys.stdout.flush()
            return status
    except GrowError as error:
        return _report(error, given)
    except KeyboardInterrupt:
        done = (
            "the result is written"
            if command.committed
            else DONE.get("".join(given[:1]), "nothing was written")
        )
        return _report(GrowError(Diagnostic("G503", f"interrupted: {done}")), given)
    except OSError as error:
        return _report(refused(error), given)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug
        return _report(unexpected(error, given), given)


def _report(error: GrowError, given: Sequence[str]) -> int:
    """Show what went wrong: as JSON on standard output, or to a person on standard error."""
    if "--json" in given:
        _print_json(error_object(error))
    else:
        color = _colors(sys.stderr)
        with contextlib.suppress(OSError):
            print("\n\n".join(render(d, color) for d in error.diagnostics), file=sys.stderr)
    return error.exit_status


def _colors(stream: Any) -> bool:
    return bool(stream.isatty()) and "NO_COLOR" not in os.environ


def _print_json(data: Json) -> None:
    _print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False).split("\n"))


def _print(lines: Iterable[str]) -> None:
    """Print to a reader that may go away: a closed pipe ends the printing, and not the work.

    Everything that a command prints passes here, or growc.errors.diagnostic.render.
    """
    from growc.render.text import colored

    ink = colored if _colors(sys.stdout) else str
    with contextlib.suppress(BrokenPipeError), last_words():
        for line in lines:
            print(ink(printable(line)))
        sys.stdout.flush()


def _read(name: str) -> Source:
    from growc.api import decoded, read_source

    if name != "-":
        return read_source(Path(name))
    return decoded("<stdin>", sys.stdin.buffer.read(most("recipe_bytes") + 1))


def _statements(texts: Sequence[str]) -> Source:
    """What several `-e` say: the lines of one text."""
    return Source("-e", "\n".join(texts))


def _sources(options: Namespace) -> tuple[list[Source], Path]:
    """The recipe's source and the model, from RECIPE MODEL or -e … MODEL."""
    wanted = "MODEL" if options.e else "RECIPE and MODEL"
    if len(options.operands) != len(wanted.split(" and ")):
        found = ", ".join(f"`{name}`" for name in options.operands) or "nothing"
        remedy = "`-e` stands in the place of RECIPE" if options.e else "`-e STATEMENT` may stand for RECIPE"
        raise wrong(f"expected {wanted}, found {found}", remedy)
    source = _statements(options.e) if options.e else _read(options.operands[0])
    return [source], Path(options.operands[-1])


def _parameters(options: Namespace) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, value in pairs("-p", "NAME=EXPR", options.p):
        if name in found:
            raise wrong(f"`-p` sets `{name}` twice")
        found[name] = value
    return found


def _config(options: Namespace) -> dict[str, Json]:
    """What `--config` decides: numbers, truth values, `null` and lists as in JSON, else text."""
    found: dict[str, Json] = {}
    for name, value in pairs("--config", "FIELD=VALUE", options.config):
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def _apply(options: Namespace) -> int:
    from growc import api
    from growc.plans.plan_to_json import to_json
    from growc.render.progress import progress
    from growc.render.terminal import applied_lines, outcome_data, plan_lines, verification_data

    sources, model = _sources(options)
    with progress() as advance:
        done = api.apply(
            sources,
            model,
            options.out,
            _parameters(options),
            inputs=options.inputs,
            check=not options.no_verify,
            force=options.force,
            lineage=options.lineage,
            shard_size=options.shard_size,
            memory=options.memory,
            optimizer=options.optimizer,
            optimizer_new=options.optimizer_new,
            weights=options.weights,
            home=options.home,
            config=_config(options),
            progress=advance,
            planned=None if options.json else lambda plan: _print([*plan_lines(plan), ""]),
            ranks=options.ranks,
        )
    if options.json:
        measured = None if done.verification is None else verification_data(done.verification)
        result = to_json(done.plan) | {"written": str(done.written), "verification": measured}
        if done.calibration is not None:
            result |= {"calibration": outcome_data(done.calibration)}
        result |= {"remarks": list(done.remarks)} if done.remarks else {}
        _print_json(result | ({"reason": done.reason} if done.reason else {}))
    else:
        _print(applied_lines(done))
    return 0


def _captured_with(inputs: Path | None, model: Path) -> Path | None:
    """The file with the inputs that a checkpoint is captured with."""
    if inputs is not None and not model.is_dir() and model.suffix != ".json":
        raise wrong(f"`--inputs` is what a checkpoint directory is captured with, and `{model}` is none")
    return inputs


def _plan(options: Namespace) -> int:
    from growc import api
    from growc.checkpoint.files.homes import described_in
    from growc.plans.plan_to_json import to_json
    from growc.render.flops import change_line, flops_data
    from growc.render.loads import load_line, loads_data
    from growc.render.terminal import plan_lines
    from growc.reports.flops import before_and_after
    from growc.reports.loads import loads
    from growc.verification.judge import judge_plan

    sources, model = _sources(options)
    resolved = api.recipe(sources, _parameters(options))
    with described_in(model, options.home):
        compilation = api.compile(
            resolved,
            model,
            example_inputs=_captured_with(options.inputs, model),
            config=_config(options),
            after=_printing(options),
        )
        before, after = before_and_after(compilation)
        asked = options.processes is not None
        shared = loads(compilation, options.processes, options.bandwidth) if asked else None
    if not options.json:
        *lines, tally = plan_lines(compilation.plan, everything=options.all)
        lines += [change_line(before, after), *([] if shared is None else [load_line(shared)])]
        _print([*lines, f"{tally} Nothing was written."])
    try:
        judge_plan(resolved.statements, compilation)
    except GrowError:
        _print([] if options.json else [""])
        raise
    if options.json:
        counted: dict[str, Json] = {"before": flops_data(before), "after": flops_data(after)}
        data = {} if shared is None else {"ranks": loads_data(shared)}
        _print_json(to_json(compilation.plan) | {"flops": counted} | data)
    return 0


def _printing(options: Namespace) -> After:
    """What is called after each pass: prints what those that `--print-after` names made."""
    from growc.passes import PIPELINE
    from growc.render.passes import lines_after

    names = [one.name for one in PIPELINE]
    for name in options.print_after:
        if name not in (*names, "all"):
            near = nearest(name, names)
            listed = f"the passes are {', '.join(names)}; `all` stands for every one"
            raise wrong(f"there is no pass `{name}`", f"did you mean `{near}`? {listed}" if near else listed)
    if options.print_after and options.json:
        raise wrong("`--print-after` prints text, and `--json` one object")
    asked = names if "all" in options.print_after else options.print_after

    def after(name: str, made: compilation.Source, filled: Sequence[str]) -> None:
        if name in asked:
            _print(lines_after(name, made, filled))

    return after


def _inspect(options: Namespace) -> int:
    from growc.api import inspect
    from growc.render.flops import flops_data, flops_line
    from growc.render.inspection import inspect_data, inspect_lines
    from growc.reports.flops import count

    found = inspect(options.model, example_inputs=_captured_with(options.inputs, options.model))
    if options.json:
        _print_json(inspect_data(found) | {"flops": flops_data(count(found))})
    else:
        header, *lines = inspect_lines(found)
        _print([header, flops_line(count(found)), *lines])
    return 0


def _verify(options: Namespace) -> int:
    from growc.api import verify
    from growc.checkpoint.files.homes import described_in
    from growc.render.progress import progress
    from growc.render.terminal import verification_data, verification_lines
    from growc.verification.judge import refutation

    for model in options.models:
        if not model.exists():
            raise GrowError(Diagnostic("G310", f"there is no model at `{model}`"))
    with progress() as advance, described_in(options.models[0], options.home):
        found = verify(*options.models, inputs=options.inputs, progress=advance)
    way, seen = found.refuting() or ("", found)
    limit = seen.limit if options.within is None else options.within
    passed = not found.refutes_exact() if options.within is None else found.relative <= limit
    difference = f"differ by {seen.relative:.1e}, which is more than {limit:.1e}"
    if math.isinf(seen.relative):
        difference = "differ in kind: in their shapes, or in where they are finite"
    error = GrowError(Diagnostic("G404", f"the outputs {difference}", notes=refutation(way, seen)))
    if options.json:
        _print_json(verification_data(found) | {"passed": passed} | ({} if passed else error_object(error)))
        return 0 if passed else error.exit_status
    _print([*verification_lines(found), f"The outputs are the same within {limit:.1e}." if passed else ""])
    if not passed:
        raise error
    return 0


def _measure(options: Namespace) -> int:
    from growc.render.profile import layer_data, profile_data, profile_lines, rate_line, score_lines
    from growc.render.progress import progress
    from growc.reports.measure import measurement, profile

    if options.samples is not None and options.samples < 1:
        raise wrong("`--samples` is at least 1")
    model, inputs, samples, ranks = options.model, options.inputs, options.samples, options.ranks
    with progress() as advance:
        found = measurement(
            model, inputs, options.out, samples, force=options.force, progress=advance, ranks=ranks
        )
        made = None
        if options.layers:
            made = profile(
                model, inputs, samples, out=options.out, layers=found.layers, progress=advance, ranks=ranks
            )
    if options.json:
        data: dict[str, Json] = {"scores": {name: scores.tolist() for name, scores in found.scores.items()}}
        layers = [layer_data(score) for score in found.layers]
        _print_json(data | ({"layers": layers} if made is None else profile_data(made)))
    else:
        lines = score_lines(found.scores) if made is None else profile_lines(made, model.name)
        _print([*lines, rate_line(found.samples, found.seconds)])
    return 0


def _explain(options: Namespace) -> int:
    if len(options.what) == 1:
        _print(explain(options.what[0].upper()).split("\n"))
        return 0
    if len(options.what) != 2:
        raise wrong("expected MODEL AXIS, or CODE", "an axis of several words is quoted")
    from growc import grammar
    from growc.api import inspect
    from growc.passes.lowering.resolve_axis import named
    from growc.recipe.expression import Name, TensorAxis
    from growc.render.inspection import explain_lines

    model, text = options.what
    axis = grammar.parse_expression(Source("AXIS", text))
    if not isinstance(axis, Name | TensorAxis):
        raise wrong(f"`{text}` is no axis")
    found = inspect(model)
    _print(explain_lines(found, axis.name, named(axis.name, None, found.roles, found.axes), options.all))
    return 0


def _check(options: Namespace) -> int:
    from growc.resolve.resolve import load

    names = [*options.recipes, *(["-e"] if options.e else [])]
    if not names:
        raise wrong("expected RECIPE, found nothing", "`-e STATEMENT` may stand for RECIPE")
    problems: list[Diagnostic] = []
    for name in names:
        try:
            load([_statements(options.e) if name == "-e" else _read(name)], {})
        except GrowError as error:
            problems += error.diagnostics
    if problems:
        raise GrowError(*problems)
    if options.json:
        _print_json({"passed": True})
    else:
        _print(f"{name}: fine" for name in names)
    return 0


def _fmt(options: Namespace) -> int:
    from growc import grammar

    problems: list[Diagnostic] = []
    for name in options.recipes:
        try:
            source = _read(name)
            text = grammar.format(grammar.parse(source))
        except GrowError as error:
            problems += error.diagnostics
            continue
        if text != source.text and options.check:
            problems.append(
                Diagnostic("G405", f"`{name}` is not formatted", help=f"`growc fmt {name}` formats it")
            )
        elif name == "-" and not options.check:
            sys.stdout.write(printable(text, "\n\t") if sys.stdout.isatty() else text)
        elif text != source.text:
            _replace(Path(name).resolve(), text)
    if problems:
        raise GrowError(*problems)
    return 0


def _replace(path: Path, text: str) -> None:
    """The old text or the new one stands in a file, whenever the process dies."""
    from growc.files.atomic_rename import put
    from growc.system.workshop import kept_aside, workshop

    with workshop(path) as folder:
        draft = folder / path.name
        draft.write_text(text, encoding="utf-8", newline="")
        put(draft, path, kept_aside(draft, 0))


def _clean(options: Namespace) -> int:
    from growc.system.workshop import clean

    found = clean(options.folder)
    for folder in found.removed:
        print(printable(f"removed `{folder}`"))
    for folder, owner in found.busy.items():
        print(printable(f"`{folder}` stays: process {owner.process} works there"))
    for folder in found.unsure:
        print(printable(f"`{folder}` stays: this file system has no locks, and its process may still live"))
    if not (found.removed or found.busy or found.unsure):
        print(printable(f"nothing was left behind in `{options.folder}`"))
    return 0


COMMANDS = {
    "apply": _apply,
    "plan": _plan,
    "inspect": _inspect,
    "verify": _verify,
    "measure": _measure,
    "explain": _explain,
    "check": _check,
    "fmt": _fmt,
    "clean": _clean,
}


if __name__ == "__main__":
    sys.exit(program())
