"""`growc inspect`."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from pathlib import Path

from growc.cli.command import Command
from growc.cli.output import say, say_json
from growc.cli.shared_arguments import captured_with, local_model, take_captured_with, take_json


def arguments(parser: ArgumentParser) -> None:
    """Add the arguments of `growc inspect`."""
    parser.add_argument("model", type=Path, metavar="MODEL")
    take_captured_with(parser)
    take_json(parser)


def run(options: Namespace) -> int:
    """Show the model's axes."""
    from growc.api import inspect
    from growc.render.flops import flops_data
    from growc.render.inspection import inspect_data
    from growc.render.result_lines import lines_of_analysis
    from growc.reports.flops import count

    model = local_model(options.model)
    analysis = inspect(model, example_inputs=captured_with(options.inputs, model))
    if options.json:
        say_json(inspect_data(analysis) | {"flops": flops_data(count(analysis))})
    else:
        say(lines_of_analysis(analysis))
    return 0


INSPECT = Command(
    name="inspect",
    usage="MODEL [OPTION…]",
    purpose="Show the axes of a model, and what is frozen.",
    arguments=arguments,
    run=run,
    examples=("inspect model.onnx",),
    models=lambda options: [options.model],
)
