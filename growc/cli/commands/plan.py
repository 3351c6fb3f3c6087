"""`growc plan`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from growc.cli.command import Command
from growc.cli.output import say, say_json, waiting
from growc.cli.shared_arguments import (
    WITH_RECIPE,
    captured_with,
    decided,
    model_of,
    offer,
    parameters,
    sources_and_model,
    take_all,
    take_captured_with,
    take_home,
    take_recipe,
)
from growc.errors.diagnostic import GrowError, nearest, wrong
from growc.errors.json_data import Json

if TYPE_CHECKING:
    from growc.formats.compiler import CompileOptions
    from growc.passes import compilation
    from growc.passes.compilation import After


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc plan`."""
    take_recipe(parser)
    take_captured_with(parser)
    take_home(parser)
    take_all(parser)
    parser.add_argument(
        "--ranks",
        dest="processes",
        type=int,
        metavar="N",
        help="show what each of so many processes reads and writes",
    )
    parser.add_argument(
        "--bandwidth", default="", metavar="SIZE", help="what each of them moves in a second (`1GB`)"
    )
    printed = parser.add_argument(
        "--print-after",
        metavar="PASS",
        action="append",
        default=[],
        help="show what a pass of growc made, or `all` of them",
    )
    offer(printed, _passes)


def _passes() -> Iterator[str]:
    """The words of `--print-after`."""
    from growc.passes import PIPELINE

    yield from (compiler_pass.name for compiler_pass in PIPELINE)
    yield "all"


def run(options: Namespace) -> int:
    """Show the plan."""
    from growc import api
    from growc.budgets.settle import settled
    from growc.checkpoint.files.config_folders import described_in
    from growc.plans.plan_to_json import to_json
    from growc.render.flops import change_line, flops_data
    from growc.render.loads import load_line, loads_data
    from growc.render.terminal import plan_lines
    from growc.reports.flops import before_and_after
    from growc.reports.loads import loads
    from growc.verification.judge import judge_plan

    sources, model = sources_and_model(options)
    reading = api.reading_of(
        sources, parameters(options)
    )  # mistakes of the recipe come before the capture of a model
    printing = _printing(options)
    with waiting() as advance, described_in(model, options.home):
        base_options: CompileOptions = {
            "example_inputs": captured_with(options.inputs, model),
            "config": decided(options),
            "progress": advance,
        }
        resolved = settled(reading, parameters(options), model, **base_options)
        watched: CompileOptions = {**base_options, "after": printing}
        compilation = api.compile(resolved, model, **watched)
        before, after = before_and_after(compilation)
        has_processes = options.processes is not None
        process_loads = loads(compilation, options.processes, options.bandwidth) if has_processes else None
    if not options.json:
        *lines, tally = plan_lines(compilation.plan, everything=options.all)
        lines += [change_line(before, after), *([] if process_loads is None else [load_line(process_loads)])]
        say([*lines, f"{tally} Nothing was written."])
    try:
        judge_plan(resolved.statements, compilation)
    except GrowError:
        say([] if options.json else [""])
        raise
    if options.json:
        counted: dict[str, Json] = {"before": flops_data(before), "after": flops_data(after)}
        data = {} if process_loads is None else {"ranks": loads_data(process_loads)}
        say_json(to_json(compilation.plan) | {"flops": counted} | data)
    return 0


def _printing(options: Namespace) -> After:
    """A callback after each pass that prints the results of those that `--print-after` names."""
    from growc.render.passes import lines_after

    *names, everything = _passes()
    for name in options.print_after:
        if name not in (*names, everything):
            near = nearest(name, names)
            listed = f"the passes are {', '.join(names)}; `{everything}` stands for every one"
            raise wrong(f"there is no pass `{name}`", f"did you mean `{near}`? {listed}" if near else listed)
    if options.print_after and options.json:
        raise wrong("`--print-after` prints text, and `--json` one object")
    printed = names if everything in options.print_after else options.print_after

    def after(name: str, state: compilation.Source, filled: Sequence[str]) -> None:
        if name in printed:
            say(lines_after(name, state, filled))

    return after


PLAN = Command(
    name="plan",
    usage=WITH_RECIPE,
    purpose="Show what `apply` would do; write nothing.",
    arguments=arguments,
    run=run,
    examples=(
        "plan wider.grow model.onnx",
        "plan -e 'stack layers to 2 * layers by whole' config.json --ranks 64 --bandwidth 2GB",
    ),
    models=model_of,
)
